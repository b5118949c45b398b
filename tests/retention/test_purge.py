"""Retention: the deleted rows, the kept rows, and the valid log of the rest."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, time, timedelta

import asyncpg
import pytest

from engine.accounts.billing.change_plan import change_plan
from engine.base import clock, ids
from engine.base.plans import CAPS, Plan
from engine.retention import purge
from engine.sending.statistics import rules as figures
from engine.sending.statistics import store
from engine.store.postgres import open_pool
from tests.harness import history
from tests.harness.accounts import make_account
from tests.harness.old_mail import add_keys, ago, counts, keep_longer, left, purged, wait_in

NewDatabase = Callable[[], Awaitable[str]]


@pytest.fixture
async def own(new_database: NewDatabase) -> AsyncIterator[asyncpg.Pool]:
    """A database of the test's own: a purge looks at every account, and weeks go for all of them."""
    pool = await open_pool(await new_database(), name="purge tests", largest=6)
    yield pool
    await pool.close()


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [Plan.FREE, Plan.STARTER, Plan.GROWTH])
async def test_records_are_kept_as_long_as_the_plan_says(own: asyncpg.Pool, plan: Plan) -> None:
    await keep_longer(own)
    account = await make_account(own, plan=plan.value)
    days = CAPS[plan].retention_days
    kept = await history.write(own, account, ago(days, hours=-1), ago(1))
    # Older mail, written afterwards into the same log, would be out of order: give it its own account.
    old = await make_account(own, plan=plan.value)
    await history.write(own, old, ago(days, hours=2), ago(days, hours=1))
    await history.write(own, old, ago(days, hours=-2))
    found = await purged(own)

    assert await left(own, account) == len(kept)
    assert await left(own, account, "events") == 6
    assert (found.messages, found.events) == (2, 6)
    for table, count in (("messages", 1), ("recipients", 1), ("events", 3)):
        assert await left(own, old, table) == count, table
    bodies = "SELECT count(*) FROM message_bodies b JOIN messages m ON m.id = b.message_id"
    assert await own.fetchval(bodies) == await own.fetchval("SELECT count(*) FROM message_bodies") == 3


async def test_an_agreement_keeps_records_longer_and_never_shorter(own: asyncpg.Pool) -> None:
    await keep_longer(own)
    longer, shorter = await make_account(own, plan="free"), await make_account(own, plan="starter")
    await own.execute("UPDATE accounts SET retention_days = 60 WHERE id = $1", longer.id)
    await own.execute("UPDATE accounts SET retention_days = 10 WHERE id = $1", shorter.id)
    for account in (longer, shorter):
        await history.write(own, account, ago(61), ago(50))
    await purged(own)

    assert (await left(own, longer), await left(own, shorter)) == (1, 2)


async def test_a_parents_agreement_keeps_its_sub_accounts_records(own: asyncpg.Pool) -> None:
    await keep_longer(own)
    parent, child = await make_account(own, plan="free"), await make_account(own, plan="free")
    await own.execute("UPDATE accounts SET retention_days = 60 WHERE id = $1", parent.id)
    await own.execute("UPDATE accounts SET parent_id = $1 WHERE id = $2", parent.id, child.id)
    await history.write(own, child, ago(61), ago(50))
    await purged(own)

    assert await left(own, child) == 1


async def test_a_shorter_plan_takes_effect_and_a_longer_one_too(own: asyncpg.Pool) -> None:
    await keep_longer(own)
    account = await make_account(own, plan="growth")
    await history.write(own, account, ago(100), ago(40), ago(20))
    await own.execute("UPDATE accounts SET plan = 'starter' WHERE id = $1", account.id)
    await purged(own)
    assert await left(own, account) == 2
    await own.execute("UPDATE accounts SET plan = 'scale' WHERE id = $1", account.id)
    await purged(own)
    assert await left(own, account) == 2


async def test_a_smaller_plan_keeps_the_records_for_30_days_more(own: asyncpg.Pool) -> None:
    await keep_longer(own)
    parent, child = await make_account(own, plan="growth"), await make_account(own, plan="growth")
    await own.execute("UPDATE accounts SET parent_id = $1 WHERE id = $2", parent.id, child.id)
    for account in (parent, child):
        await history.write(own, account, ago(300))
    for plan in (Plan.STARTER, Plan.FREE):  # the longest retention of the last 30 days holds
        async with own.acquire() as connection, connection.transaction():
            await change_plan(connection, parent.id, plan, clock.now(), actor="operator", is_told=False)

    assert (await purged(own)).messages == 0
    (until,) = {row["until"] for row in await own.fetch("SELECT until FROM kept_retentions")}
    assert timedelta(days=29, hours=23) < until - clock.now() <= timedelta(days=30)
    await own.execute("UPDATE kept_retentions SET until = now()")
    assert (await purged(own)).messages == 2


