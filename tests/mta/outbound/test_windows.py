"""Windows over all processes: shares through Redis, and limits without Redis."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.base.settings import Settings
from engine.delivery.sites import NamedRule, RuleBook, SiteRule
from engine.store import redis as redis_store
from mta.outbound.sites import windows as module
from mta.outbound.sites.pacer import Pacer
from mta.outbound.sites.windows import SiteWindows, pace_key, window_key
from shards.ownership import ShardOwnership
from tests.harness.patience import PATIENCE_S

NOWHERE = "unix:///nonexistent/valkey.sock"


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[redis_store.RedisClient]:
    opened = redis_store.connect(f"{redis_url}?db=8", timeout_s=PATIENCE_S)
    await opened.one("FLUSHDB")
    yield opened
    await opened.aclose()


def pacer_for(site: str, **rule: Any) -> Pacer:
    book = RuleBook([NamedRule((site,), SiteRule(**rule), "operator")])
    return Pacer(book.limits(site, [site], Settings()))


class Process:
    """One process's view of one site."""

    def __init__(self, client: redis_store.RedisClient, name: str, fraction: float = 0.5, **rule: Any) -> None:
        self.pacer = pacer_for("mx.peer.test", **rule)
        ownership = ShardOwnership(100)
        ownership.add(range(round(100 * fraction)))
        self.windows = SiteWindows(client, name, ownership)
        self.want = 0

    async def ask(self, want: int) -> int:
        self.want = want
        await self.windows.lease([self.pacer], [self.want])
        return self.pacer.share


async def test_all_processes_together_never_hold_more_than_the_limit(client: redis_store.RedisClient) -> None:
    many = [Process(client, f"mta-{number}", connections=10) for number in range(4)]
    assert await many[0].ask(20) == 10
    many[0].pacer.open = 10
    for _ in range(5):
        for one in many:
            one.pacer.open = min(one.pacer.open, await one.ask(20))  # each lets go at once of what it may not keep
            assert sum(other.pacer.open for other in many) <= 10
            one.pacer.open = one.pacer.share
            assert sum(other.pacer.open for other in many) <= 10
    assert sorted(one.pacer.share for one in many) == [2, 2, 3, 3]


async def test_who_wants_little_leaves_the_rest_to_others(client: redis_store.RedisClient) -> None:
    one, other = Process(client, "mta-1", connections=10), Process(client, "mta-2", connections=10)
    assert await one.ask(2) == 2
    assert await other.ask(20) == 8


async def test_what_a_process_still_holds_is_nobody_elses(client: redis_store.RedisClient) -> None:
    one, other = Process(client, "mta-1", connections=10), Process(client, "mta-2", connections=10)
    await one.ask(10)
    one.pacer.open = 10
    await other.ask(10)
    assert await one.ask(10) == 5
    assert await other.ask(10) == 0  # until the five have really gone
    one.pacer.open = 5
    await one.ask(10)
    assert await other.ask(10) == 5


