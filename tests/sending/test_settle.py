"""Settling: what each outcome writes, for one recipient, for several, for many accounts at once."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import orjson
import pytest
from msgspec.structs import replace

from engine.base import ids
from engine.base.settings import Settings
from engine.sending.settle import Settler
from tests.harness.sending import (
    BLOCKED,
    BOUNCED,
    DEFERRED,
    DELIVERED,
    Process,
    attempt_at,
    member,
    process,
    rows_of,
    settler_of,
)
from tests.harness.stored_messages import day_counts, events, recipients, sent, status, statuses, suppressed, types

LATER = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
SOON = timedelta(seconds=30)


# -- one recipient, one outcome ---------------------------------------------------------------


async def test_a_delivery_ends_the_row_and_dates_the_message(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    account, message = await sent(door)
    [row] = await rows_of(pool, message)
    attempt = attempt_at(row, DELIVERED)

    assert await settler.settle(attempt) is True

    [(first, conversation), (second, detail)] = await events(pool, message)
    assert (first, second) == ("attempted", "delivered")
    assert conversation == {"mx": "mx.people.test", "tls": "TLSv1.3"}
    assert detail["recipient"] == "ann@people.test"
    assert (detail["smtp_code"], detail["enhanced_code"], detail["attempt"]) == (250, "2.0.0", 1)
    assert (detail["mx"], detail["tls"]) == ("mx.people.test", "TLSv1.3")
    found = (await recipients(pool, message))["ann@people.test"]
    assert (found["status"], found["attempts"], found["next_attempt_at"]) == ("delivered", 1, None)
    assert found["last_response"] == "250 2.0.0 Ok: queued"
    stored = await pool.fetchrow("SELECT status, delivered_at FROM messages WHERE id = $1", message)
    assert stored is not None
    assert (stored["status"], stored["delivered_at"]) == ("delivered", attempt.ended_at)
    assert await rows_of(pool, message) == []
    assert await day_counts(pool, account) == {"delivered": 1}
    assert await suppressed(pool, account) == []


async def test_a_hard_bounce_suppresses_the_address(door: Process, settler: Settler, pool: asyncpg.Pool) -> None:
    account, message = await sent(door, "Ann.B@People.test")
    [row] = await rows_of(pool, message)

    assert await settler.settle(attempt_at(row, BOUNCED))

    assert await status(pool, message) == "bounced"
    assert await rows_of(pool, message) == []
    assert await day_counts(pool, account) == {"bounced": 1}
    entry = await pool.fetchrow("SELECT * FROM suppressions WHERE account_id = $1", account.id)
    assert entry is not None
    assert (entry["address"], entry["reason"], entry["message_id"]) == ("ann.b@people.test", "bounce", message)
    assert "5.1.1" in entry["detail"]
    (kind, detail) = (await events(pool, message))[-1]
    assert (kind, detail["suppressed"]) == ("bounced", True)


async def test_a_block_of_our_address_bounces_without_suppressing(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    account, message = await sent(door)
    [row] = await rows_of(pool, message)

    assert await settler.settle(attempt_at(row, BLOCKED))

    assert await status(pool, message) == "bounced"
    assert await suppressed(pool, account) == []
    (kind, detail) = (await events(pool, message))[-1]
    assert (kind, detail["suppressed"]) == ("bounced", False)
    assert detail["scope"] != "recipient"


async def test_a_deferral_keeps_the_row_and_its_signature(door: Process, settler: Settler, pool: asyncpg.Pool) -> None:
    account, message = await sent(door)
    [row] = await rows_of(pool, message)

    assert await settler.settle(attempt_at(row, DEFERRED, next_at=LATER, signature=b"DKIM-Signature: v=1\r\n"))

    [again] = await rows_of(pool, message)
    assert abs(again.due_at - LATER) < SOON  # the wait is reckoned by the database's clock, from the commit on
    assert (again.attempts, again.signature) == (1, b"DKIM-Signature: v=1\r\n")
    assert again.pairs == row.pairs
    found = (await recipients(pool, message))["ann@people.test"]
    assert (found["status"], found["attempts"], found["next_attempt_at"]) == ("sending", 1, LATER)
    assert await status(pool, message) == "sending"
    (kind, detail) = (await events(pool, message))[-1]
    assert (kind, detail["next_attempt_at"]) == ("deferred", "2030-01-02T03:04:05.000Z")
    assert await day_counts(pool, account) == {}

    # A second attempt that signs nothing anew keeps the first signature.
    assert await settler.settle(attempt_at(again, DEFERRED, next_at=LATER))
    [third] = await rows_of(pool, message)
    assert (third.attempts, third.signature) == (2, b"DKIM-Signature: v=1\r\n")
    assert (await recipients(pool, message))["ann@people.test"]["attempts"] == 2


async def test_a_deferral_at_the_end_of_the_ladder_has_failed(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    account, message = await sent(door)
    [row] = await rows_of(pool, message)

    assert await settler.settle(attempt_at(row, DEFERRED, next_at=None))

    assert await status(pool, message) == "failed"
    assert await types(pool, message) == ["attempted", "failed"]
    assert await rows_of(pool, message) == []
    assert await suppressed(pool, account) == []
    assert await day_counts(pool, account) == {"failed": 1}


async def test_a_suppression_found_before_the_attempt_rejects(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    account, message = await sent(door)
    [row] = await rows_of(pool, message)

    assert await settler.settle(attempt_at(row, suppressed="complaint"))

    [(kind, detail)] = await events(pool, message)  # nothing was attempted
    assert (kind, detail["address"], detail["reason"]) == ("suppressed", "ann@people.test", "complaint")
    found = (await recipients(pool, message))["ann@people.test"]
    assert (found["status"], found["attempts"]) == ("rejected", 0)
    assert await status(pool, message) == "rejected"
    assert await rows_of(pool, message) == []
    assert await day_counts(pool, account) == {}


# -- several recipients -----------------------------------------------------------------------


async def test_recipients_of_one_transaction_settle_each_by_itself(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    account, message = await sent(door, "a@people.test", "b@people.test", "c@people.test")
    [row] = await rows_of(pool, message)

    assert await settler.settle(attempt_at(row, DELIVERED, DEFERRED, BOUNCED, next_at=LATER))

    assert await statuses(pool, message) == {
        "a@people.test": "delivered", "b@people.test": "sending", "c@people.test": "bounced",
    }  # fmt: skip
    assert await status(pool, message) == "sending"
    [again] = await rows_of(pool, message)
    assert again.pairs == [(1, "b@people.test")]
    assert again.total == 3
    assert await suppressed(pool, account) == ["c@people.test"]

    assert await settler.settle(attempt_at(again, DELIVERED))

    assert await status(pool, message) == "bounced"  # the worst of theirs
    assert await rows_of(pool, message) == []
    assert (await recipients(pool, message))["a@people.test"]["attempts"] == 1
    assert (await recipients(pool, message))["b@people.test"]["attempts"] == 2
    assert await day_counts(pool, account) == {"delivered": 2, "bounced": 1}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (DELIVERED, DELIVERED, "delivered"),
        (DELIVERED, BOUNCED, "bounced"),
        (BOUNCED, DELIVERED, "bounced"),
        (DELIVERED, DEFERRED, "failed"),
        (BOUNCED, DEFERRED, "bounced"),
    ],
)
async def test_a_message_to_two_domains_takes_the_worst_of_both(
    door: Process, settler: Settler, pool: asyncpg.Pool, first: Any, second: Any, expected: str
) -> None:
    _, message = await sent(door, "a@one.test", "b@two.test")
    one, two = await rows_of(pool, message)

    assert await settler.settle(attempt_at(one, first))
    assert await status(pool, message) == "sending"
    assert await pool.fetchval("SELECT delivered_at FROM messages WHERE id = $1", message) is None
    assert await settler.settle(attempt_at(two, second))

    assert await status(pool, message) == expected
    assert await rows_of(pool, message) == []


async def test_both_domains_of_a_message_in_one_batch(door: Process, settler: Settler, pool: asyncpg.Pool) -> None:
    _, message = await sent(door, "a@one.test", "b@two.test")
    one, two = await rows_of(pool, message)

    assert await asyncio.gather(settler.settle(attempt_at(one, DELIVERED)), settler.settle(attempt_at(two, BOUNCED)))

    assert await status(pool, message) == "bounced"
    assert await types(pool, message) == ["attempted", "delivered", "attempted", "bounced"]


async def test_both_domains_of_a_message_from_two_processes_at_once(
    door: Process, settings: Settings, pool: asyncpg.Pool
) -> None:
    async with process(settings) as other:
        settlers = [settler_of(one.pool, await member(pool)) for one in (door, other)]
        for _ in range(10):
            _, message = await sent(door, "a@one.test", "b@two.test")
            one, two = await rows_of(pool, message)
            await asyncio.gather(
                settlers[0].settle(attempt_at(one, DELIVERED)), settlers[1].settle(attempt_at(two, DELIVERED))
            )
            assert await status(pool, message) == "delivered"


async def test_outcomes_of_many_accounts_share_a_transaction(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    pairs = [await sent(door) for _ in range(10)]
    attempts = [attempt_at((await rows_of(pool, message))[0], DELIVERED) for _, message in pairs]

    assert await asyncio.gather(*[settler.settle(attempt) for attempt in attempts]) == [True] * 10

    assert {await status(pool, message) for _, message in pairs} == {"delivered"}
    assert all([await day_counts(pool, account) == {"delivered": 1} for account, _ in pairs])
    transactions = await pool.fetchval(
        "SELECT count(DISTINCT xmin::text) FROM events WHERE message_id = ANY($1) AND type = 'delivered'",
        [message for _, message in pairs],
    )
    assert transactions == 1


async def test_idle_waits_for_the_commit(door: Process, settler: Settler, pool: asyncpg.Pool) -> None:
    _, message = await sent(door)
    [row] = await rows_of(pool, message)
    settler.settle(attempt_at(row, DELIVERED))
    await settler.idle()

    assert await status(pool, message) == "delivered"
    assert settler.waiting == 0


async def test_an_event_names_its_message(door: Process, settler: Settler, pool: asyncpg.Pool) -> None:
    _, message = await sent(door)
    [row] = await rows_of(pool, message)
    await settler.settle(attempt_at(row, DELIVERED))

    for payload in await pool.fetch("SELECT payload FROM events WHERE message_id = $1", message):
        assert orjson.loads(payload["payload"])["messageId"] == ids.format_id(ids.Kind.MESSAGE, message)


async def test_the_day_of_an_outcome_is_its_own(door: Process, settler: Settler, pool: asyncpg.Pool) -> None:
    account, message = await sent(door)
    [row] = await rows_of(pool, message)
    yesterday = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)

    await settler.settle(replace(attempt_at(row, DELIVERED), ended_at=yesterday))

    assert await pool.fetchval("SELECT day FROM account_days WHERE account_id = $1", account.id) == yesterday.date()
