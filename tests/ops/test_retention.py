"""`ops purge`: what the operator's command does and prints."""

from datetime import timedelta

import asyncpg
import pytest

from engine.base import clock
from engine.retention import purge as purging
from ops.commands import purge
from tests.harness import history
from tests.harness.accounts import make_account


async def test_a_dry_run_tells_what_the_purge_then_takes(own_pool: asyncpg.Pool) -> None:
    await make_account(own_pool, plan="scale")
    account = await make_account(own_pool, plan="free")
    await history.write(own_pool, account, *[clock.now() - timedelta(days=40)] * 5)
    told = await purge.delete_expired(own_pool, dry_run=True)
    taken = await purge.delete_expired(own_pool, dry_run=False)

    assert (told["messages"], told["events"]) == (taken["messages"], taken["events"]) == (5, 15)
    assert set(told) == {"accounts", "messages", "received", "events", "idempotencyKeys", "partitions"}
    assert set(taken) == set(told) | {"figures", "finished"}


async def test_a_purge_beside_another_is_refused_in_a_sentence(own_pool: asyncpg.Pool) -> None:
    async with own_pool.acquire() as connection:
        await connection.execute("SELECT pg_advisory_lock($1)", purging._LOCK)
        with pytest.raises(RuntimeError, match="Try again"):
            await purge.delete_expired(own_pool, dry_run=False)
        await connection.execute("SELECT pg_advisory_unlock($1)", purging._LOCK)
