"""Retention of whole weeks, and what a purge looks like from outside."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, time, timedelta

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.retention import purge, purge_weeks
from engine.store import partitions
from engine.store.postgres import open_pool
from ops.processes import worker
from tests.harness import history
from tests.harness.accounts import make_account
from tests.harness.api import Api
from tests.harness.old_mail import add_keys, ago, counts, keep_longer, left, purged, wait_in

NewDatabase = Callable[[], Awaitable[str]]


@pytest.fixture
async def own(new_database: NewDatabase) -> AsyncIterator[asyncpg.Pool]:
    """A database of the test's own: a purge looks at every account, and weeks go for all of them."""
    pool = await open_pool(await new_database(), name="purge tests", largest=6)
    yield pool
    await pool.close()


async def weeks_of(pool: asyncpg.Pool, table: str) -> list[str]:
    async with pool.acquire() as connection:
        return [partitions.partition_name(table, week) for week in await partitions.weeks(connection, table)]


# -- weeks -----------------------------------------------------------------------------------------


async def test_a_week_that_nobody_keeps_is_dropped_whole(own: asyncpg.Pool) -> None:
    free, other = await make_account(own, plan="free"), await make_account(own, plan="free")
    for account in (free, other):
        await own.execute("UPDATE accounts SET created_at = now() - interval '1 year' WHERE id = $1", account.id)
        await history.write(own, account, *(ago(days) for days in range(60, 0, -1)))
    last_week = partitions.week_of(ago(31)) - partitions.WEEK
    found = await purged(own)

    for table in (*purge_weeks.MAIL, purge_weeks.LOG):
        names = await weeks_of(own, table)
        assert names[0] == partitions.partition_name(table, last_week + partitions.WEEK), table
        assert partitions.partition_name(table, last_week) in found.partitions
    assert (found.messages, found.events) == (0, 0)  # what is left of the month goes with its week
    for account in (free, other):
        assert await history.chain_holds(own, account)
        head = await own.fetchrow("SELECT * FROM account_heads WHERE account_id = $1", account.id)
        assert head is not None
        assert head["purged_through_seq"] > 60
        assert sum(await counts(own, account, 90)) == 60
        await history.write(own, account, clock.now())
        assert await history.chain_holds(own, account)


async def test_a_week_is_emptied_row_by_row_for_shorter_plans_and_then_dropped(own: asyncpg.Pool) -> None:
    await keep_longer(own)
    account = await make_account(own, plan="free")
    await history.write(own, account, *(ago(days) for days in range(60, 0, -1)))
    found = await purged(own)

    assert found.messages >= 29
    assert partitions.partition_name("messages", partitions.week_of(ago(50))) in found.partitions
    assert await history.chain_holds(own, account)


async def test_a_week_with_unsent_mail_stays_and_so_do_those_after_it(own: asyncpg.Pool) -> None:
    account = await make_account(own, plan="free")
    (unsent,) = await history.write(own, account, ago(60), status="sending")
    await wait_in(own, "queue", unsent, account)
    await history.write(own, account, ago(50), ago(1))
    found = await purged(own)

    assert not any(
        partitions.partition_name("messages", partitions.week_of(ago(days))) in found.partitions for days in (60, 50)
    )
    assert (await left(own, account), await left(own, account, "events")) == (3, 9)
    await own.execute("DELETE FROM queue")
    await purged(own)
    assert (await left(own, account), await left(own, account, "events")) == (1, 3)
    assert await history.chain_holds(own, account)


async def test_events_that_a_fast_clock_put_into_the_next_week_go_with_the_log_before_them(own: asyncpg.Pool) -> None:
    account = await make_account(own, plan="free")
    monday = datetime.combine(partitions.week_of(ago(45)), time(), UTC)
    for at in (monday - timedelta(minutes=2), monday + timedelta(minutes=1), monday - timedelta(minutes=1)):
        await history.write(own, account, at)
    await history.write(own, account, ago(1))
    # Only the first week is old enough on that day.
    await purged(own, monday + timedelta(days=31, hours=1))
    head = await own.fetchrow("SELECT * FROM account_heads WHERE account_id = $1", account.id)
    assert head is not None

    assert head["purged_through_seq"] == 9
    assert await history.chain_holds(own, account)


