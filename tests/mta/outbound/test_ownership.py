"""Several mta processes and lost stores: only the owner of a shard sends, and no mail is left."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from engine.delivery import queue
from engine.delivery.partition import shard_of
from engine.delivery.queue import Row
from engine.store.caches import bump
from mta.outbound import deliver
from tests.harness.outbound import BRIEF_LEASE_S, Mta, World
from tests.harness.patience import PATIENCE_S

SLOW_S = 5.0


def copies(here: World) -> list[str]:
    """Who received something, sorted, as often as it came."""
    return sorted(address for one in here.sink.messages for address in one.recipients)


def readers(count: int, domains: int = 20) -> list[str]:
    return sorted(f"reader{number}@d{number % domains}.test" for number in range(count))


async def mail_for(here: World, count: int, domains: int = 20) -> None:
    """Domains d0 … and a message to each of `readers(count)`."""
    for number in range(domains):
        here.domain(f"d{number}.test")
    await here.send_many(count, lambda number: f"reader{number}@d{number % domains}.test")


async def owns(here: World, mta: Mta, count: int, timeout_s: float = PATIENCE_S) -> None:
    await here.until(lambda: len(mta.member.owned) == count, timeout_s)


# -- fences ------------------------------------------------------------------------------------


async def test_a_fenced_engine_writes_no_content(here: World) -> None:
    answer_s = 5.0  # longer than a busy machine takes to notice the fence
    here.sink.script("RCPT", delay_s=answer_s, times=1)
    message = await here.send("ann@peer.test")
    mta = await here.mta(reply_timeout_s=PATIENCE_S)
    await here.until(lambda: any(line.startswith("RCPT") for line in here.sink.commands))
    asked = time.monotonic()
    before = mta.member.id
    await here.pool.execute("DELETE FROM shard_members")
    await here.pool.execute("UPDATE shard_owners SET owner = NULL")
    await here.until(lambda: mta.member.id != before)
    await asyncio.sleep(asked + answer_s - time.monotonic())  # then the answer to RCPT comes, and the leave to send

    await here.until_idle()
    assert here.sink.connections == 2
    assert copies(here) == ["ann@peer.test"]
    assert await here.steps(message) == ["accepted", "attempted", "delivered"]


async def test_rows_that_were_loaded_before_a_fence_are_not_taken_after_it(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the engine has the shard again: another owner may have delivered them."""
    await here.send("ann@peer.test")
    late: list[str] = []
    fenced = asyncio.Event()

    def slow(load: Callable[..., Awaitable[list[Row]]]) -> Callable[..., Awaitable[list[Row]]]:
        async def loaded(*wanted: Any) -> list[Row]:
            rows = await load(*wanted)
            if rows and not late:
                late.append(rows[0].domain)
                before = mta.member.id
                await here.pool.execute("DELETE FROM queue")  # delivered by another owner
                await here.pool.execute("DELETE FROM shard_members")
                await here.pool.execute("UPDATE shard_owners SET owner = NULL")
                await here.until(lambda: mta.member.id != before and rows[0].shard in mta.ownership.shards)
                fenced.set()
            elif rows:  # loaded at the same time
                await fenced.wait()
            return rows

        return loaded

    monkeypatch.setattr(queue, "load", slow(queue.load))
    monkeypatch.setattr(queue, "load_hinted", slow(queue.load_hinted))
    mta = await here.mta()
    await asyncio.wait_for(fenced.wait(), PATIENCE_S)
    await here.send("bob@peer.test")
    await here.until(lambda: here.sink.count > 0)
    await here.until_idle()

    assert copies(here) == ["bob@peer.test"]


async def test_what_a_fenced_engine_had_delivered_is_not_settled_by_it(here: World) -> None:
    """The one window for a second copy: fenced between the final dot and the commit."""
    here.sink.script(".", delay_s=2.0, times=1)
    message = await here.send("ann@peer.test")
    mta = await here.mta()
    await here.until(lambda: any(line.startswith("DATA") for line in here.sink.commands))
    before = mta.member.id
    await here.pool.execute("DELETE FROM shard_members")
    await here.until(lambda: mta.member.id != before)
    await here.until_idle()

    steps = await here.steps(message)
    assert steps.count("delivered") == 1
    assert steps.count("attempted") == 1
    assert len(copies(here)) <= 2
    assert len({one.content.partition(b"Message-ID:")[2].splitlines()[0] for one in here.sink.messages}) == 1


async def test_mail_waits_while_the_lease_has_lapsed_and_the_connection_stays(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "IDLE_S", PATIENCE_S)  # a busy machine may pause for longer than a connection waits
    mta = await here.mta()
    await here.send("ann@peer.test")
    await here.until_idle()
    mta.ownership.end_lease()  # until the next heartbeat renews it
    await here.send("bob@peer.test")
    await here.until_idle()

    assert copies(here) == ["ann@peer.test", "bob@peer.test"]
    assert here.sink.connections == 1


# -- hand-over ---------------------------------------------------------------------------------


