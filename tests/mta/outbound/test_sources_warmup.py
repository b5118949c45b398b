"""Warming an address up: exact counts over processes and restarts, and what becomes of mail that finds no room."""

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.base import clock
from engine.base.settings import SourceIp
from engine.delivery import queue, sources_store
from engine.delivery.sources import Assignment, PoolMember, Warmup, next_midnight
from engine.delivery.sources_store import Taken
from engine.store.postgres import open_pool
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.source_ips.assignment import SourceAddresses
from mta.outbound.source_ips.unspent_quota import UnspentQuota
from ops.commands import source as ops_sources
from tests.harness.accounts import make_account
from tests.harness.outbound import BRIEF_LEASE_S, World
from tests.harness.patience import PATIENCE_S
from tests.harness.site_rules import set_rule
from tests.mta.outbound.test_sources import SERVER, Witness, attempted
from tests.mta.processes import process

A, B = "127.0.0.2", "127.0.0.3"
ONE = (SourceIp(A),)
BOTH = (SourceIp(A), SourceIp(B))
SITE = "mx.hoster.test"


@pytest.fixture
async def server(here: World) -> AsyncIterator[Witness]:
    """The one mail server of c0.test to c39.test; dead.test has none that listens."""
    sink = Witness(name="mx.hoster.test")
    await sink.start(SERVER, here.settings.sink_port)
    for number in range(40):
        here.domain(f"c{number}.test", SERVER, mx=SITE)
    here.domain("dead.test", World.NOBODY)
    yield sink
    await sink.stop()


async def warming(here: World, *plan: int, ip: str = A, began_days_ago: int = 0) -> None:
    started = clock.now().date() - timedelta(days=began_days_ago)
    await sources_store.warm_up(here.pool, Warmup(ip, started, plan))


async def used(here: World, ip: str = A) -> dict[str, int]:
    return {one.site: one.used for one in await sources_store.counts(here.pool, clock.now().date(), ip, 100)}


async def waiting(here: World) -> list[Any]:
    return list(await here.pool.fetch("SELECT * FROM queue WHERE waiting = 'warm_up'"))


async def until_waiting(here: World, count: int, timeout_s: float = PATIENCE_S) -> None:
    """So many wait for room, and nothing else is under way."""
    async with asyncio.timeout(timeout_s):
        while len(await waiting(here)) < count or await here.pool.fetchval("SELECT count(*) FROM queue") > count:
            await asyncio.sleep(0.05)


@pytest.fixture(autouse=True)
def _one_day() -> None:
    if next_midnight(clock.now()) - clock.now() < timedelta(minutes=3):
        pytest.skip("the UTC day ends while this test runs")


# -- room --------------------------------------------------------------------------------------


async def test_a_new_address_sends_its_allowance_and_the_rest_waits_for_midnight_with_a_reason(
    here: World, server: Witness
) -> None:
    await warming(here, 5)
    messages = await here.send_many(12, lambda n: f"reader{n}@c{n % 4}.test")
    await here.mta(source_ips=ONE)
    await until_waiting(here, 7)
    rows = await waiting(here)
    held = [message for message in messages if "queued" in await here.steps(message)]
    detail = dict(await here.waybill(held[0]))["queued"]

    assert server.count == 5
    assert await used(here) == {SITE: 5}
    assert len(held) == 7
    midnight = next_midnight(clock.now())
    assert all(abs(row["due_at"] - midnight) < timedelta(seconds=1) for row in rows)
    assert {row["attempts"] for row in rows} == {0}
    assert detail == {"reason": "warm_up", "until": clock.iso(next_midnight(clock.now()))}
    assert await here.steps(held[0]) == ["accepted", "queued"]


async def test_a_message_that_waited_for_something_else_before_says_that_it_waits_for_warm_up_now(
    here: World, server: Witness
) -> None:
    await warming(here, 1, began_days_ago=-1)
    message = await here.send("ann@c0.test")
    await here.pool.execute("UPDATE queue SET waiting = 'site_window' WHERE message_id = $1", message)
    await here.mta(source_ips=ONE)
    await until_waiting(here, 1)

    assert dict(await here.waybill(message))["queued"]["reason"] == "warm_up"


async def test_each_provider_has_an_allowance_of_its_own(here: World, server: Witness) -> None:
    here.domain("other.test", SERVER)
    await warming(here, 3)
    await here.send_many(12, lambda n: f"reader{n}@{'c0' if n % 2 else 'other'}.test")
    await here.mta(source_ips=ONE)
    await until_waiting(here, 6)

    assert await used(here) == {SITE: 3, "mx.other.test": 3}