async def test_the_rest_of_the_log_verifies(own: asyncpg.Pool) -> None:
    await keep_longer(own)
    account = await make_account(own, plan="free")
    await history.write(own, account, *(ago(days) for days in range(60, 0, -1)))
    before = await own.fetchval("SELECT hash FROM account_heads WHERE account_id = $1", account.id)
    await purged(own)
    head = await own.fetchrow("SELECT * FROM account_heads WHERE account_id = $1", account.id)
    assert head is not None

    assert (head["seq"], head["hash"]) == (180, before)
    assert 80 < head["purged_through_seq"] < 100
    assert await history.chain_holds(own, account)
    # The log goes on where it was.
    await history.write(own, account, clock.now())
    assert await history.chain_holds(own, account)


async def test_a_log_may_go_to_its_last_event(own: asyncpg.Pool) -> None:
    await keep_longer(own)
    account = await make_account(own, plan="free")
    await history.write(own, account, ago(40))
    await purged(own)
    head = await own.fetchrow("SELECT * FROM account_heads WHERE account_id = $1", account.id)
    assert head is not None

    assert head["seq"] == head["purged_through_seq"] == 3
    assert head["hash"] == head["purged_hash"]
    assert await history.chain_holds(own, account)
    await history.write(own, account, clock.now())
    assert await history.chain_holds(own, account)


async def test_the_log_goes_from_its_beginning_only(own: asyncpg.Pool) -> None:
    """An event that a slow clock has dated too early waits for the younger ones before it."""
    await keep_longer(own)
    account = await make_account(own, plan="free")
    await history.write(own, account, ago(50))
    await history.write(own, account, ago(3))
    await history.write(own, account, ago(45))
    await purged(own)

    head = await own.fetchrow("SELECT * FROM account_heads WHERE account_id = $1", account.id)
    assert head is not None
    assert head["purged_through_seq"] == 3
    assert await left(own, account, "events") == 6
    assert await history.chain_holds(own, account)


@pytest.mark.parametrize("waiting", ["queue", "schedules"])
async def test_unsent_mail_and_its_waybill_stay(own: asyncpg.Pool, waiting: str) -> None:
    await keep_longer(own)
    account = await make_account(own, plan="free")
    await history.write(own, account, ago(50))
    (unsent,) = await history.write(own, account, ago(45), status="sending")
    await history.write(own, account, ago(40))
    await wait_in(own, waiting, unsent, account)
    await purged(own)

    assert [row["id"] for row in await own.fetch("SELECT id FROM messages WHERE account_id = $1", account.id)] == [
        unsent
    ]
    assert await own.fetchval("SELECT count(*) FROM message_bodies WHERE message_id = $1", unsent) == 1
    assert await own.fetchval("SELECT count(*) FROM recipients WHERE message_id = $1", unsent) == 1
    assert await own.fetchval("SELECT min(seq) FROM events WHERE account_id = $1", account.id) == 4
    assert await history.chain_holds(own, account)

    await own.execute(f"DELETE FROM {waiting}")
    await purged(own)
    assert (await left(own, account), await left(own, account, "events")) == (0, 0)


async def test_steps_are_bounded_and_together_take_everything(
    own: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "MAX_ROWS", 7)
    monkeypatch.setattr(purge, "MAX_KEYS", 7)
    await keep_longer(own)
    account = await make_account(own, plan="free")
    moments = [ago(40, minutes=-n) for n in range(50)]
    await history.write(own, account, *moments)
    await add_keys(own, account, moments)
    found = await purged(own)

    assert (found.messages, found.events, found.idempotency_keys) == (50, 150, 50)
    assert await history.chain_holds(own, account)


