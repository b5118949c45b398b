"""Hints, limits and windows over a real Redis Cluster of three primaries."""

import asyncio
from uuid import UUID

import pytest
from redis.crc import key_slot

from engine.base import ids
from engine.delivery.hints import FreshHints, HintReader, Hints, WakeListener, WokenShards
from engine.delivery.partition import hint_stream
from engine.store.rate_limits import RateLimiter
from engine.store.redis import RedisClient, RedisUnavailable
from engine.store.redis_cluster import SLOTS, read_slots
from loadtests.drill.valkey_servers import Valkey, move_slot
from tests.harness.patience import PATIENCE_S
from tests.store.redis_servers import clustered, eventually

SHARDS = 40


@pytest.mark.exhaustive
async def test_every_use_of_redis_is_right_on_a_cluster_that_changes() -> None:
    """One cluster for all of it: bringing one up takes seconds."""
    async with clustered() as (servers, client):
        hints, reader = Hints(client), HintReader(client)
        woken = WokenShards()
        listening = asyncio.create_task(WakeListener(client).run(woken))
        await eventually(woken._event.is_set)
        woken.take([])

        await everything_announced_is_read_once(hints, reader)
        await eventually(woken._event.is_set)
        assert woken.take(range(SHARDS)) == list(range(SHARDS))
        await limits_count_on_whatever_server_keeps_the_bucket(client)
        await a_slot_that_moves_takes_its_stream_along(servers, hints, reader)
        await a_slot_on_its_way_is_written_to_as_a_guest(servers, hints, reader)
        await a_flush_costs_hints_and_scripts_and_heals(servers, client, hints, reader)
        await a_dead_primary_takes_only_its_own_keys_along(servers, client, hints, reader)

        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening


async def everything_announced_is_read_once(hints: Hints, reader: HintReader) -> None:
    messages = await announce(hints)

    assert (await reader.read(range(SHARDS))).messages == list(messages.items())
    assert (await reader.read(range(SHARDS))).messages == []
    assert hints.lost == 0


async def limits_count_on_whatever_server_keeps_the_bucket(client: RedisClient) -> None:
    one, other = RateLimiter(client), RateLimiter(client)
    for bucket in map(str, range(10)):
        standings = await asyncio.gather(*[limits.check(bucket, 1) for limits in (one, other) for _ in range(4)])
        assert sum(standing.allowed for standing in standings) == 2


async def a_slot_that_moves_takes_its_stream_along(servers: list[Valkey], hints: Hints, reader: HintReader) -> None:
    messages = await announce(hints)
    slot = key_slot(hint_stream(0).encode())
    source = owner(servers, slot)
    moved = await asyncio.to_thread(move_slot, slot, source, next(one for one in servers if one is not source))

    assert moved == 1
    assert ids_of(await reader.read(range(SHARDS), max_each=100)) == set(messages.values())
    assert hints.lost == 0


async def a_slot_on_its_way_is_written_to_as_a_guest(servers: list[Valkey], hints: Hints, reader: HintReader) -> None:
    fresh = next(shard for shard in range(1_000, 9_000) if not held(servers, key_slot(hint_stream(shard).encode())))
    slot = key_slot(hint_stream(fresh).encode())
    source = next(one for one in servers if knows(one, slot) == one.port)
    target = next(one for one in servers if one is not source)
    target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.command("CLUSTER", "MYID"))
    source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.command("CLUSTER", "MYID"))

    messages = await announce(hints, [fresh])

    assert target.command("CLUSTER", "COUNTKEYSINSLOT", slot) == 1
    assert ids_of(await reader.read([fresh])) == set(messages.values())
    await asyncio.to_thread(move_slot, slot, source, target)


async def a_flush_costs_hints_and_scripts_and_heals(
    servers: list[Valkey], client: RedisClient, hints: Hints, reader: HintReader
) -> None:
    for server in servers:
        server.command("FLUSHALL")
        server.command("SCRIPT", "FLUSH")
    assert ids_of(await reader.read(range(SHARDS))) == set()
    messages = await announce(hints)

    assert ids_of(await reader.read(range(SHARDS))) == set(messages.values())
    assert (await RateLimiter(client).check("after the flush", 1)).remaining == 1


async def a_dead_primary_takes_only_its_own_keys_along(
    servers: list[Valkey], client: RedisClient, hints: Hints, reader: HintReader
) -> None:
    dead = servers[2]
    theirs = [shard for shard in range(SHARDS) if knows(servers[0], key_slot(hint_stream(shard).encode())) == dead.port]
    dead.kill()
    lost = hints.lost
    messages = await announce(hints)

    assert hints.lost - lost == len(theirs)
    assert is_away(hints)
    others = {one for shard, one in messages.items() if shard not in theirs}
    assert ids_of(await reader.read(range(SHARDS))) == others
    with pytest.raises(RedisUnavailable):
        await reader.read(theirs)
    assert (await RateLimiter(client).check("whoever keeps it", 1)).allowed

    await asyncio.to_thread(dead.start)
    async with asyncio.timeout(PATIENCE_S):
        while is_away(hints):
            messages = await announce(hints)
            await asyncio.sleep(0.1)
    assert {messages[shard] for shard in theirs} <= ids_of(await reader.read(theirs, max_each=100))


def test_a_map_with_a_gap_leaves_its_slots_to_nobody() -> None:
    slots = read_slots([[0, 9, [b"a", 1, b"id"], [b"r", 2, b"id"]], [20, SLOTS - 1, [b"", 3, b"id"]]], "asked")

    assert slots[0] == slots[9] == ("a", 1)
    assert slots[10:20] == [None] * 10
    assert slots[20] == ("asked", 3)
    assert len(slots) == SLOTS


async def announce(hints: Hints, shards: list[int] | None = None) -> dict[int, UUID]:
    messages = {shard: ids.uuid7() for shard in shards or range(SHARDS)}
    hints.announce({shard: [one] for shard, one in messages.items()})
    await hints.drain()
    return messages


def is_away(hints: Hints) -> bool:
    return hints.away


def ids_of(hints: FreshHints) -> set[UUID]:
    return {message for _, message in hints.messages}


def owner(servers: list[Valkey], slot: int) -> Valkey:
    return next(one for one in servers if one.command("CLUSTER", "COUNTKEYSINSLOT", slot))


def held(servers: list[Valkey], slot: int) -> bool:
    return any(one.command("CLUSTER", "COUNTKEYSINSLOT", slot) for one in servers)


def knows(server: Valkey, slot: int) -> int:
    """The port of the primary that has the slot, as this server knows it."""
    for one in server.command("CLUSTER", "SHARDS"):
        shard = dict(zip(one[::2], one[1::2], strict=True)) if isinstance(one, list) else one
        ranges = shard["slots"]
        if any(first <= slot <= last for first, last in zip(ranges[::2], ranges[1::2], strict=True)):
            node = shard["nodes"][0]
            known = dict(zip(node[::2], node[1::2], strict=True)) if isinstance(node, list) else node
            return int(known["port"])
    return 0
