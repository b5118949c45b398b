"""Release of scheduled messages: repeated checks, races, and killed workers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.delivery import queue
from engine.sending import release as release_flow
from engine.sending.cancel_schedule import cancel_schedule
from engine.sending.release import release_due
from engine.sending.reschedule import reschedule
from engine.store.database_errors import DatabaseUnavailable
from tests.harness.accounts import PEPPER, TestAccount, make_account, set_status
from tests.harness.schedules import comes_due, release, releaser, scheduled, standing, waits, waybill, within
from tests.harness.sending import Process, head_of, message_id, process, refused, rows_of, suppress

NewDatabase = Callable[[], Awaitable[str]]
ROUNDS = 100


@pytest.fixture(scope="module")
async def own(settings: Settings, lasting_database: NewDatabase) -> Settings:
    """A database whose schedule is these tests' alone: a release takes what is due, whoever it belongs to."""
    return replace(settings, database_url=await lasting_database())


@pytest.fixture(scope="module")
async def door(own: Settings) -> AsyncIterator[Process]:
    """One accepting process."""
    async with process(own) as one:
        yield one


@pytest.fixture(autouse=True)
async def empty_schedule(door: Process) -> None:
    """What an earlier test left waiting would fall due in the midst of a later one."""
    await door.pool.execute("DELETE FROM schedules")


@pytest.fixture
async def account(door: Process) -> TestAccount:
    return await make_account(door.pool)


async def counts(pool: asyncpg.Pool, account: TestAccount) -> tuple[int, int, int]:
    """Sent today, sent this month, waiting."""
    head = await head_of(pool, account)
    return head["sent_today"], head["sent_this_month"], head["scheduled"]


# -- waiting ----------------------------------------------------------------------------------


async def test_a_scheduled_message_waits_and_is_not_counted(door: Process, account: TestAccount) -> None:
    message = await scheduled(door, account, to=["ann@one.test", "bob@two.test"])

    assert await standing(door.pool, message) == ("scheduled", ["scheduled", "scheduled"], 0)
    assert await counts(door.pool, account) == (0, 0, 1)
    assert await waits(door.pool, message) is not None


async def test_nothing_is_released_before_its_time(door: Process, account: TestAccount, own: Settings) -> None:
    message = await scheduled(door, account, scheduledAt=within(seconds=90))

    assert await release(door.pool, own) == 0
    assert (await standing(door.pool, message))[0] == "scheduled"


async def test_a_released_message_is_accepted_queued_and_counted(
    door: Process, account: TestAccount, own: Settings
) -> None:
    message = await scheduled(door, account, to=["ann@one.test", "bob@two.test"], deliverBy=within(hours=22))
    due = await comes_due(door.pool, message)
    before = clock.now()

    assert await release(door.pool, own) == 1

    assert await standing(door.pool, message) == ("queued", ["queued", "queued"], 2)
    assert await counts(door.pool, account) == (1, 1, 0)
    assert await waits(door.pool, message) is None
    kinds = await waybill(door.pool, message)
    assert [kind for kind, _ in kinds] == ["scheduled", "accepted"]
    assert kinds[1][1] == {"scheduled": True, "scheduled_at": clock.iso(due)}
    for row in await rows_of(door.pool, message):
        assert before <= row.due_at <= clock.now()  # no hint tells of it: it falls due at once
        assert before <= row.accepted_at <= clock.now()
        assert row.deliver_by is not None
        assert row.total == 2


async def test_retries_of_a_released_message_count_from_its_release(
    door: Process, account: TestAccount, own: Settings
) -> None:
    message = await scheduled(door, account)
    old = ids.uuid7(clock.milliseconds(clock.now() - timedelta(days=3)))
    assert queue.Row(old, "d", 0, account.id, "d", "[]", 1, clock.now(), 0, None, None, None, False).accepted_at < (
        clock.now() - timedelta(days=2)
    )
    await comes_due(door.pool, message)
    await release(door.pool, own)
    await door.pool.execute("UPDATE queue SET accepted_at = '2026-01-01Z' WHERE message_id = $1", message)

    [row] = await rows_of(door.pool, message)
    assert row.accepted_at == datetime(2026, 1, 1, tzinfo=UTC)


async def test_an_immediate_message_counts_from_its_id_and_keeps_its_deliver_by(
    door: Process, account: TestAccount
) -> None:
    end = clock.now() + timedelta(minutes=10)
    message = message_id(await door.send(account, deliverBy=clock.iso(end)))

    [row] = await rows_of(door.pool, message)
    assert (row.released_at, row.deliver_by) == (None, end)
    assert abs(row.accepted_at - clock.now()) < timedelta(seconds=5)


