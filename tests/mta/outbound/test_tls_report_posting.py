"""TLS reports to https destinations: what is posted, that each takes it once, and that a failing one is asked again."""

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from msgspec import structs

from engine.base import clock
from engine.base.settings import Settings
from mta.outbound.tls import report_posting
from mta.outbound.tls.report_posting import LASTS, WAITS_S
from mta.outbound.tls.reporting import send_due
from ops.local import certificate
from tests.conftest import NewDatabase
from tests.harness.outbound import World, world


class Collector:
    """An https server that takes reports; `answers` says how, the last one for all others."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers) or [201]
        self.bodies: list[bytes] = []
        self.types: list[str] = []
        self.paths: list[str] = []
        self.hold = asyncio.Event()
        self.hold.set()

    async def take(self, request: web.Request) -> web.Response:
        """Keep it."""
        self.paths.append(request.path)
        self.types.append(request.headers["Content-Type"])
        self.bodies.append(await request.read())
        await self.hold.wait()
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        headers = {"Location": "https://elsewhere.test/"} if 300 <= status < 400 else {}
        return web.Response(status=status, headers=headers)


@asynccontextmanager
async def serving(collector: Collector, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Its port."""
    app = web.Application()
    app.router.add_post("/{name}", collector.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    """With a certificate of its own making: nobody vouches for it."""
    return certificate.server_context(tmp_path)


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> AsyncIterator[World]:
    """A world in which yesterday's sessions with peer.test have been counted."""
    async with world(settings, await new_database(), allow_private_mx=True) as made:
        await made.pool.execute(
            "INSERT INTO tls_days (day, domain, policy, result, mx, ip, reason, sessions) "
            "VALUES ($1, 'peer.test', 'sts', 'certificate-expired', 'mx.b.test', '192.0.2.1', 'it expired', 7)",
            yesterday(),
        )
        made.dns.set("tls.peer.test", "A", ["127.0.0.1"])
        yield made


def yesterday() -> date:
    return clock.now().date() - timedelta(days=1)


def evening() -> datetime:
    return datetime.combine(clock.now().date(), time(23), UTC)


def reporting(here: World) -> Settings:
    return structs.replace(here.settings, tls_report_from=f"tls@{here.account.domain}")


def asks(here: World, *uris: str) -> None:
    here.dns.set("_smtp._tls.peer.test", "TXT", [f"v=TLSRPTv1; rua={','.join(uris)}"])


async def sent_to(here: World) -> list[str]:
    return list(await here.pool.fetchval("SELECT sent_to FROM tls_reports"))


async def waiting(here: World) -> list[str]:
    return [row["url"] for row in await here.pool.fetch("SELECT url FROM tls_report_posts ORDER BY url")]


async def test_a_report_is_posted_compressed_to_every_destination_once(here: World, context: ssl.SSLContext) -> None:
    collector = Collector()
    async with serving(collector, context) as port:
        urls = [f"https://tls.peer.test:{port}/{name}" for name in ("one", "two")]
        asks(here, *urls, "mailto:rua@peer.test", urls[0])
        assert await send_due(here.pool, reporting(here), evening()) == 3
        assert await send_due(here.pool, reporting(here), evening()) == 0
        assert await send_due(here.pool, reporting(here), evening() + timedelta(hours=2)) == 0

    assert sorted(collector.paths) == ["/one", "/two"]
    assert collector.types == ["application/tlsrpt+gzip"] * 2
    found = json.loads(gzip.decompress(collector.bodies[0]))
    assert found["policies"][0]["summary"]["total-failure-session-count"] == 7
    assert found["policies"][0]["policy"]["policy-domain"] == "peer.test"
    assert sorted(await sent_to(here)) == sorted([*urls, "rua@peer.test"])
    assert await waiting(here) == []


@pytest.mark.parametrize("answer", [301, 404, 500])
async def test_one_that_fails_is_asked_again_over_the_day_and_the_others_are_not(
    here: World, context: ssl.SSLContext, answer: int
) -> None:
    good, bad = Collector(), Collector(answer, answer, 200)
    async with serving(good, context) as port, serving(bad, context) as other:
        asks(here, f"https://tls.peer.test:{port}/good", f"https://tls.peer.test:{other}/bad")
        assert await send_due(here.pool, reporting(here), evening()) == 1
        assert await send_due(here.pool, reporting(here), evening()) == 0  # not yet
        again = evening() + timedelta(seconds=WAITS_S[0])
        assert await send_due(here.pool, reporting(here), again) == 0
        assert await send_due(here.pool, reporting(here), again + timedelta(seconds=WAITS_S[1])) == 1

    assert (len(good.bodies), len(bad.bodies)) == (1, 3)
    assert len(set(bad.bodies)) == 1
    assert await waiting(here) == []
    assert len(await sent_to(here)) == 2


async def test_after_a_day_a_destination_is_given_up(here: World) -> None:
    asks(here, "https://tls.peer.test:9/r")
    now = evening()
    assert await send_due(here.pool, reporting(here), now) == 0
    assert await waiting(here) == ["https://tls.peer.test:9/r"]
    tries = 1
    while await waiting(here):
        now = await here.pool.fetchval("SELECT next_at FROM tls_report_posts")
        assert await send_due(here.pool, reporting(here), now) == 0
        tries += 1

    assert now - evening() < LASTS + timedelta(seconds=WAITS_S[-1] + 1)
    assert tries < 12
    assert await sent_to(here) == []


async def test_a_server_that_never_answers_holds_nobody_up_for_long(
    here: World, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_posting, "POST_S", 0.5)
    mute, good = Collector(), Collector()
    mute.hold.clear()
    async with serving(mute, context) as port, serving(good, context) as other:
        asks(here, f"https://tls.peer.test:{port}/mute", f"https://tls.peer.test:{other}/good")
        assert await send_due(here.pool, reporting(here), evening()) == 1
        mute.hold.set()
    assert await waiting(here) == [f"https://tls.peer.test:{port}/mute"]


async def test_two_workers_at_the_same_time_post_once(here: World, context: ssl.SSLContext) -> None:
    collector = Collector()
    async with serving(collector, context) as port:
        asks(here, f"https://tls.peer.test:{port}/r")
        done = await asyncio.gather(*[send_due(here.pool, reporting(here), evening()) for _ in range(3)])
    assert sum(done) == 1
    assert len(collector.bodies) == 1


async def test_a_destination_inside_our_own_network_is_never_dialled(here: World, context: ssl.SSLContext) -> None:
    collector = Collector()
    async with serving(collector, context) as port:
        asks(here, f"https://tls.peer.test:{port}/r")
        guarded = structs.replace(reporting(here), allow_private_mx=False)
        assert await send_due(here.pool, guarded, evening()) == 0
    assert collector.bodies == []
    assert len(await waiting(here)) == 1
