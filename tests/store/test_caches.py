"""Caches of small tables: filled once, invalidated within a second, never with a failure."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest

from engine.base import ids
from engine.store.caches import Cache, Stamps, bump
from tests.harness.sending import until


class Table:
    """What a cache loads: a value that can change, with a count of the loads."""

    def __init__(self) -> None:
        self.value = "old"
        self.loads = 0
        self.fails = False
        self.free = asyncio.Event()
        self.free.set()

    async def load(self, key: str) -> str:
        self.loads += 1
        value = f"{key} {self.value}"
        await self.free.wait()
        if self.fails:
            raise OSError("the database is away")
        return value


@pytest.fixture
async def table() -> Table:
    return Table()


@pytest.fixture
async def cache(table: Table, pool: asyncpg.Pool) -> AsyncIterator[Cache[str, str]]:
    """A cache that is being watched."""
    one: Cache[str, str] = Cache("things", table.load)
    stamps = Stamps(pool, [one])
    await stamps.check()
    watching = asyncio.create_task(stamps.run())
    yield one
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def change(pool: asyncpg.Pool, kind: str = "things") -> None:
    async with pool.acquire() as connection, connection.transaction():
        await bump(connection, kind)


async def test_a_change_shows_within_a_second(cache: Cache[str, str], table: Table, pool: asyncpg.Pool) -> None:
    for turn in range(3):
        assert await cache.get("a") == f"a {table.value}"
        table.value = f"value {turn}"
        await change(pool)
        await until(lambda: cache.peek("a") is None)
        assert await cache.get("a") == f"a value {turn}"


async def test_what_nobody_changed_stays(cache: Cache[str, str], table: Table, pool: asyncpg.Pool) -> None:
    await cache.get("a")
    await change(pool, "other things")
    await asyncio.sleep(0.6)

    assert cache.peek("a") == "a old"
    assert await cache.get("a") == "a old"
    assert table.loads == 1


async def test_a_change_that_is_rolled_back_clears_nothing(
    cache: Cache[str, str], table: Table, pool: asyncpg.Pool
) -> None:
    await cache.get("a")
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await bump(connection, "things")
        await transaction.rollback()
    await asyncio.sleep(0.6)

    assert cache.peek("a") == "a old"


async def test_concurrent_callers_share_one_load(table: Table) -> None:
    cache: Cache[str, str] = Cache("things", table.load)
    table.free.clear()
    callers = [asyncio.create_task(cache.get("a")) for _ in range(20)]
    await asyncio.sleep(0.01)
    table.free.set()

    assert set(await asyncio.gather(*callers)) == {"a old"}
    assert table.loads == 1


async def test_a_caller_that_goes_away_leaves_the_load_to_the_others(table: Table) -> None:
    cache: Cache[str, str] = Cache("things", table.load)
    table.free.clear()
    leaving, staying = (asyncio.create_task(cache.get("a")) for _ in range(2))
    await asyncio.sleep(0.01)
    leaving.cancel()
    await asyncio.sleep(0.01)
    table.free.set()

    assert await staying == "a old"
    assert table.loads == 1


async def test_a_failed_load_is_not_kept(table: Table) -> None:
    cache: Cache[str, str] = Cache("things", table.load)
    table.fails = True
    results = await asyncio.gather(*[cache.get("a") for _ in range(3)], return_exceptions=True)
    assert all(isinstance(result, OSError) for result in results)
    assert table.loads == 1
    table.fails = False

    assert await cache.get("a") == "a old"


async def test_a_load_overtaken_by_a_change_is_not_kept(table: Table) -> None:
    """It may have read the table before the change."""
    cache: Cache[str, str] = Cache("things", table.load)
    table.free.clear()
    slow = asyncio.create_task(cache.get("a"))
    await asyncio.sleep(0.01)
    table.value = "new"
    cache.clear()
    fresh = asyncio.create_task(cache.get("a"))
    await asyncio.sleep(0.01)
    table.free.set()

    assert await slow == "a old"
    assert await fresh == "a new"
    assert cache.peek("a") == "a new"


async def test_only_the_changed_kind_is_cleared(pool: asyncpg.Pool, table: Table) -> None:
    things: Cache[str, str] = Cache("these", table.load)
    others: Cache[str, str] = Cache("those", table.load)
    stamps = Stamps(pool, [things, others])
    await stamps.check()
    await things.get("a")
    await others.get("a")
    await change(pool, "these")
    await stamps.check()

    assert (things.peek("a"), others.peek("a")) == (None, "a old")


async def test_a_kind_nobody_changed_yet_needs_no_row(pool: asyncpg.Pool, table: Table) -> None:
    cache: Cache[str, str] = Cache("never changed", table.load)
    stamps = Stamps(pool, [cache])
    await stamps.check()
    await cache.get("a")
    await stamps.check()

    assert cache.peek("a") == "a old"


async def _noted(key: tuple[UUID, str]) -> str:
    return key[1]


async def test_a_change_of_one_account_drops_the_entries_of_that_account_alone(pool: asyncpg.Pool) -> None:
    mine, other, kind = ids.uuid7(), ids.uuid7(), f"things of {ids.uuid7()}"
    cache: Cache[tuple[UUID, str], str] = Cache(kind, _noted, by_account=True)
    stamps = Stamps(pool, [cache])
    async with pool.acquire() as connection:
        await bump(connection, kind)
        await stamps.check()
        for account in (mine, other):
            await cache.get((account, "a"))
        await bump(connection, kind, mine)
        await bump(connection, kind, mine)
        await stamps.check()
        assert (cache.peek((mine, "a")), cache.peek((other, "a"))) == (None, "a")

        await bump(connection, kind, other)
        await bump(connection, kind)
        await cache.get((mine, "a"))
        await stamps.check()
        assert (cache.peek((mine, "a")), cache.peek((other, "a"))) == (None, None)


async def test_a_change_whose_account_is_not_stored_clears_the_cache(pool: asyncpg.Pool) -> None:
    mine, kind = ids.uuid7(), f"things of {ids.uuid7()}"
    cache: Cache[tuple[UUID, str], str] = Cache(kind, _noted, by_account=True)
    stamps = Stamps(pool, [cache])
    async with pool.acquire() as connection:
        await bump(connection, kind, mine)
        await stamps.check()
        await cache.get((mine, "a"))
        # As a process of the version before writes it.
        await connection.execute("UPDATE stamps SET version = version + 1 WHERE kind = $1", kind)
        await bump(connection, kind, ids.uuid7())
        await stamps.check()
    assert cache.peek((mine, "a")) is None