async def test_a_late_worker_still_releases_what_is_long_due(
    door: Process, account: TestAccount, own: Settings
) -> None:
    """The grace is for quota; a worker that was away is no reason to refuse."""
    message = await scheduled(door, account)
    await comes_due(door.pool, message, ago=timedelta(hours=9))

    await release(door.pool, own)

    assert (await standing(door.pool, message))[0] == "queued"


# -- decided again ----------------------------------------------------------------------------


async def failed(pool: asyncpg.Pool, message: object) -> dict[str, object]:
    """The detail of the one `schedule_failed` that must be the end of the waybill."""
    assert isinstance(message, type(ids.uuid7()))
    kinds = await waybill(pool, message)
    assert [kind for kind, _ in kinds] == ["scheduled", "schedule_failed"]
    status, recipients, pending = await standing(pool, message)
    assert (status, set(recipients), pending) == ("rejected", {"rejected"}, 0)
    assert await waits(pool, message) is None
    detail = kinds[1][1]
    clock.parse_iso(detail.pop("scheduled_at"))
    return detail


async def test_a_domain_that_is_not_verified_any_more_fails_at_once(
    door: Process, account: TestAccount, own: Settings
) -> None:
    message, gone = await scheduled(door, account), await make_account(door.pool)
    other = await scheduled(door, gone)
    await door.pool.execute("UPDATE domains SET status = 'failed' WHERE account_id = $1", account.id)
    await door.pool.execute(
        "WITH key AS (DELETE FROM domain_keys WHERE domain_id IN (SELECT id FROM domains WHERE account_id = $1)) "
        "DELETE FROM domains WHERE account_id = $1",
        gone.id,
    )
    await comes_due(door.pool, message, other)

    assert await release(door.pool, own) == 2

    assert await failed(door.pool, message) == {"reason": "domain_not_verified", "domain": account.domain}
    assert await failed(door.pool, other) == {"reason": "domain_not_verified", "domain": gone.domain}
    assert await counts(door.pool, account) == (0, 0, 0)


@pytest.mark.parametrize("status", ["suspended", "closing"])
async def test_an_account_that_is_not_active_sends_nothing(door: Process, own: Settings, status: str) -> None:
    account = await make_account(door.pool)
    message = await scheduled(door, account)
    await set_status(door.pool, account.id, status)
    await comes_due(door.pool, message)

    await release(door.pool, own)

    assert await failed(door.pool, message) == {"reason": f"account_{status}"}


async def test_a_recipient_suppressed_meanwhile_rejects_the_whole(
    door: Process, account: TestAccount, own: Settings
) -> None:
    message = await scheduled(door, account, to=["ann@people.test"], bcc=["GONE@people.test"])
    await suppress(door.pool, account, "gone@people.test")
    await comes_due(door.pool, message)

    await release(door.pool, own)

    kinds = await waybill(door.pool, message)
    assert [kind for kind, _ in kinds] == ["scheduled", "suppressed"]
    assert kinds[1][1] == {"address": "GONE@people.test", "reason": "bounce", "phase": "scheduled_release"}
    assert await standing(door.pool, message) == ("rejected", ["rejected", "rejected"], 0)
    assert await counts(door.pool, account) == (0, 0, 0)


async def test_quota_is_waited_for_by_the_minute_and_then_refused(door: Process, own: Settings) -> None:
    account = await make_account(door.pool, daily_cap=1)
    message = await scheduled(door, account)
    await door.send(account)
    due = await comes_due(door.pool, message)

    assert await release(door.pool, own) == 0
    place = await waits(door.pool, message)
    assert place is not None
    assert timedelta(seconds=59) < place["look_at"] - clock.now() <= timedelta(seconds=60)
    assert [kind for kind, _ in await waybill(door.pool, message)] == ["scheduled"]

    nearly = timedelta(seconds=own.schedule_grace_s - 20)
    due = await comes_due(door.pool, message, ago=nearly)
    assert await release(door.pool, own) == 0
    place = await waits(door.pool, message)
    assert place is not None
    assert place["look_at"] == due + timedelta(seconds=own.schedule_grace_s)  # its last chance

    await comes_due(door.pool, message, ago=timedelta(seconds=own.schedule_grace_s))
    assert await release(door.pool, own) == 1
    assert await failed(door.pool, message) == {"reason": "daily_limit_reached", "limit": 1, "sent_today": 1}
    assert await counts(door.pool, account) == (1, 1, 0)


