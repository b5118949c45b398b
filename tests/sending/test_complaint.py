"""Complaints: recorded once; real ones suppress, simulated ones have no effect on the account."""

import asyncio
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from engine.accounts import suspend
from engine.accounts.account_deletion import close_account
from engine.accounts.suspend import Cause
from engine.base import clock, ids
from engine.base.settings import Settings
from engine.retention import erase
from engine.sending.complaint import Complaint, complain
from engine.sending.settle import Settler
from engine.sending.statistics import jobs as figures
from tests.harness.accounts import TestAccount, make_account
from tests.harness.schedules import comes_due, release, scheduled
from tests.harness.sending import (
    BOUNCED,
    DEFERRED,
    DELIVERED,
    Process,
    attempt_at,
    message_id,
    rows_of,
    suppress,
)  # fmt: skip
from tests.harness.stored_messages import day_counts, events, sent, status, statuses, suppressed

LATER = clock.now() + timedelta(minutes=5)


async def delivered(door: Process, settler: Settler, pool: asyncpg.Pool, *to: str) -> tuple[TestAccount, UUID]:
    """A message that all of them got, of an account of its own."""
    account, message = await sent(door, *to)
    for row in await rows_of(pool, message):
        assert await settler.settle(attempt_at(row, DELIVERED))
    return account, message


async def simulated(pool: asyncpg.Pool, account: TestAccount) -> tuple[int, ...] | None:
    row = await pool.fetchrow(
        "SELECT messages, settled, bounced, complained FROM simulated_days WHERE account_id = $1", account.id
    )
    return None if row is None else tuple(row)


