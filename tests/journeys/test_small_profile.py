"""The small profile: two processes, started in the background, stopped and restarted by commands; nothing is lost."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from loadtests.kit.service import Service, ServicePart, temporary
from ops.host.state import holder
from tests.harness.api import Api
from tests.harness.service import arrived, command, gone, new_access, running, send, until_status

pytestmark = pytest.mark.journey


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running({"PROFILE": "small"}) as started:
        yield started


def pids(service: Service) -> dict[str, int]:
    return {row["name"]: row["pid"] for row in command(service, "status", "--json").json}


async def test_two_processes_and_two_servers_carry_the_service(service: Service, http: aiohttp.ClientSession) -> None:
    assert set(pids(service)) == {"postgres", "valkey", "api", "host"}
    access = await new_access(service)
    api = Api(service.base_url, http)
    sent = await send(api, access, "ann@small.test")
    await until_status(api, access, sent, "delivered")
    assert len(arrived(service, "ann@small.test")) == 1


async def test_drills_find_each_part_of_the_service_in_its_process(service: Service) -> None:
    known = pids(service)
    for part in ServicePart:
        kind = part.name.lower()
        assert service.pids(part) == [known.get(kind, known["host"])], part
    assert service.api_workers() == [known["api"]]


async def test_a_quiet_service_delivers_at_once_what_comes(service: Service, http: aiohttp.ClientSession) -> None:
    access = await new_access(service)
    api = Api(service.base_url, http)
    await asyncio.sleep(12)  # after ten seconds without a sign of life loops wait longer
    began = time.monotonic()
    sent = await send(api, access, "bob@small.test")
    await until_status(api, access, sent, "delivered")
    assert time.monotonic() - began < 20  # the hint comes at once; without it the row falls due after 5 s


@pytest.mark.parametrize("name", ["host", "api"])
async def test_a_killed_process_is_restarted_and_no_message_is_lost(
    service: Service, http: aiohttp.ClientSession, name: str
) -> None:
    access = await new_access(service)
    api = Api(service.base_url, http)
    before = pids(service)
    sent = [await send(api, access, f"{name}{number}@small.test") for number in range(5)]
    os.kill(before[name], signal.SIGKILL)
    async with asyncio.timeout(60):
        while (now := pids(service).get(name)) in (None, before[name]):
            await asyncio.sleep(0.1)
    assert now != before[name]
    assert {one: pid for one, pid in pids(service).items() if one != name} == {
        one: pid for one, pid in before.items() if one != name
    }
    for number, one in enumerate(sent):
        async with asyncio.timeout(60):
            while len(arrived(service, f"{name}{number}@small.test")) < 1:
                await asyncio.sleep(0.1)
        assert one.startswith("msg_")


async def test_a_rolling_restart_replaces_both_by_forks_of_a_new_server(service: Service) -> None:
    before = pids(service)
    parent = int(Path("/proc", str(before["host"]), "stat").read_text().split()[3])
    done = command(service, "restart", "--json").json
    after = pids(service)
    assert done == {"restarted": ["api", "host"]}
    assert all(after[name] != before[name] for name in ("api", "host"))
    assert int(Path("/proc", str(after["host"]), "stat").read_text().split()[3]) != parent
    async with asyncio.timeout(30):
        while not gone(parent):
            await asyncio.sleep(0.1)


async def test_the_service_runs_in_the_background_and_is_stopped_by_a_command() -> None:
    with temporary({"PROFILE": "small"}) as service:
        service.stop()
        up = command(service, "up", "--detach")
        assert up.status == 0, up.err
        assert "Waybill is ready" in up.out
        assert "ops stop" in up.out
        pid = holder(service.state)
        assert pid
        again = command(service, "up", "-d")
        assert again.status == 1
        assert f"process {pid}" in again.out
        logs = command(service, "logs", "host", "-n", "100")
        assert "member joined" in logs.out
        assert command(service, "logs", "nobody").status == 1
        stopped = command(service, "stop")
        assert (stopped.status, stopped.out.splitlines()[-1]) == (0, "Stopped")
        async with asyncio.timeout(30):  # the lock of the folder is free a moment before its process has ended
            while not gone(pid):
                await asyncio.sleep(0.1)
        assert command(service, "down").out.startswith("Waybill does not run on")
