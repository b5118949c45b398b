"""The guide to a second host: the data moves to other servers, two hosts share the work, and one takes over."""

import asyncio
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loadtests.kit.service import clear, make_folder
from loadtests.ports import reserve_port
from tests.harness.guides import GuideSample, guides
from tests.harness.service import until
from tests.journeys.guide_server import GuideServer

pytestmark = pytest.mark.journey

DATABASE = "'postgresql://waybill:long-random-password@db.example.com/waybill'"
REDIS = "'redis://:another-password@cache.example.com:6379'"


@pytest.fixture
def server() -> Iterator[Callable[[], GuideServer]]:
    """Return a function that makes a machine with the settings of the first guide."""
    made: list[tuple[GuideServer, Path]] = []

    def make() -> GuideServer:
        folder = make_folder()
        one = GuideServer(folder, dns_port=reserve_port(), smtp_port=reserve_port())
        made.append((one, folder))
        shutil.copy(one.root / "opt/deploy/systemd/waybill.env", one.root / "etc/waybill")
        for unit in (one.root / "opt/deploy/systemd").glob("*.s*"):
            shutil.copy(unit, one.root / "etc/systemd/system")
        for name in ("fullchain.pem", "privkey.pem"):
            shutil.copy(one.root / "etc/letsencrypt/live/mail.example.com" / name, one.root / "etc/waybill")
        shutil.copy(one.root / "opt/deploy/systemd/waybill-ops", one.root / "usr/local/bin/ops")
        return one

    yield make
    for one, folder in made:
        one.service.kill()
        clear(folder)


def block(words: str) -> tuple[str, str]:
    """Return the commands with these words, and the output that the guide shows for them."""
    samples = guides()["second-host"].samples
    [at] = [place for place, one in enumerate(samples) if one.language == "sh" and words in one.text]
    following: list[GuideSample] = samples[at + 1 : at + 2]
    return samples[at].text, following[0].text if following and following[0].language == "text" else ""


async def run(server: GuideServer, text: str) -> str:
    status, printed = await asyncio.to_thread(server.run, text)
    assert status == 0, f"{text}\n{printed}"
    return printed


@pytest.mark.exhaustive
@pytest.mark.timeout(300)  # it starts a whole service three times
async def test_the_data_moves_and_a_second_host_takes_over(
    server: Callable[[], GuideServer], own_database: str, redis_url: str
) -> None:
    first, second = server(), server()
    first.start()
    made = await run(first, "ops account create --name Example --email ann@example.com")
    account = re.findall(r"acc_\w+", made)[0]

    await run(first, block("ops backup")[0])
    assert first.service.stop() == 0
    move = block("ops restore")[0].replace(DATABASE, f"'{own_database}'").replace(REDIS, f"'{redis_url}'")
    await run(first, move)
    first.start()
    command, shown = block("postgres|redis")
    printed = await run(first, command)
    for line in shown.splitlines():
        assert " ".join(line.strip("…").split()) in " ".join(printed.split())
    assert account in await run(first, "ops account list")

    shutil.copy(first.root / "etc/waybill/waybill.env", second.root / "etc/waybill/waybill.env")
    second.start()
    nodes = (await run(first, block("ops nodes")[0])).replace(socket.gethostname(), "mail")
    assert nodes.count("mail:mta-1 ") == 2

    second.service.stop()

    async def is_taken_over() -> bool:
        return " ".join(block("' shards:'")[1].split()) in " ".join((await run(first, block("' shards:'")[0])).split())

    await until(is_taken_over)