async def test_a_complaint_is_told_and_counted_and_suppresses_for_good(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    account, message = await delivered(door, settler, pool, "Ann@people.test")
    reports = [complain(pool, message, 0, at=clock.now(), report={"source": "fbl.test"}) for _ in range(5)]
    came = await asyncio.gather(*reports)
    assert sorted(came) == [Complaint.KNOWN] * 4 + [Complaint.RECORDED]

    assert (await status(pool, message), await statuses(pool, message)) == (
        "complained", {"Ann@people.test": "complained"},
    )  # fmt: skip
    assert await day_counts(pool, account) == {"delivered": 1, "complained": 1}
    assert (await events(pool, message))[2:] == [
        ("complained", {
            "recipient": "Ann@people.test", "feedback_type": "abuse", "source": "fbl.test", "suppressed": True,
        }),
    ]  # fmt: skip
    entry = await pool.fetchrow("SELECT * FROM suppressions WHERE account_id = $1", account.id)
    assert entry is not None
    assert (entry["address"], entry["reason"], entry["message_id"]) == ("ann@people.test", "complaint", message)
    kinds = [row["type"] for row in await pool.fetch(
        "SELECT type FROM events WHERE account_id = $1 ORDER BY seq", account.id
    )]  # fmt: skip
    assert kinds == ["accepted", "attempted", "delivered", "complained", "suppression.added"]
    assert await simulated(pool, account) is None


async def test_a_simulated_complaint_is_told_and_counted_and_suppresses_nobody(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    account, message = await delivered(door, settler, pool)
    assert await complain(pool, message, 0, at=clock.now(), simulated=True) is Complaint.RECORDED
    assert await complain(pool, message, 0, at=clock.now()) is Complaint.KNOWN

    assert await status(pool, message) == "complained"
    assert await day_counts(pool, account) == {"delivered": 1, "complained": 1}
    detail = dict(await events(pool, message))["complained"]
    assert (detail["suppressed"], detail["simulated"]) == (False, True)
    assert await suppressed(pool, account) == []
    assert await simulated(pool, account) == (0, 0, 0, 1)


async def test_of_two_reasons_the_complaint_stands(door: Process, settler: Settler, pool: asyncpg.Pool) -> None:
    account, message = await delivered(door, settler, pool)
    await suppress(pool, account, "ann@people.test")
    await complain(pool, message, 0, at=clock.now())

    assert await pool.fetchval("SELECT reason FROM suppressions WHERE account_id = $1", account.id) == "complaint"


@pytest.mark.parametrize(("other", "worst"), [(DELIVERED, "complained"), (BOUNCED, "complained")])
async def test_the_message_is_complained_about_once_every_recipient_is_settled(
    door: Process, settler: Settler, pool: asyncpg.Pool, other: object, worst: str
) -> None:
    _, message = await sent(door, "ann@people.test", "bob@far.test")
    far, people = await rows_of(pool, message)
    assert await settler.settle(attempt_at(people, DELIVERED))
    assert await complain(pool, message, 1, at=clock.now()) is Complaint.EARLY
    assert await complain(pool, message, 0, at=clock.now()) is Complaint.RECORDED
    assert await status(pool, message) == "sending"

    assert await settler.settle(attempt_at(far, other))  # type: ignore[arg-type]
    assert await status(pool, message) == worst
    reached = await pool.fetchval("SELECT delivered_at FROM messages WHERE id = $1", message)
    assert (reached is not None) is (other is DELIVERED)


async def test_one_who_complains_after_another_bounced_makes_it_a_complaint(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    _, message = await sent(door, "ann@people.test", "bob@far.test")
    for row in await rows_of(pool, message):
        assert await settler.settle(attempt_at(row, DELIVERED if row.domain == "people.test" else BOUNCED))
    assert await status(pool, message) == "bounced"
    assert await complain(pool, message, 0, at=clock.now()) is Complaint.RECORDED
    assert await status(pool, message) == "complained"
    assert await complain(pool, message, 1, at=clock.now()) is Complaint.RECORDED  # who got it after all
    assert (await statuses(pool, message))["bob@far.test"] == "bounced"


async def test_a_complaint_before_the_outcome_is_on_record_is_asked_for_again(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    account, message = await sent(door)
    assert await complain(pool, message, 0, at=clock.now()) is Complaint.EARLY
    [row] = await rows_of(pool, message)
    assert await settler.settle(attempt_at(row, DEFERRED, next_at=LATER))
    assert await complain(pool, message, 0, at=clock.now()) is Complaint.EARLY

    assert await day_counts(pool, account) == {}
    assert await suppressed(pool, account) == []


async def test_about_what_is_not_or_no_longer_there_nothing_is_written(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    _, message = await delivered(door, settler, pool)
    before = await pool.fetchval("SELECT count(*) FROM events WHERE message_id = $1", message)
    for missing, place in ((ids.uuid7(), 0), (message, 1), (message, 255)):
        assert await complain(pool, missing, place, at=clock.now()) is Complaint.UNKNOWN
    assert await pool.fetchval("SELECT count(*) FROM events WHERE message_id = $1", message) == before


async def test_a_suspended_account_hears_of_complaints_too(door: Process, settler: Settler, pool: asyncpg.Pool) -> None:
    account, message = await delivered(door, settler, pool)
    came, _ = await asyncio.gather(
        complain(pool, message, 0, at=clock.now(), simulated=True),
        suspend.suspend(pool, account.id, Cause.OPERATOR, "why", actor="operator"),
    )
    assert came is Complaint.RECORDED
    assert await status(pool, message) == "complained"


async def test_a_complaint_that_meets_the_erasure_of_its_account_leaves_nothing(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    account, first = await delivered(door, settler, pool)
    messages = [first]
    for _ in range(11):
        messages.append(message_id(await door.send(account)))
        [row] = await rows_of(pool, messages[-1])
        assert await settler.settle(attempt_at(row, DELIVERED))
    await close_account.schedule(pool, account.id, actor="operator")
    await pool.execute("UPDATE deletions SET due_at = now() - interval '1 s' WHERE account_id = $1", account.id)

    async def reports() -> set[Complaint]:
        came = set()
        for message in messages:
            came.add(await complain(pool, message, 0, at=clock.now(), simulated=True))
            await asyncio.sleep(0.004)
        return came

    came, gone = await asyncio.gather(reports(), erase.erase_due(pool, clock.now(), hold_known_s=0.05))
    assert gone == [account.id]
    assert came <= {Complaint.RECORDED, Complaint.UNKNOWN}
    for table in ("events", "messages", "recipients", "simulated_days", "account_days"):
        assert not await pool.fetchval(f"SELECT count(*) FROM {table} WHERE account_id = $1", account.id), table


async def test_figures_follow_a_complaint(door: Process, settler: Settler, pool: asyncpg.Pool) -> None:
    account, message = await delivered(door, settler, pool)
    await figures.count_ahead(pool, everything=True)
    await complain(pool, message, 0, at=clock.now())
    await figures.count_ahead(pool, everything=True)

    row = await pool.fetchrow("SELECT delivered, complained FROM message_quarters WHERE account_id = $1", account.id)
    assert row is not None
    assert tuple(row) == (0, 1)


async def test_simulated_messages_are_counted_apart_where_they_count(
    door: Process, settings: Settings, pool: asyncpg.Pool
) -> None:
    """By the day of acceptance, or of release; those with a real recipient are not simulated."""
    account = await make_account(pool)
    at = f"@simulator.{settings.mail_host}"
    await door.send(account, to=[f"delivered+1{at}"], cc=[f"Bounced{at}"])
    await door.send(account, to=[f"delivered{at}", "ann@people.test"])
    await door.send(account, to=[f"delivered{at}"], idempotencyKey="once")
    await door.send(account, to=[f"delivered{at}"], idempotencyKey="once")
    await door.send(account, to=["ann@people.test"])
    later = await scheduled(door, account, to=[f"slow{at}"])
    assert await simulated(pool, account) == (2, 0, 0, 0)
    await comes_due(pool, later)
    await release(pool, settings)

    assert await simulated(pool, account) == (3, 0, 0, 0)
    sent_today = await pool.fetchval("SELECT sent_today FROM account_heads WHERE account_id = $1", account.id)
    assert sent_today == 5
