"""Members follow pins, weights and draining; every process learns of splits."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg
import pytest

from engine.delivery import splits
from engine.delivery.partition import parts_of, shard_of
from engine.delivery.splits import SplitAuthor, Splits
from engine.store.caches import Stamps
from shards import placement
from tests.harness.patience import PATIENCE_S
from tests.shards.test_member import LEASE_S, SHARDS, Process, Start, own_pool, shared_out, start, until

__all__ = ["own_pool", "start"]


@contextlib.asynccontextmanager
async def stamped(pool: asyncpg.Pool, *processes: Process) -> AsyncIterator[None]:
    """Run the cache stamps of the processes, so that they learn of changes between heartbeats."""
    stamps = asyncio.create_task(Stamps(pool, [process.member.cache for process in processes]).run())
    try:
        yield
    finally:
        stamps.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stamps


async def test_a_pinned_shard_moves_to_its_target_and_stays_there(start: Start, own_pool: asyncpg.Pool) -> None:
    one, two = start("host:a"), start("host:b")
    async with stamped(own_pool, one, two):
        await until(lambda: shared_out(one, two))
        shards = sorted(one.owned)[:3]

        async with own_pool.acquire() as connection, connection.transaction():
            await placement.pin(connection, shards, "host:b", "tests")
        await until(lambda: two.owned >= set(shards) and shared_out(one, two))

        assert frozenset(shards) <= frozenset().union(*one.released)  # a hand-over, not a loss
        assert (one.fenced, two.fenced) == (0, 0)


async def test_a_pinned_shard_moves_after_its_deliveries_finish(start: Start, own_pool: asyncpg.Pool) -> None:
    one, two = start("a"), start("b")
    await until(lambda: shared_out(one, two))
    one.may_release.clear()
    shard = min(one.owned)

    async with own_pool.acquire() as connection, connection.transaction():
        await placement.pin(connection, [shard], "b", "tests")
    await until(lambda: shard not in one.owned)
    await asyncio.sleep(LEASE_S)
    assert shard not in two.owned
    one.may_release.set()

    await until(lambda: shard in two.owned)


async def test_a_draining_member_releases_all_shards_unless_no_other_member_exists(
    start: Start, own_pool: asyncpg.Pool
) -> None:
    one, two = start("north:a"), start("south:b")
    async with stamped(own_pool, one, two):
        await until(lambda: shared_out(one, two))
        async with own_pool.acquire() as connection, connection.transaction():
            await placement.set_member_policy(connection, "north", weight=1, draining=True, why="disk")
        await until(lambda: len(two.owned) == SHARDS)

        await two.kill()
        await two.member.leave()

        await until(lambda: len(one.owned) == SHARDS)


async def test_a_member_of_weight_three_owns_three_quarters(start: Start, own_pool: asyncpg.Pool) -> None:
    one, two = start("a"), start("b")
    async with own_pool.acquire() as connection, connection.transaction():
        await placement.set_member_policy(connection, "a", weight=3, draining=False, why="")

    await until(lambda: (len(one.owned), len(two.owned)) == (12, 4))


@pytest.fixture
async def two_processes(own_pool: asyncpg.Pool) -> AsyncIterator[tuple[Splits, Splits]]:
    one, two = Splits(own_pool), Splits(own_pool)
    tasks = [asyncio.create_task(Stamps(own_pool, [each.cache]).run()) for each in (one, two)]
    yield one, two
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_split_is_known_to_every_process_within_a_second(
    own_pool: asyncpg.Pool, two_processes: tuple[Splits, Splits]
) -> None:
    one, two = two_processes
    assert await one.now() == await two.now() == {}

    async with own_pool.acquire() as connection, connection.transaction():
        assert await splits.change(connection, "hot.test", 4, shards=SHARDS, whose=SplitAuthor.OPERATOR, why="tests")

    async with asyncio.timeout(PATIENCE_S):
        while not (await one.now() == await two.now() == {"hot.test": 4}):
            await asyncio.sleep(0.01)
    errands = await own_pool.fetch("SELECT shard FROM shard_rehomings WHERE domain = 'hot.test'")
    assert [row["shard"] for row in errands] == [shard_of("hot.test", SHARDS)]


async def test_a_second_change_moves_rows_from_all_earlier_parts(own_pool: asyncpg.Pool) -> None:
    async with own_pool.acquire() as connection, connection.transaction():
        await splits.change(connection, "hot.test", 3, shards=SHARDS, whose=SplitAuthor.RULE, why="hot")
        await splits.change(connection, "hot.test", 4, shards=SHARDS, whose=SplitAuthor.RULE, why="hotter")
        assert not await splits.change(connection, "hot.test", 4, shards=SHARDS, whose=SplitAuthor.OPERATOR, why="mine")
        await splits.forget(connection, "hot.test", shards=SHARDS)

    errands = {row["shard"] for row in await own_pool.fetch("SELECT shard FROM shard_rehomings")}
    assert errands == {*parts_of("hot.test", SHARDS, 3), *parts_of("hot.test", SHARDS, 4)}
    assert await splits.read(own_pool) == {}
