"""The guide to production, from its first command to the first live email and the backup, as printed."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loadtests.kit.service import clear, make_folder
from ops.local.dns import Responder
from ops.local.sink import Sink
from tests.harness.guides import GuideSample, guides
from tests.harness.service import until
from tests.journeys.guide_server import HOST, NOT_RUN, GuideServer, is_left_out
from tests.ops.proxies import Proxy, Site, nginx_around, running

pytestmark = pytest.mark.journey

GUIDES = ("production", "second-host")
ADDRESS = "192.0.2.25"
SOURCE = "127.0.0.1"  # which mail comes from here
RECEIVER = "mx.google.com"


@pytest.fixture
async def world() -> AsyncIterator[tuple[Responder, Sink]]:
    """DNS with the recipient's domain, and the mail server of that domain."""

    async def below(name: str, rdtype: str) -> list[str] | None:
        """Answer for every name below a wildcard of the zone."""
        parent = name.rstrip(".").partition(".")[2]
        return wildcards.get((parent, rdtype))

    wildcards: dict[tuple[str, str], list[str]] = {}
    async with Responder(fallback=below) as dns, Sink(name=RECEIVER) as sink:
        dns.set("example.net", "MX", [f"10 {RECEIVER}."])
        dns.set(RECEIVER, "A", ["127.0.0.1"])
        dns.set(HOST, "A", [ADDRESS])
        for address in (ADDRESS, SOURCE):
            dns.set(".".join(reversed(address.split("."))) + ".in-addr.arpa", "PTR", [f"{HOST}."])
        for name, rdtype, value in records("production"):
            if name.startswith("*."):
                wildcards[name[2:], rdtype] = [value]
            else:
                dns.set(name, rdtype, [value])
        yield dns, sink


def records(slug: str) -> list[tuple[str, str, str]]:
    """Return the DNS records that a guide prints."""
    found = []
    for sample in guides()[slug].samples:
        if sample.language == "text":
            found += re.findall(r"^(\S+) +(A|TXT|MX|CNAME) +(.+)$", sample.text, re.MULTILINE)
    return found


def steps(slug: str) -> list[tuple[GuideSample, GuideSample | None]]:
    """Return the blocks of commands in order, each with the output that the guide shows for it."""
    samples = guides()[slug].samples
    after = dict(zip(samples, [*samples[1:], None], strict=True))
    return [
        (one, shown if (shown := after[one]) is not None and shown.language in {"text", "json"} else None)
        for one in samples
        if one.language == "sh"
    ]


def pattern(shown: str) -> "re.Pattern[str]":
    """Return what finds a printed output; `…` stands for anything, and any space for any other."""
    words = [".*".join(map(re.escape, word.split("…"))) for word in shown.split()]
    return re.compile(r"\s*".join(words), re.DOTALL)


@pytest.mark.exhaustive
@pytest.mark.timeout(300)  # it starts a whole service, and some twenty commands of its own
async def test_each_command_prints_what_the_guide_shows(world: tuple[Responder, Sink], tmp_path: Path) -> None:
    dns, sink = world
    folder = make_folder()
    server = GuideServer(folder, dns_port=dns.address[1], smtp_port=sink.address[1])
    try:
        async with contextlib.AsyncExitStack() as stack:
            reader = Reader(server, dns, stack, tmp_path)
            for sample, shown in steps("production"):
                await reader.follow(sample, shown)
    finally:
        server.service.kill()
        clear(folder)
    [arrived] = sink.messages
    assert b"It works." in arrived.content
    assert b"DKIM-Signature" in arrived.content


class Reader:
    """Follows the guide, and does between two blocks what its reader, systemd and the DNS host do."""

    def __init__(self, server: GuideServer, dns: Responder, stack: contextlib.AsyncExitStack, folder: Path) -> None:
        self._server = server
        self._dns = dns
        self._stack = stack
        self._folder = folder
        self._account = ""

    async def follow(self, sample: GuideSample, shown: GuideSample | None) -> None:
        """Run one block, and compare what it prints with what the guide shows."""
        text = sample.text.replace("ACCOUNT=acc_…", f"ACCOUNT={self._account}")
        await self._before(text)
        status, printed = await asyncio.to_thread(self._server.run, text)
        assert status == 0, f"{sample}\n{text}\n{printed}"
        if shown is not None and not is_left_out(text.splitlines()[-1]):
            assert pattern(shown.text).fullmatch(printed.strip()), f"{sample}: {shown.text}\n{printed}"
        await self._after(text, printed)

    async def _before(self, text: str) -> None:
        if "ops domain verify" in text:
            await self._publish()
        if "ops doctor" in text:
            self._dns.set(HOST, "A", [ADDRESS, SOURCE])
        if "ops messages" in text:
            await until(self._is_delivered)
        if "start waybill-backup.service" in text:
            status, printed = await asyncio.to_thread(self._server.back_up)
            assert status == 0, printed

    async def _after(self, text: str, printed: str) -> None:
        if "ops account create" in text:
            self._account = re.findall(r"acc_\w+", printed)[0]
        if "enable --now waybill.service" in text:
            self._server.start()
        if "/etc/nginx/conf.d" in text:
            await self._serve()

    async def _publish(self) -> None:
        """Publish the records of the sender domain."""
        command = f"ops domain verify --account {self._account} --name example.com --json"
        _, printed = await asyncio.to_thread(self._server.run, command)
        for one in json.loads(printed)["records"]:
            value = f'"{one["value"][:200]}" "{one["value"][200:]}"' if one["type"] == "TXT" else f"{one['value']}."
            self._dns.set(one["host"], one["type"], [value])

    async def _is_delivered(self) -> bool:
        _, printed = await asyncio.to_thread(self._server.run, "ops messages --all --json")
        return [one["status"] for one in json.loads(printed)] == ["delivered"]

    async def _serve(self) -> None:
        """Start nginx with the file that the guide made."""
        made = (self._server.root / "etc/nginx/conf.d/waybill.conf").read_text()
        api = self._server.service.base_url.removeprefix("http://")

        def write(site: Site) -> str:
            here = self._server.here(made).replace("listen 443", f"listen {site.listen}")
            return nginx_around(here.replace("127.0.0.1:8080", api), site.folder)

        proxy = Proxy("nginx of the guide", "nginx", write, shipped=True, tls=True)
        started = await self._stack.enter_async_context(running(proxy, self._server.service.base_url, self._folder))
        self._server.set("PROXY_PORT", started.url.rpartition(":")[2])


def test_each_reason_not_to_run_a_command_is_still_needed() -> None:
    lines = [line for slug in GUIDES for sample, _ in steps(slug) for line in sample.text.splitlines()]

    assert [one for one in NOT_RUN if not any(re.search(one, line) for line in lines)] == []


@pytest.mark.parametrize("slug", GUIDES)
def test_the_guides_of_operators_have_numbered_steps(slug: str) -> None:
    titles = [title for level, title in guides()[slug].headings if level == 2]
    numbers = [int(found[1]) for title in titles if (found := re.match(r"(\d+)\. ", title))]

    assert numbers == list(range(1, len(numbers) + 1))
    assert titles[0] == "What you need"
    assert titles[-1] == "Next"