async def test_a_drop_does_not_wait_long_for_a_reader_and_comes_again(
    own: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge_weeks, "PAUSE_S", 0.05)
    account = await make_account(own, plan="free")
    await history.write(own, account, ago(60), ago(1))
    name = partitions.partition_name("messages", partitions.week_of(ago(60)))
    async with own.acquire() as connection, connection.transaction():
        await connection.fetch("SELECT id FROM messages")
        began = asyncio.get_running_loop().time()
        found = await purged(own)
        took = asyncio.get_running_loop().time() - began

    assert name not in found.partitions
    assert took < purge_weeks.TRIES * (purge_weeks.LOCK_WAIT_MS / 1000 + 0.3) + 30
    assert await left(own, account) == 2
    assert name in (await purged(own)).partitions
    assert await left(own, account) == 1


async def test_weeks_to_come_are_not_dropped_though_they_are_empty(own: asyncpg.Pool) -> None:
    await make_account(own, plan="free")
    before = await weeks_of(own, "messages")
    found = await purged(own)

    assert found.partitions == []
    assert await weeks_of(own, "messages") == before


# -- from outside ----------------------------------------------------------------------------------


@pytest.mark.exhaustive
async def test_a_purged_account_reads_as_whole(api: Api, pool: asyncpg.Pool) -> None:
    await keep_longer(pool)
    account = await make_account(pool, plan="free")
    gone, *_ = await history.write(pool, account, *(ago(days) for days in range(60, 0, -1)))
    before = (await api.get("/v1/stats/messages?days=90", account.token)).json
    await purged(pool)
    verdict = (await api.get("/v1/audit/verify", account.token)).json
    listed = (await api.get("/v1/messages?limit=100", account.token)).json
    missing = await api.get(f"/v1/messages/{ids.format_id(ids.Kind.MESSAGE, gone)}", account.token)

    assert (verdict["intact"], verdict["brokenAt"]) == (True, None)
    assert 80 < verdict["purgedThroughSeq"] < 100
    assert len(listed["data"]) in {29, 30}
    assert not listed["hasMore"]
    assert (missing.status, missing.error["type"]) == (404, "not_found")
    assert (await api.get("/v1/stats/messages?days=90", account.token)).json == before
    assert (await api.get("/v1/usage", account.token)).json["limit"] == 750


async def test_the_worker_counts_and_purges(own: asyncpg.Pool, settings: Settings) -> None:
    await keep_longer(own)
    account = await make_account(own, plan="free")
    await history.write(own, account, ago(40), ago(1))
    jobs = {job.name: job for job in worker.JOBS}
    for name in ("figures", "purge"):
        await jobs[name].run(own, settings)

    assert await left(own, account) == 1
    assert await own.fetchval("SELECT counted_seq FROM account_records WHERE account_id = $1", account.id) == 6


# -- the outlook -----------------------------------------------------------------------------------


async def test_the_outlook_is_what_then_goes(own: asyncpg.Pool) -> None:
    await keep_longer(own)
    account, other = await make_account(own, plan="free"), await make_account(own, plan="starter")
    moments = [ago(days) for days in range(100, 0, -1)]
    await history.write(own, account, *moments)
    await history.write(own, other, *moments)
    await add_keys(own, account, moments)
    expected = await purge.outlook(own, at := clock.now())
    found = await purged(own, at)

    assert (expected.accounts, expected.messages, expected.events, expected.idempotency_keys) == (
        found.accounts, found.messages, found.events, found.idempotency_keys,
    )  # fmt: skip
    assert found.messages > 70


async def test_the_outlook_names_the_weeks_and_changes_nothing(own: asyncpg.Pool) -> None:
    account = await make_account(own, plan="free")
    await history.write(own, account, *(ago(days) for days in range(60, 0, -1)))
    first = await purge.outlook(own, at := clock.now())

    assert await purge.outlook(own, at) == first
    assert await left(own, account) == 60
    assert partitions.partition_name("events", partitions.week_of(ago(50))) in first.partitions
    assert (await purged(own, at)).partitions == first.partitions
