"""Purging for tests: databases of their own, old mail, and what is left of it."""

from datetime import datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import asyncpg

from engine.base import clock, ids
from engine.retention import purge
from engine.retention.purge import Purged
from engine.sending.statistics import rules as figures
from engine.sending.statistics import store
from tests.harness.accounts import TestAccount, make_account


def ago(days: float, **more: float) -> datetime:
    """That long before now."""
    return clock.now() - timedelta(days=days, **more)


async def purged(pool: asyncpg.Pool, at: datetime | None = None) -> Purged:
    """Every account swept at `at`, by default now; what went."""
    found = await purge.purge(pool, at or clock.now(), everyone=True)
    assert found is not None
    assert found.finished
    return found


async def left(pool: asyncpg.Pool, account: TestAccount, table: str = "messages") -> int:
    """Rows of the account in a table."""
    return int(await pool.fetchval(f"SELECT count(*) FROM {table} WHERE account_id = $1", account.id))


async def keep_longer(pool: asyncpg.Pool) -> TestAccount:
    """An account that keeps its records for two years, so that those of the others go row by row."""
    return await make_account(pool, plan="scale")


async def wait_in(pool: asyncpg.Pool, table: str, message: UUID, account: TestAccount) -> None:
    """A message waits in `queue` or `schedules`."""
    if table == "queue":
        await pool.execute(
            "INSERT INTO queue (message_id, domain, shard, account_id, from_domain, recipients, total, due_at) "
            "VALUES ($1, 'people.test', 0, $2, $3, '[[0, \"ann@people.test\"]]', 1, now())",
            message, account.id, account.domain,
        )  # fmt: skip
    else:
        await pool.execute(
            "INSERT INTO schedules (message_id, account_id, due_at, look_at) VALUES ($1, $2, now(), now())",
            message, account.id,
        )  # fmt: skip


async def add_keys(pool: asyncpg.Pool, account: TestAccount, moments: list[datetime]) -> None:
    """An idempotency key for a message of each moment."""
    await pool.executemany(
        "INSERT INTO idempotency (account_id, key, message_id, request_digest) VALUES ($1, $2, $3, '')",
        [(account.id, f"key {n}", ids.uuid7(clock.milliseconds(at))) for n, at in enumerate(moments)],
    )


async def counts(pool: asyncpg.Pool, account: TestAccount, days: int) -> list[int]:
    """Delivered messages by UTC day, as the statistics tell."""
    wanted = figures.local_days(ZoneInfo("UTC"), clock.now(), days)
    return [one.delivered for one in await store.by_day(pool, account.id, wanted)]
