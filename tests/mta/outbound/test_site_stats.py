"""Is it me or them? Deferrals carry how the site answered the others; an operator sees conversations, never content."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from engine.base import ids
from engine.base.settings import Settings
from engine.delivery.outcome import Verdict
from mta.outbound.sites import site_stats
from mta.outbound.sites.site_stats import MIN_OTHERS, MINUTES, AnswerCounts
from mta.smtp.client.trace import masked
from ops.commands import trace
from ops.local import certificate
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account
from tests.harness.outbound import World, world

D, F, B = Verdict.DELIVERED, Verdict.DEFERRED, Verdict.BOUNCED
ME, ONE, TWO = (UUID(int=n) for n in (1, 2, 3))
LATER_S = (600.0,)


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> AsyncIterator[World]:
    """A world with a queue of its own."""
    async with world(settings, await new_database()) as made:
        yield made


def test_others_are_counted_without_ones_own() -> None:
    answers = AnswerCounts(lambda: 1000.0)
    for account, verdict in ((ME, F), (ME, F), (ONE, D), (ONE, F), (TWO, D), (TWO, B)):
        answers.count("mx.a.test", account, verdict)
    assert answers.others("mx.a.test", ME) == {"minutes": MINUTES, "delivered": 2, "deferred": 1, "bounced": 1}
    assert answers.others("mx.b.test", ME) is None


def test_figures_of_a_single_other_account_are_not_shown() -> None:
    answers = AnswerCounts(lambda: 1000.0)
    for _ in range(50):
        answers.count("mx.a.test", ONE, D)
    assert MIN_OTHERS == 2
    assert answers.others("mx.a.test", ME) is None


def test_what_is_older_than_the_last_minutes_is_forgotten() -> None:
    now = 0.0
    answers = AnswerCounts(lambda: now)
    for account in (ONE, TWO):
        answers.count("mx.a.test", account, D)
    now = (MINUTES - 1) * 60.0
    assert answers.others("mx.a.test", ME) is not None
    now = MINUTES * 60.0
    assert answers.others("mx.a.test", ME) is None
    assert answers._entries == 0


def test_memory_is_bounded_however_many_sites_and_accounts_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_stats, "MAX_SITES", 10)
    monkeypatch.setattr(site_stats, "MAX_ENTRIES", 100)
    answers = AnswerCounts(lambda: 1000.0)
    for n in range(1, 5_000):
        answers.count(f"mx{n % 40}.test", UUID(int=n), D)
    assert len(answers._sites) <= 10
    assert answers._entries <= 100 + 10
    for n in range(1, 2_000):
        answers.count("busy.test", UUID(int=n), D)
    found = answers.others("busy.test", UUID(int=10**6))
    assert found is not None
    assert found["delivered"] == 1_999  # nobody's answer is lost, only whose it was


def test_addresses_are_masked() -> None:
    assert masked("550 5.1.1 <ann.lee@b.test>: unknown; to ann.lee@b.test") == (
        "550 5.1.1 <a***@b.test>: unknown; to a***@b.test"
    )


async def test_a_deferral_carries_how_the_same_servers_answered_all_others(here: World) -> None:
    for name in ("one.test", "two.test"):
        here.domain(name, mx="mx.shared.test")
    others = [await make_account(here.pool) for _ in range(2)]
    here.sink.script("RCPT TO:<full@two.test>", "451 4.3.0 not now")
    await here.mta(retry_ladder_s=LATER_S)
    for n, account in enumerate(others):
        message = await here.send(f"ann{n}@one.test", account=account)
        await here.until_step(message, "delivered")
    mine = await here.send("full@two.test")
    await here.until_step(mine, "deferred")

    detail = dict(await here.waybill(mine))["deferred"]
    assert detail["site_lately"] == {"minutes": MINUTES, "delivered": 2, "deferred": 0, "bounced": 0}
    fine = await here.send("bob@two.test")
    await here.until_step(fine, "delivered")
    assert "site_lately" not in dict(await here.waybill(fine))["delivered"]
    alone = await here.send("full@two.test", account=others[0])
    await here.until_step(alone, "deferred")  # two others by now: the first account, and this test's own
    assert dict(await here.waybill(alone))["deferred"]["site_lately"]["delivered"] == 2


@pytest.mark.exhaustive
async def test_a_trace_shows_conversations_live_and_never_the_content(here: World) -> None:
    here.sink.script("RCPT TO:<gone@peer.test>", "550 5.1.1 <gone@peer.test>: no such user")
    here.domain("quiet.test")
    await here.mta()
    assert here.settings.database_url is not None
    heard: list[dict[str, object]] = []

    def watch() -> None:
        heard.extend(trace.follow(here.settings, domain="PEER.test", ends=time.monotonic() + 6))

    watching = asyncio.create_task(asyncio.to_thread(watch))
    await asyncio.sleep(1.5)
    secret = "the code is 4711"
    sent = [await here.send("gone@peer.test", text=secret), await here.send("ann@peer.test", text=secret)]
    await here.until_step(await here.send("bob@quiet.test"), "delivered")
    await watching

    attempts = [one for one in heard if "messageId" in one]
    assert sorted(str(one["messageId"]) for one in attempts) == sorted(ids.format_id(ids.Kind.MESSAGE, m) for m in sent)
    said = [f"{one['way']} {one['text']}" for one in heard if "way" in one]
    assert said.count("> RCPT TO:<g***@peer.test>") == 1
    assert said.count("< 550 5.1.1 <g***@peer.test>: no such user") == 1
    assert [one for one in said if one.startswith("> EHLO ")]
    assert [one for one in said if re.fullmatch(r"> \([\d,]+ octets of content and the final dot\)", one)]
    assert all("ms" in one for one in heard if one.get("way") == "<")
    text = json.dumps(heard)
    assert "4711" not in text
    assert "gone@" not in text
    assert "g***@peer.test" in text
    assert "bounced (user_unknown): 550 5.1.1" in text
    told = "\n".join(line for one in heard for line in trace.lines(one))
    assert "< 220 " in told
    assert "quiet" not in told
    assert "= delivered (accepted): 250" in told
    assert await here.pool.fetchval("SELECT count(*) FROM traces") == 0


async def test_a_watcher_that_died_is_forgotten(here: World) -> None:
    await here.pool.execute(
        "INSERT INTO traces (id, domain, expires_at) VALUES ($1, 'peer.test', now() + interval '2 s')", ids.uuid7()
    )
    mta = await here.mta()
    watch = mta.outbound.site_stats.watch
    await here.until(lambda: "peer.test" in watch.domains)
    await here.until(lambda: not watch.domains)  # nobody ended it
    await here.until_step(await here.send("ann@peer.test"), "delivered")
    assert not mta.outbound.site_stats._told
    assert watch.drain() == ([], 0)


@pytest.mark.exhaustive
async def test_two_watchers_see_each_what_they_asked_for_and_tls_is_told(here: World, tmp_path: Path) -> None:
    secure = await here.server("127.0.0.3", tls=certificate.server_context(tmp_path))
    here.domain("secure.test", "127.0.0.3")
    await here.mta()
    heard: dict[str, list[dict[str, object]]] = {"secure.test": [], "peer.test": []}

    def watch(domain: str) -> None:
        heard[domain].extend(trace.follow(here.settings, domain=domain, ends=time.monotonic() + 5))

    watching = [asyncio.create_task(asyncio.to_thread(watch, domain)) for domain in heard]
    await asyncio.sleep(1.5)
    for domain in heard:
        await here.until_step(await here.send(f"ann@{domain}"), "delivered")
    await asyncio.gather(*watching)

    assert secure.count == 1
    for domain, lines in heard.items():
        assert {mx for one in lines if (mx := one.get("mx"))} == {f"mx.{domain}"}
        assert f"> RCPT TO:<a***@{domain}>" in [f"{one.get('way')} {one.get('text')}" for one in lines]
    told = [str(one["text"]) for one in heard["secure.test"] if one.get("way") == "*"]
    assert [text for text in told if text.startswith("TLSv1.3 ") and "certificate unverified" in text]
