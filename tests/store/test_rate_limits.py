"""Request rates over a real Valkey: shared by all processes, granted ahead to a busy one, exact near the edge."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest

from engine.base import ids
from engine.store.rate_limits import AHEAD_S, RateLimiter, RateStatus
from engine.store.redis import RedisCommand, connect
from engine.store.redis_client import SingleRedis

PATIENCE_S = 2.0


class Counted(SingleRedis):
    """A client that counts its round trips."""

    trips = 0

    async def _ask(self, commands: Sequence[RedisCommand], timeout_s: float) -> list[Any]:
        self.trips += 1
        return await super()._ask(commands, timeout_s)


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Counted]:
    async with aclosing(Counted(redis_url, PATIENCE_S)) as one:
        yield one


@pytest.fixture
async def processes(redis_url: str) -> AsyncIterator[list[RateLimiter]]:
    """What three processes ask with."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(aclosing(connect(redis_url, timeout_s=PATIENCE_S))) for _ in "abc"]
        yield [RateLimiter(one) for one in clients]


@pytest.fixture
def bucket() -> str:
    return f"test:{ids.uuid7()}"


async def steadily(limits: RateLimiter, bucket: str, rate: float, count: int) -> list[RateStatus]:
    """One request after the other, each when the one before was answered."""
    found = []
    for _ in range(count):
        found.append(await limits.check(bucket, rate))
        await asyncio.sleep(0.001)
    return found


async def test_a_busy_key_is_asked_for_less_often_than_it_sends(client: Counted, bucket: str) -> None:
    standings = await steadily(RateLimiter(client), bucket, 5_000, 200)

    assert all(one.allowed for one in standings)
    assert client.trips < 150


async def test_a_slow_key_is_asked_for_each_time(client: Counted, bucket: str) -> None:
    await steadily(RateLimiter(client), bucket, 1 / AHEAD_S - 1, 20)

    assert client.trips == 20


async def test_what_is_granted_ahead_has_left_the_bucket(
    client: Counted, processes: list[RateLimiter], bucket: str
) -> None:
    rate = 1_000
    began = time.monotonic()
    mine = await steadily(RateLimiter(client), bucket, rate, 50)
    theirs = await asyncio.gather(*[processes[0].check(bucket, rate) for _ in range(3 * rate)])
    elapsed = time.monotonic() - began

    granted = sum(one.allowed for one in [*mine, *theirs])
    assert 2 * rate - rate * AHEAD_S <= granted <= 2 * rate + rate * elapsed


async def test_processes_together_grant_what_the_rate_allows_and_no_more(
    processes: list[RateLimiter], bucket: str
) -> None:
    rate = 200
    began = time.monotonic()
    found = await asyncio.gather(*[
        steadily(limits, bucket, rate, 60) for limits in processes for _ in range(5)
    ])  # fmt: skip
    elapsed = time.monotonic() - began

    standings = list(itertools.chain.from_iterable(found))
    granted = sum(one.allowed for one in standings)
    # Each process may hold a grant ahead at the end, and lose one each time that it pauses for longer than it lasts.
    unused = len(processes) * rate * AHEAD_S * (1 + elapsed / AHEAD_S)
    assert 2 * rate - unused <= granted <= 2 * rate + rate * elapsed


async def test_below_half_of_a_bucket_nothing_is_granted_ahead(
    client: Counted, processes: list[RateLimiter], bucket: str
) -> None:
    rate, began = 1_000, time.monotonic()
    limits = RateLimiter(client)
    first = await asyncio.gather(*[limits.check(bucket, rate) for _ in range(1_600)])
    trips = client.trips
    second = await steadily(limits, bucket, rate, 30)
    asked = client.trips - trips
    rest = await asyncio.gather(*[processes[0].check(bucket, rate) for _ in range(2_000)])
    elapsed = time.monotonic() - began

    granted = sum(one.allowed for one in [*first, *second, *rest])
    assert elapsed > 0.5 or asked == 30  # else it has filled up again meanwhile
    assert 2 * rate <= granted <= 2 * rate + rate * elapsed


async def test_the_headers_tell_what_is_left_with_what_was_granted_ahead(client: Counted, bucket: str) -> None:
    rate, limits = 1_000, RateLimiter(client)
    began = time.monotonic()
    for sent in range(1, 101):
        standing = await limits.check(bucket, rate)
        refilled = rate * (time.monotonic() - began)
        least = standing.burst - sent
        assert least <= standing.remaining <= min(standing.burst - 1, least + refilled)
        assert (standing.limit, standing.burst) == (rate, 2 * rate)
        await asyncio.sleep(0.001)


async def test_what_was_granted_ahead_at_another_rate_is_not_used(client: Counted, bucket: str) -> None:
    limits = RateLimiter(client)
    await steadily(limits, bucket, 5_000, 50)

    standings = await asyncio.gather(*[limits.check(bucket, 1) for _ in range(10)])
    assert sum(one.allowed for one in standings) <= 2


async def test_without_redis_a_process_counts_by_itself(bucket: str) -> None:
    async with aclosing(connect("redis://127.0.0.1:1/0")) as nobody:
        limits = RateLimiter(nobody)
        slow = [await limits.check(bucket, 2 / 3600, burst_s=3600) for _ in range(5)]
        fast = await steadily(limits, f"{bucket}:fast", 5_000, 50)

    assert [one.allowed for one in slow] == [True, True, False, False, False]
    assert all(one.allowed for one in fast)


async def test_an_amount_is_taken_whole_or_not_at_all(processes: list[RateLimiter], bucket: str) -> None:
    one, other, _ = processes
    assert await one.take(bucket, 60, 1.0, burst_s=100.0)
    assert not await other.take(bucket, 60, 1.0, burst_s=100.0)
    assert await other.take(bucket, 40, 1.0, burst_s=100.0)
    assert not await one.take(bucket, 10, 1.0, burst_s=100.0)


async def test_without_redis_each_process_takes_amounts_by_itself(bucket: str) -> None:
    async with aclosing(connect("redis://127.0.0.1:1/0")) as nobody:
        limits = RateLimiter(nobody)
        assert await limits.take(bucket, 60, 1.0, burst_s=100.0)
        assert not await limits.take(bucket, 60, 1.0, burst_s=100.0)
        assert await limits.take(bucket, 40, 1.0, burst_s=100.0)