async def test_a_provider_of_many_servers_has_one_allowance(here: World, server: Witness) -> None:
    await set_rule(here.pool, "big.test", {"together": True}, "a test")
    for number in range(3):
        here.domain(f"b{number}.test", SERVER, mx=f"mx{number}.big.test")
    await warming(here, 4)
    await here.send_many(9, lambda n: f"reader{n}@b{n % 3}.test")
    await here.mta(source_ips=ONE)
    await until_waiting(here, 5)

    assert await used(here) == {"big.test/*": 4}
    assert server.count == 4


async def test_overflow_goes_to_another_address_of_the_pool_that_is_warm(here: World, server: Witness) -> None:
    await warming(here, 2)
    accounts = [await make_account(here.pool) for _ in range(20)]
    for account in accounts:  # whatever address each of them has first: with so many, A is that of some
        for number in range(2):
            await here.send(f"reader{number}@c0.test", account=account)
    await here.mta(source_ips=BOTH)
    await here.until_idle()

    assert server.by_source == {A: 2, B: 38}
    assert await used(here) == {SITE: 2}


async def test_overflow_stays_in_its_pool(here: World, server: Witness) -> None:
    await sources_store.set_pool(here.pool, "new", (PoolMember(A),))
    await sources_store.assign(here.pool, Assignment("*", None, "new"))
    await warming(here, 2)
    await here.send_many(5, lambda n: f"reader{n}@c0.test")
    await here.mta(source_ips=BOTH)
    await until_waiting(here, 3)

    assert server.by_source == {A: 2}


async def test_an_address_whose_first_day_has_not_come_sends_nothing(here: World, server: Witness) -> None:
    await warming(here, 100, began_days_ago=-1)
    await here.send("ann@c0.test")
    await here.mta(source_ips=ONE)
    await until_waiting(here, 1)

    assert server.count == 0


async def test_after_its_last_day_an_address_is_warm_and_nothing_is_counted(here: World, server: Witness) -> None:
    await warming(here, 1, 2, began_days_ago=2)
    await here.send_many(10, lambda n: f"reader{n}@c0.test")
    await here.mta(source_ips=ONE)
    await here.until_idle()

    assert server.count == 10
    assert await used(here) == {}


async def test_room_goes_to_codes_and_transactional_mail_before_other_streams(here: World) -> None:
    await here.pool.execute("INSERT INTO streams (account_id, slug, name) VALUES ($1, 'news', 'News')", here.account.id)
    await warming(here, 3)
    news = [await here.send(f"news{number}@c0.test", stream="news") for number in range(5)]
    plain = [await here.send(f"plain{number}@c0.test") for number in range(3)]
    rows = await queue.load(here.pool, [(message, "c0.test") for message in (*news, *plain)])
    rows.sort(key=lambda row: row.message_id)
    unspent = UnspentQuota()
    chosen = SourceAddresses(msgspec.structs.replace(here.settings, source_ips=ONE), here.pool, unspent)
    sharing = await chosen.share_out([ActiveDelivery(row, 0.0) for row in rows], "4", SITE)
    [(source, mail)] = sharing.shares

    assert source is not None
    assert source.ip == A
    assert {one.row.message_id for one in mail} == set(plain)
    assert {one.row.message_id for one in sharing.waiting} == set(news)
    for one in mail:
        unspent.add(one)
    await chosen.close()
    assert await used(here) == {SITE: 0}


# -- exactness ---------------------------------------------------------------------------------


async def test_many_askers_at_once_never_get_more_than_there_is(here: World) -> None:
    pool = await open_pool(str(here.settings.database_url), name="askers", largest=8)
    one = Taken(clock.now().date(), "192.0.2.1", SITE)
    got = await asyncio.gather(*[sources_store.reserve(pool, one, 7, 100) for _ in range(40)])
    assert sum(got) == 100
    await sources_store.give_back(pool, [(one, 10)])
    assert await sources_store.reserve(pool, one, 50, 100) == 10
    assert await sources_store.reserve(pool, one, 50, 120) == 20
    assert await sources_store.reserve(pool, one, 50, 60) == 0  # a smaller plan takes nothing back
    await pool.close()


async def test_two_processes_send_exactly_the_allowance(here: World, server: Witness, tmp_path: Path) -> None:
    await warming(here, 40)
    async with (
        process(here, tmp_path, name="mta-1", source_ips=ONE),
        process(here, tmp_path, name="mta-2", source_ips=ONE),
    ):
        await owned_by(here, 2)
        await here.send_many(100, lambda n: f"reader{n}@c{n % 40}.test")
        await until_waiting(here, 60)

    assert server.count == 40
    assert await used(here) == {SITE: 40}
    assert len(await waiting(here)) == 60