@pytest.mark.exhaustive
async def test_a_second_engine_gets_its_half_under_load_and_nothing_is_lost_or_doubled(here: World) -> None:
    here.sink.script(".", delay_s=0.01)
    await mail_for(here, 150)
    first = await here.mta("mta-1", site_connections=1)
    await here.until(lambda: here.sink.count > 10)
    second = await here.mta("mta-2", site_connections=1)
    for number in range(150, 300):
        await here.send(f"reader{number}@d{number % 20}.test")
    await owns(here, second, 8)
    await here.until_idle()

    assert len(first.member.owned) == 8
    assert copies(here) == readers(300)


async def test_an_engine_that_drains_leaves_everything_to_the_other_at_once(here: World) -> None:
    here.sink.script(".", delay_s=0.02)
    await mail_for(here, 200)
    first = await here.mta("mta-1", site_connections=1)
    second = await here.mta("mta-2", site_connections=1)
    await owns(here, second, 8)
    await first.stop()
    here.mtas.remove(first)
    await owns(here, second, 16)
    await here.until_idle()

    assert copies(here) == readers(200)


@pytest.mark.exhaustive
async def test_the_shards_of_a_dead_engine_are_taken_over_when_its_lease_has_run_out(here: World) -> None:
    here.sink.script(".", delay_s=0.02)
    await mail_for(here, 200)
    first = await here.mta("mta-1", site_connections=1, lease_s=BRIEF_LEASE_S)
    second = await here.mta("mta-2", site_connections=1, lease_s=BRIEF_LEASE_S)
    await owns(here, second, 8)
    await first.crash()
    here.mtas.remove(first)
    await owns(here, second, 16)
    await here.until_idle()

    assert set(copies(here)) == set(readers(200))
    assert len(copies(here)) - 200 <= 20  # what was on the wire: one connection a site


async def test_engines_that_come_and_go_lose_and_double_nothing(here: World) -> None:
    here.sink.script(".", delay_s=0.01)
    await mail_for(here, 200)
    for number in range(4):
        mta = await here.mta(f"mta-{number}", site_connections=2)
        await asyncio.sleep(0.7)
        if number % 2:
            await mta.stop()
            here.mtas.remove(mta)
    await here.until_idle()

    assert copies(here) == readers(200)


async def test_a_slow_site_does_not_hold_up_the_hand_over_of_other_shards(here: World) -> None:
    here.sink.script("RCPT TO:<stuck", delay_s=SLOW_S)
    names = [f"d{number}.test" for number in range(60)]
    for name in names:
        here.domain(name)
    first = await here.mta("mta-1", lease_s=BRIEF_LEASE_S)
    await owns(here, first, 16)
    for number in range(0, 60, 4):
        await here.send(f"stuck{number}@{names[number]}")
    await here.until(lambda: first.outbound.in_hand >= 10)
    second = await here.mta("mta-2", lease_s=BRIEF_LEASE_S)
    await asyncio.sleep(BRIEF_LEASE_S)
    held = {shard_of(name, 16) for name in names[::4]}
    free = [name for name in names if shard_of(name, 16) not in held]
    messages = [await here.send(f"bystander@{name}") for name in free]
    for message in messages:
        await here.until_step(message, "delivered")
    assert second.member.owned or not free


# -- stores that go away -----------------------------------------------------------------------


@contextlib.asynccontextmanager
async def locked(here: World, table: str) -> AsyncIterator[None]:
    """Nobody else gets at this table meanwhile."""
    async with here.pool.acquire() as holder, holder.transaction():
        await holder.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


async def cut_off_those_who_wait_for(here: World, table: str) -> None:
    """End the sessions that wait for a lock on this table, as a crash of Postgres would."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            rows = await here.pool.fetch(
                "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
                " WHERE NOT l.granted AND d.datname = current_database() AND l.relation = $1::text::regclass",
                table,
            )
            if rows:
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("table", ["suppressions", "queue", "domain_keys"])
async def test_mail_in_hand_when_postgres_fails_is_delivered_afterwards(here: World, table: str) -> None:
    messages = await here.send_many(10, lambda number: f"reader{number}@peer.test")
    async with locked(here, table):
        await here.mta()
        await cut_off_those_who_wait_for(here, table)
    await here.until_idle()

    for message in messages:
        assert await here.status(message) == "delivered"
    assert here.sink.count == 10


async def test_results_wait_for_postgres_and_are_written_once(here: World) -> None:
    messages = await here.send_many(10, lambda number: f"reader{number}@peer.test")
    async with locked(here, "account_heads"):
        await here.mta()
        await here.until(lambda: here.sink.count == 10)
        for _ in range(3):
            await cut_off_those_who_wait_for(here, "account_heads")
    await here.until_idle()

    for message in messages:
        assert await here.steps(message) == ["accepted", "attempted", "delivered"]
    assert here.sink.count == 10


async def test_mail_of_a_domain_without_keys_is_rejected_and_says_so(here: World) -> None:
    message = await here.send("ann@peer.test")
    async with here.pool.acquire() as connection, connection.transaction():
        await connection.execute("DELETE FROM domains WHERE account_id = $1", here.account.id)
        await bump(connection, "domains")
    await here.mta()
    await here.until_step(message, "rejected")

    assert here.sink.count == 0
    detail = dict(await here.waybill(message))["rejected"]
    assert detail["reason"] == "domain_removed"
    assert "signing key" in detail["diagnostic"]
