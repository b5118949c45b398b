"""The account log, verified by an independent implementation of its published rule."""

import asyncio
from hashlib import sha256

import asyncpg

from engine.base.events import AccountEvent
from engine.base.settings import Settings
from engine.ledger.events import record_event
from tests.harness.accounts import TestAccount, make_account
from tests.harness.sending import DEFERRED, DELIVERED, attempt_at, member, message_id, process, rows_of, settler_of


async def rows(pool: asyncpg.Pool, account: TestAccount) -> list[asyncpg.Record]:
    found: list[asyncpg.Record] = await pool.fetch(
        "SELECT seq, occurred_at, payload, hash FROM events WHERE account_id = $1 ORDER BY seq", account.id
    )
    return found


def first_break(found: list[asyncpg.Record]) -> int | None:
    """The seq of the first event whose hash does not follow from the one before; None when the chain is whole."""
    previous = "0" * 64
    for row in found:
        at = row["occurred_at"]
        written = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
        previous = sha256(f"{previous}\n{row['seq']}\n{written}\n{row['payload']}".encode()).hexdigest()
        if previous != row["hash"].hex():
            return int(row["seq"])
    return None


async def test_the_chain_holds_from_the_first_event_to_the_head(settings: Settings, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    async with process(settings) as door:
        for number in range(5):
            await door.send(account, subject=f"Größe {number} ✓")

    found = await rows(pool, account)
    head = await pool.fetchrow("SELECT seq, hash FROM account_heads WHERE account_id = $1", account.id)
    assert head is not None
    assert [row["seq"] for row in found] == [1, 2, 3, 4, 5]
    assert first_break(found) is None
    assert (head["seq"], head["hash"]) == (5, found[-1]["hash"])


async def test_times_are_stored_as_they_were_hashed(settings: Settings, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    async with process(settings) as door:
        await door.send(account)

    [row] = await rows(pool, account)
    assert row["occurred_at"].microsecond % 1000 == 0


async def test_concurrent_writers_leave_no_gap_and_never_fork_the_chain(settings: Settings, pool: asyncpg.Pool) -> None:
    account, other = await make_account(pool), await make_account(pool)
    async with process(settings) as one, process(settings) as two, process(settings) as mta:
        settler = settler_of(mta.pool, await member(pool))

        async def deliver(place: int) -> None:
            door = (one, two)[place % 2]
            message = message_id(await door.send(other if place % 5 == 0 else account))
            for row in await rows_of(pool, message):
                await settler.settle(attempt_at(row, DELIVERED))

        async def tell(place: int) -> None:
            async with pool.acquire() as connection, connection.transaction():
                await record_event(connection, account.id, AccountEvent.DOMAIN_VERIFIED, {"place": place})

        await asyncio.gather(*[deliver(place) for place in range(100)], *[tell(place) for place in range(10)])

    found = await rows(pool, account)
    assert [row["seq"] for row in found] == list(range(1, 80 * 3 + 10 + 1))
    assert first_break(found) is None
    beside = await rows(pool, other)
    assert [row["seq"] for row in beside] == list(range(1, 20 * 3 + 1))
    assert first_break(beside) is None


async def test_a_changed_byte_is_found_where_it_was_changed(settings: Settings, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    async with process(settings) as door:
        settler = settler_of(pool, await member(pool))
        for _ in range(3):
            [row] = await rows_of(pool, message_id(await door.send(account)))
            await settler.settle(attempt_at(row, DELIVERED))
    assert first_break(await rows(pool, account)) is None

    for change, breaks_at in (
        ("payload = replace(payload, 'people.test', 'peeple.test')", 5),
        ("occurred_at = occurred_at + interval '1 millisecond'", 5),
        ("hash = set_byte(hash, 0, get_byte(hash, 0) # 1)", 5),
        ("seq = 50", 6),
    ):
        async with pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(f"UPDATE events SET {change} WHERE account_id = $1 AND seq = 5", account.id)
            changed = await connection.fetch(
                "SELECT seq, occurred_at, payload, hash FROM events WHERE account_id = $1 ORDER BY seq", account.id
            )
            await transaction.rollback()
        assert first_break(changed) == breaks_at


async def test_a_missing_event_is_found(settings: Settings, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    async with process(settings) as door:
        for _ in range(4):
            await door.send(account)
    found = await rows(pool, account)

    assert first_break(found[:1] + found[2:]) == 3


async def test_a_deferral_and_its_delivery_follow_each_other(settings: Settings, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    async with process(settings) as door:
        settler = settler_of(pool, await member(pool))
        message = message_id(await door.send(account))
        [row] = await rows_of(pool, message)
        await settler.settle(attempt_at(row, DEFERRED, next_at=row.due_at))
        [row] = await rows_of(pool, message)
        await settler.settle(attempt_at(row, DELIVERED))

    kinds = await pool.fetch("SELECT type FROM events WHERE message_id = $1 ORDER BY seq", message)
    assert [row["type"] for row in kinds] == ["accepted", "attempted", "deferred", "attempted", "delivered"]
    assert first_break(await rows(pool, account)) is None
