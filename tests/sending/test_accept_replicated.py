"""A message is promised only once a synchronous replica has it, even if its commit is visible before."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import asyncpg
import pytest

from engine.sending.accept_store import is_stored
from ops.host.temporary_servers import Temporary
from tests.harness.accounts import make_account
from tests.harness.patience import PATIENCE_S
from tests.harness.sending import Process, message_id

WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'waybill accept test'"
)
PROBE_WAITS = "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $1"

Replicate = Callable[[bool], Awaitable[None]]


@pytest.fixture
async def replica_away(servers: Temporary) -> AsyncIterator[Replicate]:
    """A function that makes commits wait for a replica that is not there (True), or for none."""
    connection = await asyncpg.connect(servers.database_url)

    async def change(away: bool) -> None:
        await connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{'absent' if away else ''}'")
        await connection.execute("SELECT pg_reload_conf()")
        if away:
            await commits_wait(servers.database_url, connection)

    yield change
    await change(False)
    await connection.close()


async def commits_wait(database_url: str, observer: asyncpg.Connection) -> None:
    """Wait until commits wait: the checkpointer applies the setting, some time after the reload."""
    probe = await asyncpg.connect(database_url, server_settings={"synchronous_commit": "on"})
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                commit = asyncio.create_task(probe.execute("SELECT pg_logical_emit_message(true, 'tests', '')"))
                while not commit.done():
                    if await observer.fetchval(PROBE_WAITS, probe.get_server_pid()):
                        return
                    await asyncio.sleep(0.02)
                await commit
    finally:
        probe.terminate()
        await asyncio.gather(commit, return_exceptions=True)


async def test_a_commit_that_lost_its_answer_counts_once_the_replica_has_it(
    door: Process, pool: asyncpg.Pool, replica_away: Replicate
) -> None:
    account = await make_account(pool)
    stored = message_id(await door.send(account))

    await is_answered_later(is_stored(door.pool, stored), True, pool, replica_away)


async def test_a_repeated_key_is_answered_once_the_replica_has_the_first_message(
    door: Process, pool: asyncpg.Pool, replica_away: Replicate
) -> None:
    account = await make_account(pool)
    first = await door.send(account, idempotencyKey="once")
    # The request would be refused now, so its key is looked up in a transaction that locks no account head.
    await pool.execute("UPDATE domains SET status = 'failed' WHERE account_id = $1", account.id)
    door.acceptor.preparer.domains.clear()

    async def again() -> str:
        return (await door.send(account, idempotencyKey="once")).id

    await is_answered_later(again(), first.id, pool, replica_away)


async def is_answered_later(
    question: Coroutine[Any, Any, object], answer: object, pool: asyncpg.Pool, replica_away: Replicate
) -> None:
    """Check that a question waits for the replica, and is then answered."""
    await replica_away(True)
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(question)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await pool.fetchval(WAITING) and not asked.done():
                    await asyncio.sleep(0.02)
            early = asked.done()
        finally:
            await replica_away(False)
    assert not early
    assert await asked == answer
