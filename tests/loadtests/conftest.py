"""Fixtures of the load tests' tests."""

from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from engine.store.postgres import open_pool


@pytest.fixture
async def own_pool(new_database: Callable[[], Awaitable[str]]) -> AsyncIterator[asyncpg.Pool]:
    """Open a pool on a database that only this test uses."""
    pool = await open_pool(await new_database(), name="load tests", largest=2)
    yield pool
    await pool.close()