async def test_what_the_time_does_not_allow_goes_the_next_time(
    own: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep_longer(own)
    account = await make_account(own, plan="free")
    await history.write(own, account, *[ago(40)] * 20)
    first = await purge.purge(own, clock.now(), everyone=True, budget_s=-1.0)
    assert first is not None
    assert not first.finished
    assert await history.chain_holds(own, account)

    assert (await purged(own)).finished
    assert await left(own, account) == 0


async def test_idempotency_keys_go_after_a_month(own: asyncpg.Pool) -> None:
    account = await keep_longer(own)
    await add_keys(own, account, [ago(31), ago(30, hours=1), ago(29), ago(0)])

    assert (await purged(own)).idempotency_keys == 2
    assert await left(own, account, "idempotency") == 2


async def test_nobody_is_swept_twice_a_day_unless_told_to(own: asyncpg.Pool) -> None:
    await keep_longer(own)
    account = await make_account(own, plan="free")
    assert (await purged(own)).accounts == 2
    await history.write(own, account, ago(40))
    soon = await purge.purge(own, clock.now())
    later = await purge.purge(own, clock.now() + timedelta(hours=21))
    assert soon is not None
    assert later is not None

    assert (soon.accounts, soon.messages) == (0, 0)
    assert (later.accounts, later.messages) == (2, 1)


async def test_two_workers_do_not_purge_at_once(own: asyncpg.Pool) -> None:
    await keep_longer(own)
    account = await make_account(own, plan="free")
    await history.write(own, account, *[ago(40)] * 200)
    found = await asyncio.gather(*(purge.purge(own, clock.now(), everyone=True) for _ in range(4)))

    assert sum(one is not None for one in found) >= 1
    assert sum(one.messages for one in found if one is not None) == 200
    assert await history.chain_holds(own, account)
    assert (await purged(own)).messages == 0  # the right to purge was given back


async def test_a_purge_that_is_cancelled_gives_its_right_back(own: asyncpg.Pool) -> None:
    await keep_longer(own)
    account = await make_account(own, plan="free")
    await history.write(own, account, *[ago(40)] * 3_000)
    task = asyncio.create_task(purge.purge(own, clock.now(), everyone=True))
    while await left(own, account) == 3_000:
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await purged(own)
    assert (await left(own, account), await left(own, account, "events")) == (0, 0)


async def test_sending_goes_on_during_a_purge(own: asyncpg.Pool) -> None:
    await keep_longer(own)
    account = await make_account(own, plan="free")
    await history.write(own, account, *[ago(40)] * 1_500)
    task = asyncio.create_task(purge.purge(own, clock.now(), everyone=True))
    written = 0
    while not task.done():
        await history.write(own, account, clock.now())
        written += 1
    await task

    assert written >= 10  # about 150; one, if a write had to wait for the purge
    assert await history.chain_holds(own, account)


# -- figures ---------------------------------------------------------------------------------------


async def test_figures_outlive_the_records_they_were_counted_from(own: asyncpg.Pool) -> None:
    await keep_longer(own)
    account = await make_account(own, plan="free")
    await history.write(own, account, *(ago(days, minutes=minutes) for days in range(60, 0, -1) for minutes in (5, 0)))
    before = await counts(own, account, 90)
    used = await store.used(own, account.id, [ago(days).date() for days in range(60, -1, -1)])
    assert sum(before) == 120

    for _ in range(2):
        await purged(own)
        assert await left(own, account) < 70
        assert await counts(own, account, 90) == before
        assert await store.used(own, account.id, [ago(days).date() for days in range(60, -1, -1)]) == used
        # A late event of a message that is gone does not empty its quarter.
        async with own.acquire() as connection, connection.transaction():
            await history.tell(
                connection, account, [(ids.uuid7(clock.milliseconds(ago(50))), "complained", clock.now())]
            )
        assert await counts(own, account, 90) == before


async def test_figures_go_after_more_than_a_year(own: asyncpg.Pool) -> None:
    account = await keep_longer(own)
    old, kept = clock.now().date() - timedelta(days=401), clock.now().date() - timedelta(days=399)
    for day in (old, kept):
        await own.execute("INSERT INTO account_days (account_id, day) VALUES ($1, $2)", account.id, day)
        await own.execute("INSERT INTO accepted_days VALUES ($1, $2, 1)", account.id, day)
        await own.execute("INSERT INTO simulated_days (account_id, day) VALUES ($1, $2)", account.id, day)
        await own.execute("INSERT INTO platform_days (day) VALUES ($1)", day)
        quarter = figures.quarter_of(datetime.combine(day, time(12), UTC))
        await own.execute(
            "INSERT INTO message_quarters VALUES ($1, $2, 'x.test', 1, 0, 0, 1, 0, 0, 0, 0, 0, 0)", account.id, quarter
        )
    found = await purged(own)

    assert found.figures == 3
    for table in ("account_days", "accepted_days", "simulated_days", "platform_days"):
        assert [row["day"] for row in await own.fetch(f"SELECT day FROM {table}")] == [kept], table
    assert await own.fetchval("SELECT count(*) FROM message_quarters") == 1
