"""Settling in a thread of its own: answers come back to the loop that asked, and nothing is lost at the end."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest

from engine.base.settings import Settings
from engine.flows.sending.settle import Fenced
from engine.store.database_errors import DatabaseUnavailable
from mta.outbound.settling import SettlingThread
from tests.flows.sending import DELIVERED, Process, attempt_at, member, process, rows_of
from tests.flows.written import sent, status


@pytest.fixture
async def door(settings: Settings) -> AsyncIterator[Process]:
    async with process(settings) as one:
        yield one


@pytest.fixture
async def owner(pool: asyncpg.Pool) -> UUID:
    return await member(pool)


@pytest.fixture
async def flushes() -> list[int]:
    return []


@pytest.fixture
async def settler(settings: Settings, owner: UUID, flushes: list[int]) -> AsyncIterator[SettlingThread]:
    assert settings.database_url is not None
    one = await SettlingThread.start(
        settings.database_url, "test", lambda: owner, on_flush=lambda count, _: flushes.append(count)
    )
    yield one
    await one.close()


async def test_outcomes_are_committed_when_their_futures_resolve(
    door: Process, settler: SettlingThread, pool: asyncpg.Pool, flushes: list[int]
) -> None:
    messages = [(await sent(door))[1] for _ in range(20)]
    rows = [(await rows_of(pool, message))[0] for message in messages]

    done = await asyncio.gather(*(settler.settle(attempt_at(row, DELIVERED)) for row in rows))
    again = await settler.settle(attempt_at(rows[0], DELIVERED))

    assert (done, again) == ([True] * 20, False)
    assert [await status(pool, message) for message in messages] == ["delivered"] * 20
    assert sum(flushes) == 21
    assert len(flushes) <= 4  # those handed over together share a transaction


async def test_idle_waits_until_everything_is_answered(
    door: Process, settler: SettlingThread, pool: asyncpg.Pool
) -> None:
    _, message = await sent(door)
    [row] = await rows_of(pool, message)
    future = settler.settle(attempt_at(row, DELIVERED))

    await settler.idle()

    assert future.done()
    assert await status(pool, message) == "delivered"


async def test_a_fence_is_told_to_the_loop(
    door: Process, settler: SettlingThread, pool: asyncpg.Pool, owner: UUID
) -> None:
    _, message = await sent(door)
    [row] = await rows_of(pool, message)
    await pool.execute("DELETE FROM shard_members WHERE id = $1", owner)

    with pytest.raises(Fenced):
        await settler.settle(attempt_at(row, DELIVERED))
    assert await status(pool, message) == "queued"


async def test_without_postgres_it_does_not_start() -> None:
    with pytest.raises(DatabaseUnavailable):
        await SettlingThread.start(
            "postgresql://postgres@/postgres?host=/nowhere", "test", lambda: UUID(int=1), on_flush=lambda *_: None
        )