async def owned_by(here: World, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await here.pool.fetchval("SELECT count(DISTINCT owner) FROM shard_owners") != count:
            await asyncio.sleep(0.1)


@pytest.mark.exhaustive
async def test_a_restart_keeps_the_count(here: World, server: Witness, tmp_path: Path) -> None:
    await warming(here, 8)
    async with process(here, tmp_path, name="mta-1", source_ips=ONE, lease_s=BRIEF_LEASE_S) as mta:
        first = await here.send_many(5, lambda n: f"reader{n}@c0.test")
        for message in first:
            await here.until_step(message, "delivered")
        mta.send(signal.SIGKILL)
        await mta.ended()
    async with process(here, tmp_path, name="mta-2", source_ips=ONE, lease_s=BRIEF_LEASE_S):
        await here.send_many(6, lambda n: f"later{n}@c0.test")
        await until_waiting(here, 3)

    assert server.count == 8
    assert await used(here) == {SITE: 8}


async def test_what_was_taken_and_not_tried_is_given_back(here: World, server: Witness) -> None:
    await warming(here, 10)
    message = await here.send("ann@dead.test")
    mta = await here.mta(source_ips=ONE, retry_ladder_s=(60.0,))
    await here.until_step(message, "deferred")
    await here.until_idle()  # the event is stored before the delivery leaves memory
    await mta.outbound.sources.tend()

    assert await used(here) == {"mx.dead.test": 0}


async def test_a_drain_gives_back_what_waits_in_hand(here: World, server: Witness) -> None:
    await warming(here, 50)
    await set_rule(here.pool, SITE, {"connections": 1}, "a test")
    server.script(".", delay_s=0.2)
    await here.send_many(30, lambda n: f"reader{n}@c0.test")
    mta = await here.mta(source_ips=ONE)
    await here.until(lambda: server.count >= 3)
    await mta.stop()
    here.mtas.clear()

    assert server.count < 30
    assert await used(here) == {SITE: server.count}


@pytest.mark.exhaustive
async def test_a_process_that_hands_its_shards_over_leaves_the_next_one_the_room_it_had_taken(
    here: World, server: Witness
) -> None:
    await warming(here, 30)
    await set_rule(here.pool, SITE, {"connections": 1}, "a test")
    server.script(".", delay_s=0.05)
    await here.send_many(30, lambda n: f"reader{n}@c{n}.test")
    first = await here.mta("mta-1", source_ips=ONE)
    await here.until(lambda: server.count >= 2)
    second = await here.mta("mta-2", source_ips=ONE)
    await here.until(lambda: len(first.member.owned) == len(second.member.owned) == 8)
    await here.until_idle()

    assert server.count == 30
    assert await used(here) == {SITE: 30}
    assert await waiting(here) == []


# -- what waits --------------------------------------------------------------------------------


@pytest.mark.exhaustive
async def test_a_message_whose_time_ends_before_there_is_room_is_rejected_then_and_not_before(
    here: World, server: Witness
) -> None:
    await warming(here, 1, began_days_ago=-1)
    ends = clock.now() + timedelta(seconds=4)
    message = await here.send("ann@c0.test", deliverBy=clock.iso(ends))
    await here.mta(source_ips=ONE)
    await asyncio.sleep(1.0)
    assert await here.status(message) in ("queued", "sending")
    await here.until_step(message, "rejected")
    detail = dict(await here.waybill(message))["rejected"]

    assert server.count == 0
    assert detail["reason"] == "deliver_by_passed"
    assert clock.now() >= ends
    assert await here.suppressed() == []


async def test_a_larger_plan_lets_what_waits_go_at_once(
    here: World, server: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops_sources, "WAKE_S", 0.5)
    await warming(here, 2)
    messages = await here.send_many(6, lambda n: f"reader{n}@c0.test")
    await here.mta(source_ips=ONE)
    await until_waiting(here, 4)
    await ops_sources.warm_up(here.pool, A, clock.now().date(), [5])
    await here.until(lambda: server.count == 5)
    await ops_sources.end_warm_up(here.pool, A)
    for message in messages:
        await here.until_step(message, "delivered")

    assert server.count == 6
    assert (await attempted(here, messages[0]))["source_ip"] == A


async def test_the_operator_sees_todays_counts_against_the_allowance(here: World, server: Witness) -> None:
    await warming(here, 3, 9, began_days_ago=1)
    await here.send_many(4, lambda n: f"reader{n}@c0.test")
    await here.mta(source_ips=ONE)
    await here.until_idle()
    shown = await ops_sources.details(here.pool, here.settings, A)

    assert shown["warmUp"] == "day 2 of 2: 9 to each provider"
    assert (shown["allowed"], shown["plan"]) == (9, [3, 9])
    assert shown["today"] == [{"site": SITE, "sent": 4, "allowed": 9}]
