"""Scheduled messages for tests, which become due by changed rows instead of sleeping."""

import contextlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from engine.base import clock
from engine.base.settings import Settings
from engine.sending.release import release_due
from engine.store.postgres import open_pool
from tests.harness.accounts import TestAccount
from tests.harness.sending import Process, message_id

Waybill = list[tuple[str, dict[str, Any]]]


def within(**ahead: float) -> str:
    """A time so far ahead, as a request writes it."""
    return clock.iso(clock.now() + timedelta(**ahead))


async def scheduled(door: Process, account: TestAccount, **fields: object) -> UUID:
    """A message for tomorrow, or for the `scheduledAt` given."""
    answer = await door.send(account, **({"scheduledAt": within(hours=20)} | fields))
    assert answer.status == "scheduled"
    return message_id(answer)


async def comes_due(pool: asyncpg.Pool, *messages: UUID, ago: timedelta = timedelta(0)) -> datetime:
    """Make the messages due by moving their time into the past; return that time."""
    at = clock.now() - ago
    await pool.execute(
        "UPDATE schedules SET due_at = $2, look_at = $2 WHERE message_id = ANY($1::uuid[])", messages, at
    )
    return at


async def waits(pool: asyncpg.Pool, message: UUID) -> asyncpg.Record | None:
    """Its place in the schedule."""
    return await pool.fetchrow("SELECT * FROM schedules WHERE message_id = $1", message)


async def waybill(pool: asyncpg.Pool, message: UUID) -> Waybill:
    """(type, detail) of all its events in order."""
    rows = await pool.fetch("SELECT type, payload FROM events WHERE message_id = $1 ORDER BY seq", message)
    return [(row["type"], orjson.loads(row["payload"])["detail"]) for row in rows]


async def standing(pool: asyncpg.Pool, message: UUID) -> tuple[str, list[str], int]:
    """Status of the message, statuses of its recipients, and how many deliveries are pending."""
    status = await pool.fetchval("SELECT status FROM messages WHERE id = $1", message)
    rows = await pool.fetch("SELECT status FROM recipients WHERE message_id = $1 ORDER BY n", message)
    pending = await pool.fetchval("SELECT count(*) FROM queue WHERE message_id = $1", message)
    return str(status), [row["status"] for row in rows], int(pending)


@contextlib.asynccontextmanager
async def releaser(settings: Settings) -> AsyncIterator[asyncpg.Pool]:
    """Yield the releaser of one worker, with its own pool."""
    assert settings.database_url is not None
    pool = await open_pool(settings.database_url, name="release test", largest=2)
    try:
        yield pool
    finally:
        await pool.close()


async def release(pool: asyncpg.Pool, settings: Settings) -> int:
    """Run one round of a worker."""
    return await release_due(pool, settings)