async def test_quota_that_comes_within_the_grace_releases(door: Process, own: Settings) -> None:
    account = await make_account(door.pool, daily_cap=1)
    message = await scheduled(door, account)
    await door.send(account)
    await comes_due(door.pool, message)
    await release(door.pool, own)
    await door.pool.execute("UPDATE accounts SET daily_cap = 2 WHERE id = $1", account.id)
    await comes_due(door.pool, message, ago=timedelta(minutes=5))

    assert await release(door.pool, own) == 1

    assert (await standing(door.pool, message))[0] == "queued"
    assert await counts(door.pool, account) == (2, 2, 0)


async def test_a_used_month_is_told_with_its_numbers(door: Process, own: Settings) -> None:
    account = await make_account(door.pool, monthly_cap=2)
    messages = [await scheduled(door, account) for _ in range(2)]
    await door.send(account)
    await comes_due(door.pool, *messages, ago=timedelta(hours=2))

    assert await release(door.pool, own) == 2

    first, second = sorted(messages)
    assert (await standing(door.pool, first))[0] == "queued"
    assert await failed(door.pool, second) == {
        "reason": "monthly_limit_reached", "limit": 2, "sent_this_month": 2,
    }  # fmt: skip


async def test_the_platforms_ceiling_holds_a_release_up_and_shows_no_numbers(
    settings: Settings, new_database: NewDatabase
) -> None:
    own = replace(settings, database_url=await new_database(), platform_daily_ceiling=3)
    async with process(own) as door:
        account = await make_account(door.pool)
        messages = [await scheduled(door, account) for _ in range(5)]
        await comes_due(door.pool, *messages)
        assert await release(door.pool, own) == 3
        assert await door.pool.fetchval("SELECT leased FROM platform_days") == 3
        assert await counts(door.pool, account) == (3, 3, 2)
        left = sorted(messages)[3:]
        assert [(await standing(door.pool, one))[0] for one in left] == ["scheduled"] * 2

        await comes_due(door.pool, *left, ago=timedelta(hours=2))
        assert await release(door.pool, own) == 2
        assert await failed(door.pool, left[0]) == {"reason": "platform_paused"}


async def test_a_release_takes_no_more_of_the_ceiling_than_it_used(
    settings: Settings, new_database: NewDatabase
) -> None:
    own = replace(settings, database_url=await new_database())
    async with process(own) as door:
        account = await make_account(door.pool)
        messages = [await scheduled(door, account) for _ in range(2)]
        await comes_due(door.pool, *messages)
        await release(door.pool, own)

        assert await door.pool.fetchval("SELECT leased FROM platform_days") == 2


async def test_a_message_past_its_deliver_by_is_not_sent(door: Process, account: TestAccount, own: Settings) -> None:
    message = await scheduled(door, account, deliverBy=within(hours=21))
    await comes_due(door.pool, message, ago=timedelta(minutes=20))
    end = clock.now() - timedelta(minutes=1)
    await door.pool.execute("UPDATE schedules SET deliver_by = $2 WHERE message_id = $1", message, end)

    await release(door.pool, own)

    assert await failed(door.pool, message) == {"reason": "deliver_by_passed", "deliver_by": clock.iso(end)}
    assert await counts(door.pool, account) == (0, 0, 0)


async def test_a_wait_for_quota_ends_with_deliver_by(door: Process, own: Settings) -> None:
    account = await make_account(door.pool, daily_cap=1)
    message = await scheduled(door, account, deliverBy=within(hours=21))
    await door.send(account)
    await comes_due(door.pool, message)
    end = clock.now() + timedelta(seconds=20)
    await door.pool.execute("UPDATE schedules SET deliver_by = $2 WHERE message_id = $1", message, end)

    await release(door.pool, own)

    place = await waits(door.pool, message)
    assert place is not None
    assert place["look_at"] == end


async def test_the_more_wait_for_quota_the_less_often_each_is_looked_at(door: Process, own: Settings) -> None:
    account = await make_account(door.pool, daily_cap=1)
    message = await scheduled(door, account)
    await door.send(account)
    await door.pool.execute("UPDATE account_heads SET scheduled = 600000 WHERE account_id = $1", account.id)
    await comes_due(door.pool, message)

    await release(door.pool, own)

    place = await waits(door.pool, message)
    assert place is not None
    assert timedelta(minutes=9) < place["look_at"] - clock.now() <= timedelta(minutes=10)


async def test_a_release_turns_the_day_as_a_send_does(door: Process, own: Settings) -> None:
    account = await make_account(door.pool, daily_cap=None)
    message = await scheduled(door, account)
    yesterday = clock.now().date() - timedelta(days=1)
    await door.pool.execute(
        "UPDATE account_heads SET rung = 1, day = $2, sent_today = 200 WHERE account_id = $1", account.id, yesterday
    )
    await comes_due(door.pool, message)

    await release(door.pool, own)

    head = await head_of(door.pool, account)
    assert (head["rung"], head["sent_today"], head["day"]) == (2, 1, clock.now().date())


