"""Settling happens once, by the holder of the lease only, through all PostgreSQL failures."""

import asyncio
from datetime import UTC, datetime

import asyncpg
import pytest
from msgspec.structs import replace

from engine.base.settings import Settings
from engine.delivery.wait_reasons import UntriedReason
from engine.ledger import heads
from engine.sending.emails.types import Accepted
from engine.sending.settle import Fenced, Settler, plan, write
from engine.store.database_errors import BadData
from ops.host.temporary_servers import Temporary
from tests.harness.accounts import make_account
from tests.harness.patience import PATIENCE_S
from tests.harness.sending import (
    BOUNCED,
    DEFERRED,
    DELIVERED,
    Process,
    attempt_at,
    member,
    message_id,
    process,
    rows_of,
    settler_of,
)
from tests.harness.stored_messages import day_counts, recipients, sent, status, types

LATER = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


# -- once, and only by the owner --------------------------------------------------------------


async def test_settling_twice_changes_nothing(door: Process, settler: Settler, pool: asyncpg.Pool) -> None:
    account, message = await sent(door)
    [row] = await rows_of(pool, message)
    attempt = attempt_at(row, BOUNCED)
    assert await settler.settle(attempt) is True
    before = await pool.fetchrow("SELECT * FROM account_heads WHERE account_id = $1", account.id)

    assert await settler.settle(attempt) is False

    assert await pool.fetchrow("SELECT * FROM account_heads WHERE account_id = $1", account.id) == before
    assert await types(pool, message) == ["attempted", "bounced"]
    assert await day_counts(pool, account) == {"bounced": 1}
    assert (await recipients(pool, message))["ann@people.test"]["attempts"] == 1


async def test_settling_twice_within_one_batch_counts_once(door: Process, settler: Settler, pool: asyncpg.Pool) -> None:
    account, message = await sent(door)
    [row] = await rows_of(pool, message)
    attempt = attempt_at(row, DELIVERED)

    assert list(await asyncio.gather(settler.settle(attempt), settler.settle(attempt))) == [True, False]

    assert await types(pool, message) == ["attempted", "delivered"]
    assert await day_counts(pool, account) == {"delivered": 1}


async def test_what_the_operator_gave_up_while_settling_waited_for_the_account_stays_given_up(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    account, message = await sent(door)
    [row] = await rows_of(pool, message)
    given_up = replace(attempt_at(row, DEFERRED), untried=UntriedReason.OPERATOR)
    async with pool.acquire() as connection, connection.transaction():
        await heads.lock(connection, {account.id})
        settling = settler.settle(attempt_at(row, DELIVERED))
        async with asyncio.timeout(PATIENCE_S):
            while not await pool.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0.01)
        await write(connection, [plan(given_up)])

    assert await settling is False
    assert await status(pool, message) == "rejected"
    assert (await types(pool, message))[-1] == "rejected"
    assert await day_counts(pool, account) == {}


async def test_an_attempt_at_a_row_that_has_moved_on_changes_nothing(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    _, message = await sent(door)
    [row] = await rows_of(pool, message)
    assert await settler.settle(attempt_at(row, DEFERRED, next_at=LATER))

    assert await settler.settle(attempt_at(row, BOUNCED)) is False

    assert await types(pool, message) == ["attempted", "deferred"]
    assert await status(pool, message) == "sending"


async def test_a_fenced_member_settles_nothing(door: Process, pool: asyncpg.Pool) -> None:
    account, message = await sent(door)
    owner = await member(pool)
    settler = settler_of(pool, owner)
    [row] = await rows_of(pool, message)
    await pool.execute("DELETE FROM shard_members WHERE id = $1", owner)

    with pytest.raises(Fenced):
        await settler.settle(attempt_at(row, DELIVERED))

    assert await types(pool, message) == []
    assert await status(pool, message) == "queued"
    assert await rows_of(pool, message) == [row]
    assert await day_counts(pool, account) == {}


async def test_fencing_waits_for_a_settling_transaction(door: Process, pool: asyncpg.Pool) -> None:
    """The member's row is held while it settles, so that nobody takes its shards in between."""
    _, message = await sent(door)
    owner = await member(pool)
    settler = settler_of(door.pool, owner)
    [row] = await rows_of(pool, message)
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT 1 FROM messages WHERE id = $1 FOR UPDATE", message)
        settling = settler.settle(attempt_at(row, DELIVERED))  # holds its fence, waits for the message
        await asyncio.sleep(0.3)
        fencing = asyncio.create_task(pool.execute("DELETE FROM shard_members WHERE id = $1", owner))
        await asyncio.sleep(0.3)
        assert not settling.done()
        assert not fencing.done()
        await transaction.rollback()

    assert await settling is True
    await fencing
    assert await status(pool, message) == "delivered"


@pytest.mark.parametrize("stands", ["canceled", "failed", "delivered", "complained", "rejected"])
async def test_a_message_that_has_ended_is_not_moved(
    door: Process, settler: Settler, pool: asyncpg.Pool, stands: str
) -> None:
    _, message = await sent(door)
    await pool.execute("UPDATE messages SET status = $2 WHERE id = $1", message, stands)
    [row] = await rows_of(pool, message)

    assert await settler.settle(attempt_at(row, DEFERRED, next_at=LATER))

    assert await status(pool, message) == stands


async def test_a_late_bounce_moves_a_delivered_message(door: Process, settler: Settler, pool: asyncpg.Pool) -> None:
    _, message = await sent(door)
    await pool.execute("UPDATE messages SET status = 'delivered' WHERE id = $1", message)
    [row] = await rows_of(pool, message)

    assert await settler.settle(attempt_at(row, BOUNCED))

    assert await status(pool, message) == "bounced"


async def test_an_outcome_that_cannot_be_stored_fails_alone(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    _, good = await sent(door)
    _, bad = await sent(door)
    poison = replace(DELIVERED, diagnostic="250 NUL \0 inside")  # Postgres stores no NUL

    results = await asyncio.gather(
        settler.settle(attempt_at((await rows_of(pool, good))[0], DELIVERED)),
        settler.settle(attempt_at((await rows_of(pool, bad))[0], poison)),
        return_exceptions=True,
    )

    assert results[0] is True
    assert isinstance(results[1], BadData)
    assert await status(pool, good) == "delivered"
    assert await status(pool, bad) == "queued"


# -- Postgres away ----------------------------------------------------------------------------


@pytest.mark.exhaustive
async def test_settling_waits_for_postgres_and_then_completes(
    settings: Settings, disposable_servers: Temporary
) -> None:
    own = replace(settings, database_url=disposable_servers.database_url, redis_url=disposable_servers.redis_url)
    async with process(own) as door:
        account = await make_account(door.pool)
        answers: list[Accepted] = [await door.send(account) for _ in range(3)]
        settler = settler_of(door.pool, await member(door.pool))
        rows = [(await rows_of(door.pool, message_id(answer)))[0] for answer in answers]

        disposable_servers.postgres.kill()
        futures = [settler.settle(attempt_at(row, DELIVERED)) for row in rows]
        await asyncio.sleep(1.2)
        assert not any(future.done() for future in futures)
        disposable_servers.postgres.start()
        async with asyncio.timeout(PATIENCE_S):
            results = await asyncio.gather(*futures)

        assert results == [True] * 3
        for answer in answers:
            assert await status(door.pool, message_id(answer)) == "delivered"
            assert await types(door.pool, message_id(answer)) == ["attempted", "delivered"]
        assert await day_counts(door.pool, account) == {"delivered": 3}
