"""Outcomes that share a transaction: one chain for each account, and a row that is gone holds up none of the others."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest
from msgspec import structs

from engine.base import clock
from engine.delivery.queue import Row
from engine.ledger.log import chained
from engine.sending.settle import Fenced, Settler
from tests.harness.accounts import TestAccount, make_account
from tests.harness.sending import (
    BOUNCED,
    DEFERRED,
    DELIVERED,
    Process,
    attempt_at,
    head_of,
    member,
    message_id,
    rows_of,
    said,
    settler_of,
)
from tests.harness.stored_messages import status, statuses, types


async def row_for(door: Process, account: TestAccount, address: str) -> Row:
    [row] = await rows_of(door.pool, message_id(await door.send(account, to=[address])))
    return row


async def assert_whole(pool: asyncpg.Pool, account: TestAccount) -> None:
    """Every event follows the one before it, and the head is the last of them."""
    last = bytes(32)
    rows = await pool.fetch("SELECT * FROM events WHERE account_id = $1 ORDER BY seq", account.id)
    for number, row in enumerate(rows, start=1):
        last = chained(last, number, row["occurred_at"], row["payload"])
        assert (row["seq"], row["hash"]) == (number, last)
    head = await head_of(pool, account)
    assert (head["seq"], head["hash"]) == (len(rows), last)


async def test_all_outcomes_of_a_batch_are_written_to_one_chain(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    rows = [await row_for(door, account, f"ann{number}@people.test") for number in range(6)]
    full = said(452, "4.2.2 Postfach ist übervoll – später ✉")
    outcomes = [DELIVERED, BOUNCED, DELIVERED, full, DEFERRED, DELIVERED]

    done = await asyncio.gather(
        *(
            settler.settle(attempt_at(row, outcome, next_at=clock.now() + timedelta(minutes=1)))
            for row, outcome in zip(rows, outcomes, strict=True)
        )
    )

    assert done == [True] * 6
    await assert_whole(pool, account)
    assert [await types(pool, row.message_id) for row in rows] == [
        ["attempted", kind] for kind in ("delivered", "bounced", "delivered", "deferred", "deferred", "delivered")
    ]


async def test_accounts_that_share_a_transaction_keep_a_chain_each(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    accounts = [await make_account(pool) for _ in range(3)]
    rows = [await row_for(door, accounts[number % 3], f"ann{number}@people.test") for number in range(9)]

    await asyncio.gather(*(settler.settle(attempt_at(row, DELIVERED)) for row in rows))

    for account in accounts:
        await assert_whole(pool, account)


async def test_a_row_that_is_gone_holds_up_none_of_its_batch(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    rows = [await row_for(door, account, f"ann{number}@people.test") for number in range(3)]
    await pool.execute("DELETE FROM queue WHERE message_id = $1", rows[1].message_id)

    done = await asyncio.gather(*(settler.settle(attempt_at(row, DELIVERED)) for row in rows))

    assert done == [True, False, True]
    assert [await status(pool, row.message_id) for row in rows] == ["delivered", "queued", "delivered"]
    await assert_whole(pool, account)


async def test_recipients_of_one_domain_settle_each_by_itself(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    message = message_id(await door.send(account, to=["ann@people.test", "bob@people.test"]))
    [row] = await rows_of(pool, message)

    assert await settler.settle(attempt_at(row, DELIVERED, DEFERRED, next_at=clock.now() + timedelta(minutes=1)))

    assert await statuses(pool, message) == {"ann@people.test": "delivered", "bob@people.test": "sending"}
    [later] = await rows_of(pool, message)
    assert (later.pairs, later.attempts) == ([(row.pairs[1][0], "bob@people.test")], 1)


async def test_outcomes_handed_over_together_share_transactions_and_are_committed_when_their_futures_resolve(
    door: Process, pool: asyncpg.Pool
) -> None:
    owner = await member(pool)
    flushes: list[int] = []
    settler = Settler(pool, lambda: owner, on_flush=lambda count, _: flushes.append(count))
    rows = [await row_for(door, await make_account(pool), "ann@people.test") for _ in range(20)]

    done = await asyncio.gather(*(settler.settle(attempt_at(row, DELIVERED)) for row in rows))
    again = await settler.settle(attempt_at(rows[0], DELIVERED))

    assert (done, again) == ([True] * 20, False)
    assert [await status(pool, row.message_id) for row in rows] == ["delivered"] * 20
    assert sum(flushes) == 21
    assert len(flushes) <= 4


async def test_idle_waits_until_every_outcome_is_committed(door: Process, settler: Settler, pool: asyncpg.Pool) -> None:
    row = await row_for(door, await make_account(pool), "ann@people.test")
    future = settler.settle(attempt_at(row, DELIVERED))

    await settler.idle()

    assert future.done()
    assert await status(pool, row.message_id) == "delivered"


async def test_settling_without_a_lease_changes_nothing(door: Process, pool: asyncpg.Pool) -> None:
    owner = await member(pool)
    settler = settler_of(pool, owner)
    row = await row_for(door, await make_account(pool), "ann@people.test")
    await pool.execute("DELETE FROM shard_members WHERE id = $1", owner)

    with pytest.raises(Fenced):
        await settler.settle(attempt_at(row, DELIVERED))
    assert await status(pool, row.message_id) == "queued"


async def test_no_outcome_of_other_mail_waits_for_those_of_a_broadcast(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    sender, other = await make_account(pool), await make_account(pool)
    copies = [structs.replace(await row_for(door, sender, f"ann{n}@people.test"), priority=3) for n in range(3)]
    row = await row_for(door, other, "bob@people.test")

    async with pool.acquire() as blocker, blocker.transaction():
        await blocker.execute("SELECT 1 FROM account_heads WHERE account_id = $1 FOR UPDATE", sender.id)
        waiting = [settler.settle(attempt_at(one, DELIVERED)) for one in copies]
        assert await settler.settle(attempt_at(row, DELIVERED))
        assert not any(one.done() for one in waiting)
    assert await asyncio.gather(*waiting) == [True] * 3
    await settler.idle()
    assert settler.waiting == 0