# -- many -------------------------------------------------------------------------------------


async def test_many_are_released_in_order_of_their_time(door: Process, own: Settings) -> None:
    account = await make_account(door.pool, daily_cap=250)
    messages = await asyncio.gather(*[scheduled(door, account) for _ in range(300)])
    for place, message in enumerate(messages):  # the last scheduled is due first
        await comes_due(door.pool, message, ago=timedelta(hours=2, seconds=place))

    assert await release(door.pool, own) == 300

    found = [(await standing(door.pool, message))[0] for message in messages]
    assert found == ["rejected"] * 50 + ["queued"] * 250
    assert await counts(door.pool, account) == (250, 250, 0)


async def test_an_account_with_a_backlog_keeps_nobody_waiting(
    settings: Settings, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = replace(settings, database_url=await new_database())
    async with process(own) as door:
        busy, other = await make_account(door.pool), await make_account(door.pool)
        many = await asyncio.gather(*[scheduled(door, busy) for _ in range(500)])
        one = await scheduled(door, other)
        await comes_due(door.pool, *many, ago=timedelta(minutes=5))
        await comes_due(door.pool, one)

        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(release(door.pool, own))
            before = 0
            while (await standing(door.pool, one))[0] != "queued":
                await asyncio.sleep(0.001)
            before = await door.pool.fetchval("SELECT count(*) FROM schedules WHERE account_id = $1", busy.id)
        assert work.result() == 501
        assert before > 100  # not behind all of them


async def test_two_releasers_at_once_release_each_message_once(own: Settings, door: Process) -> None:
    async with releaser(own) as one, releaser(own) as two:
        for _ in range(ROUNDS):
            account = await make_account(door.pool, daily_cap=3)
            messages = await asyncio.gather(*[scheduled(door, account) for _ in range(5)])
            await comes_due(door.pool, *messages, ago=timedelta(hours=2))

            async with asyncio.TaskGroup() as tasks:
                rounds = [tasks.create_task(release_due(pool, own)) for pool in (one, two)]

            assert sum(task.result() for task in rounds) == 5
            assert await counts(door.pool, account) == (3, 3, 0)
            kinds = await door.pool.fetch("SELECT type FROM events WHERE account_id = $1 ORDER BY seq", account.id)
            assert Counter(row["type"] for row in kinds) == {"scheduled": 5, "accepted": 3, "schedule_failed": 2}
            assert await door.pool.fetchval("SELECT count(*) FROM queue WHERE account_id = $1", account.id) == 3


@pytest.mark.parametrize(("moves", "rounds"), [(False, ROUNDS), (True, ROUNDS // 2)], ids=["cancel", "another time"])
async def test_a_change_against_release_has_one_winner(
    own: Settings, door: Process, *, moves: bool, rounds: int
) -> None:
    change, event = ("scheduled", "scheduled") if moves else ("canceled", "schedule_canceled")
    won: Counter[str] = Counter()
    async with releaser(own) as one, releaser(own) as two:
        account = await make_account(door.pool)
        for turn in range(rounds):
            message = await scheduled(door, account, to=["ann@one.test", "bob@two.test"])
            await comes_due(door.pool, message)

            async def changed(message: UUID, late_s: float) -> str:
                await asyncio.sleep(late_s)
                try:
                    if moves:
                        await reschedule(two, account.id, message, within(hours=5), give_up_s=3600, pepper=PEPPER)
                    else:
                        await cancel_schedule(two, account.id, message)
                except Refusal as refusal:
                    return f"{refusal.kind.value} {refusal.fields['state']}"
                return change

            async with asyncio.TaskGroup() as tasks:
                released = tasks.create_task(release_due(one, own))
                other = tasks.create_task(changed(message, turn % 20 * 0.0005))

            winner = other.result().replace("invalid_state queued", "released")
            won[winner] += 1
            assert released.result() == (winner == "released")
            last, status, pending = {"released": ("accepted", "queued", 2), change: (event, change, 0)}[winner]
            assert [kind for kind, _ in await waybill(door.pool, message)] == ["scheduled", last]
            assert await standing(door.pool, message) == (status, [status] * 2, pending)
    assert await counts(door.pool, account) == (won["released"], won["released"], won["scheduled"])
    assert min(won["released"], won[change]) > 0, won  # else nothing was raced


async def test_what_is_moved_while_a_release_looks_around_keeps_its_new_time(
    own: Settings, door: Process, account: TestAccount
) -> None:
    message = await scheduled(door, account)
    await comes_due(door.pool, message)
    look_around = "LIMIT $2 + (SELECT 0 FROM pg_advisory_xact_lock_shared(22))"
    query = look_around.join(release_flow.TAKE_FAIRLY.sql.split("LIMIT $2"))
    async with releaser(own) as one, releaser(own) as two, two.acquire() as mover:
        await mover.execute("SELECT pg_advisory_lock(22)")
        taking = asyncio.ensure_future(one.fetch(query, clock.now(), 10, 10))  # its snapshot is older than the move
        while not await mover.fetchval("SELECT count(*) FROM pg_locks WHERE objid = 22 AND NOT granted"):
            await asyncio.sleep(0.005)
        await reschedule(door.pool, account.id, message, within(hours=5), give_up_s=3600, pepper=PEPPER)
        await mover.execute("SELECT pg_advisory_unlock(22)")
        taken = await taking

    assert taken == []


# -- faults -----------------------------------------------------------------------------------


async def test_a_worker_killed_between_leaves_everything_as_it_was(
    own: Settings, door: Process, account: TestAccount
) -> None:
    """The backend ends as it does when its client is gone: with the head locked and nothing committed."""
    messages = await asyncio.gather(*[scheduled(door, account) for _ in range(10)])
    await comes_due(door.pool, *messages)
    async with releaser(own) as dying, door.pool.acquire() as connection:
        holding = connection.transaction()
        await holding.start()
        await connection.execute("SELECT 1 FROM account_heads WHERE account_id = $1 FOR UPDATE", account.id)
        work = asyncio.create_task(release_due(dying, own))
        while not await connection.fetchval(  # it has its rows and waits for the head
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waybill release test' "
            "AND wait_event_type = 'Lock'"
        ):
            await asyncio.sleep(0.01)
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'waybill release test'"
        )
        with pytest.raises(DatabaseUnavailable):
            await work
        await holding.rollback()

    assert {(await standing(door.pool, message))[0] for message in messages} == {"scheduled"}
    assert await release(door.pool, own) == 10
    assert await counts(door.pool, account) == (10, 10, 0)
    for message in messages:
        assert [kind for kind, _ in await waybill(door.pool, message)] == ["scheduled", "accepted"]


async def test_a_message_that_cannot_be_released_holds_nobody_up(
    own: Settings, door: Process, account: TestAccount
) -> None:
    messages = sorted(await asyncio.gather(*[scheduled(door, account) for _ in range(6)]))
    broken = messages[2]
    await door.pool.execute("UPDATE recipients SET address = 'ü' WHERE message_id = $1", broken)  # no address
    await comes_due(door.pool, *messages)

    assert await release(door.pool, own) == 5

    assert (await standing(door.pool, broken))[0] == "scheduled"
    place = await waits(door.pool, broken)
    assert place is not None
    assert place["look_at"] > clock.now() + timedelta(seconds=release_flow.BROKEN_S / 2)


async def test_what_is_lost_with_its_message_leaves_the_schedule(
    own: Settings, door: Process, account: TestAccount
) -> None:
    message, other = await scheduled(door, account), await scheduled(door, account)
    for table, column in (("messages", "id"), ("recipients", "message_id")):
        await door.pool.execute(f"DELETE FROM {table} WHERE {column} = $1", message)
    await comes_due(door.pool, message, other)

    await release(door.pool, own)

    assert await waits(door.pool, message) is None
    assert (await standing(door.pool, other))[0] == "queued"
    assert await counts(door.pool, account) == (1, 1, 0)


# -- what may wait ----------------------------------------------------------------------------


async def test_what_waits_is_bounded_by_the_months_allowance_exactly(door: Process, own: Settings) -> None:
    account = await make_account(door.pool, monthly_cap=20)
    results = list(await asyncio.gather(*[door.try_send(account, scheduledAt=within(hours=20)) for _ in range(60)]))

    assert Counter(type(one).__name__ for one in results) == {"Accepted": 20, "Refusal": 40}
    assert {
        (one.kind, one.fields["resource"], one.fields["limit"], one.fields["used"]) for one in refused(results)
    } == {(ErrorType.PLAN_LIMIT_REACHED, "scheduled_messages", 20, 20)}
    assert await counts(door.pool, account) == (0, 0, 20)
    [one, *_] = [message_id(one) for one in results if not isinstance(one, Refusal)]
    await cancel_schedule(door.pool, account.id, one)
    assert (await door.send(account, scheduledAt=within(hours=20))).status == "scheduled"