async def test_a_single_connection_goes_round(client: redis_store.RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROTATE_S", 0.05)
    one, other = Process(client, "mta-1", connections=1), Process(client, "mta-2", connections=1)
    had: set[int] = set()
    async with asyncio.timeout(PATIENCE_S):
        while len(had) < 2:
            shares = (await one.ask(1), await other.ask(1))
            assert sum(shares) <= 1
            had |= {number for number, share in enumerate(shares) if share}
            await asyncio.sleep(0.01)


async def test_the_share_of_a_dead_process_comes_free(
    client: redis_store.RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, other = Process(client, "mta-1", connections=4), Process(client, "mta-2", connections=4)
    await dead.ask(4)
    dead.pacer.open = 4
    assert await other.ask(4) == 0
    monkeypatch.setattr(module, "LEASE_S", 0.1)
    await dead.ask(4)
    async with asyncio.timeout(PATIENCE_S):
        while await other.ask(4) < 4:
            await asyncio.sleep(0.05)


async def test_a_process_that_comes_again_has_its_own_share_at_once(client: redis_store.RedisClient) -> None:
    await Process(client, "mta-1", connections=4).ask(4)
    assert await Process(client, "mta-1", connections=4).ask(4) == 4


async def test_what_is_given_back_leaves_nothing_behind(client: redis_store.RedisClient) -> None:
    one = Process(client, "mta-1", connections=4)
    await one.ask(4)
    assert await client.one("EXISTS", window_key(one.pacer))
    await one.windows.release()
    assert not await client.one("EXISTS", window_key(one.pacer))


async def test_after_a_pause_one_connection_of_all_processes_probes(client: redis_store.RedisClient) -> None:
    many = [Process(client, f"mta-{number}", connections=10) for number in range(3)]
    many[0].windows.tell_pause(many[0].pacer, 0.05)
    await many[0].ask(0)
    await asyncio.sleep(0.1)
    late = Process(client, "mta-late", connections=10)  # has not heard of the pause
    everybody = [*many, late]
    assert sum([await one.ask(5) for one in everybody]) == 1
    prober = next(one for one in everybody if one.pacer.share)
    prober.pacer.open = 1
    assert sum([await one.ask(5) for one in everybody]) == 1
    assert late.pacer.probing

    prober.pacer.succeeded()
    await prober.ask(5)
    shares = [await one.ask(2) for one in everybody]
    assert sum(shares) > len(everybody)
    assert not any(one.pacer.half_open for one in everybody)


async def test_a_probe_that_is_pushed_back_leaves_the_servers_alone_again(client: redis_store.RedisClient) -> None:
    one, late = Process(client, "mta-1", connections=10), Process(client, "mta-2", connections=10)
    one.windows.tell_pause(one.pacer, 0.05)
    await one.ask(0)
    await asyncio.sleep(0.1)
    assert await late.ask(5) == 1
    assert late.pacer.pushed_back(asyncio.get_running_loop().time(), asyncio.get_running_loop().time(), "421 later")
    assert late.pacer.pauses == 1


async def test_while_redis_is_away_each_process_probes_for_itself(client: redis_store.RedisClient) -> None:
    one = Process(client, "mta-1", connections=10)
    one.windows.tell_pause(one.pacer, 0.05)
    await one.ask(0)
    assert one.pacer.half_open
    nowhere = redis_store.connect(NOWHERE)
    one.windows._client = nowhere
    one.pacer.pauses = 1
    assert await one.ask(1) == 1
    assert one.pacer.probing
    await nowhere.aclose()


async def test_without_redis_a_process_keeps_to_the_part_that_its_shards_stand_for() -> None:
    nowhere = redis_store.connect(NOWHERE)
    assert await Process(nowhere, "mta-1", 0.25, connections=20).ask(20) == 5
    assert await Process(nowhere, "mta-2", 0.75, connections=20).ask(20) == 15
    assert await Process(nowhere, "mta-3", 0.01, connections=20).ask(20) == 1
    assert await Process(nowhere, "mta-4", 0.75, connections=20).ask(2) == 2
    await nowhere.aclose()


async def test_leases_lost_with_redis_memory_settle_again(client: redis_store.RedisClient) -> None:
    one, other = Process(client, "mta-1", connections=10), Process(client, "mta-2", connections=10)
    one.pacer.open, other.pacer.open = 8, 8  # each had its own idea
    await client.one("FLUSHDB")
    for _ in range(4):
        for process in (one, other):
            process.pacer.open = min(process.pacer.open, await process.ask(10))
    assert one.pacer.open + other.pacer.open <= 10
    assert min(one.pacer.share, other.pacer.share) >= 2


async def test_a_pause_of_one_process_is_heard_by_all(client: redis_store.RedisClient) -> None:
    one, other = Process(client, "mta-1"), Process(client, "mta-2")
    await other.ask(1)
    now = asyncio.get_running_loop().time()
    one.windows.tell_pause(one.pacer, 30.0)
    await one.ask(0)
    await other.ask(1)
    assert other.pacer.paused(now + 25)
    assert other.pacer.probing
    assert not one.pacer.pauses  # whoever told it keeps its own time


async def test_every_key_of_a_site_lies_in_its_own_slot() -> None:
    pacer = pacer_for("mx.peer.test")
    assert "{site:mx.peer.test}" in window_key(pacer)
    assert "{site:mx.peer.test}" in pace_key(pacer)


# -- pace --------------------------------------------------------------------------------------


async def seconds_for(processes: list[Process], messages: int) -> float:
    """Return how long the processes take to begin that many messages, asking as often as they can."""
    count, began = 0, time.monotonic()

    async def begin(process: Process) -> None:
        nonlocal count
        while count < messages and await process.windows.token(process.pacer, PATIENCE_S):
            count += 1

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        for process in processes:
            tasks.create_task(begin(process))
    return time.monotonic() - began


async def test_all_processes_together_keep_the_rate(client: redis_store.RedisClient) -> None:
    processes = [Process(client, f"mta-{number}", per_second=40) for number in range(3)]
    assert await seconds_for(processes, 72) > 60 / 40


async def test_the_tightest_of_several_rates_holds(client: redis_store.RedisClient) -> None:
    assert await seconds_for([Process(client, "mta-1", per_second=1000, per_minute=60)], 3) > 0.9


async def test_without_redis_the_rate_is_parted_by_shards() -> None:
    nowhere = redis_store.connect(NOWHERE)
    assert await seconds_for([Process(nowhere, "mta-1", 0.5, per_second=40)], 28) > 20 / 20
    await nowhere.aclose()


async def test_nobody_waits_longer_for_pace_than_his_patience(client: redis_store.RedisClient) -> None:
    process = Process(client, "mta-1", per_hour=1)
    assert await process.windows.token(process.pacer, 1.0)
    async with asyncio.timeout(PATIENCE_S):
        assert not await process.windows.token(process.pacer, 0.2)
