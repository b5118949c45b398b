"""Hints over a real Valkey: announced, read once, read by the next owner, and lost."""

import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from engine.base import ids
from engine.delivery.hints import HintReader, Hints, WakeListener, WokenShards
from engine.delivery.partition import hint_stream
from engine.store.redis import OPEN_S, RedisClient, RedisUnavailable, connect
from ops.host.temporary_servers import Temporary
from tests.harness.patience import PATIENCE_S
from tests.harness.sending import until

_fresh = itertools.count(10_000)  # shards of no settings: each test has its own


@pytest.fixture
def shard() -> int:
    return next(_fresh)


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[RedisClient]:
    one = connect(redis_url, timeout_s=PATIENCE_S)
    yield one
    await one.aclose()


@pytest.fixture
async def doomed(disposable_servers: Temporary) -> AsyncIterator[RedisClient]:
    """A client of a Valkey that the test may kill; it runs again afterwards."""
    one = connect(disposable_servers.redis_url)
    yield one
    await one.aclose()
    if not disposable_servers.valkey.alive():
        disposable_servers.valkey.start()


async def announce(hints: Hints, shard: int, count: int = 1) -> list[UUID]:
    messages = list(ids.uuid7s(count))
    hints.announce({shard: messages})
    await hints.drain()
    return messages


async def read(reader: HintReader, *shards: int, max_each: int = 64) -> list[UUID]:
    return [message for _, message in (await reader.read(shards, max_each=max_each)).messages]


def is_away(hints: Hints) -> bool:
    return hints.away


# -- the usual way ----------------------------------------------------------------------------


async def test_a_hint_is_read_once(client: RedisClient, shard: int) -> None:
    hints, reader = Hints(client), HintReader(client)
    messages = await announce(hints, shard, 3)

    assert (await reader.read([shard])).messages == [(shard, message) for message in messages]
    assert await read(reader, shard) == []
    more = await announce(hints, shard, 2)
    assert await read(reader, shard) == more
    assert await read(reader, shard) == []


async def test_reading_leaves_nothing_in_redis(client: RedisClient, shard: int) -> None:
    await announce(Hints(client), shard)
    before = await client.one("XINFO", "STREAM", hint_stream(shard))
    reader = HintReader(client)
    await reader.read([shard])
    await reader.read([shard])

    assert await client.one("XINFO", "STREAM", hint_stream(shard)) == before


async def test_announcements_of_a_moment_share_a_round_trip(client: RedisClient, shard: int) -> None:
    hints = Hints(client)
    messages = list(ids.uuid7s(20))
    for message in messages:
        hints.announce({shard: [message], shard + 5_000: [message]})
    await hints.drain()

    assert sorted(await read(HintReader(client), shard, shard + 5_000)) == sorted(messages * 2)
    assert await client.one("XLEN", hint_stream(shard)) == 1


async def test_what_is_announced_right_after_another_goes_out_together(
    client: RedisClient, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.delivery.hints.GATHER_S", 0.5)  # a busy machine reads longer than 8 ms
    hints = Hints(client)
    await announce(hints, shard)
    together = list(ids.uuid7s(20))
    for message in together:
        hints.announce({shard: [message]})
        await asyncio.sleep(0)
    await hints.drain()

    [[_, [_, packed]]] = await client.one("XREVRANGE", hint_stream(shard), "+", "-", "COUNT", 1)
    assert packed == b"".join(message.bytes for message in together)


async def test_the_number_read_at_once_is_bounded(client: RedisClient, shard: int) -> None:
    hints, reader = Hints(client), HintReader(client)
    await announce(hints, shard)
    await reader.read([shard])
    messages = [(await announce(hints, shard))[0] for _ in range(5)]

    found = [await reader.read([shard, next(_fresh)], max_each=2) for _ in range(4)]

    parts = [[message for _, message in one.messages] for one in found]
    assert parts == [messages[:2], messages[2:4], messages[4:], []]
    assert [one.unread for one in found] == [[shard], [shard], [], []]


async def test_each_owner_of_a_shard_reads_the_last_seconds_of_its_stream(client: RedisClient, shard: int) -> None:
    stream, (old, late, last) = hint_stream(shard), ids.uuid7s(3)
    for at, message in (("100000-0", old), ("101000-0", late), ("106000-0", last)):
        await client.one("XADD", stream, at, "m", message.bytes)
    dead, heir = HintReader(client), HintReader(client)

    assert await read(dead, shard) == [late, last]
    assert await read(heir, shard) == [late, last]


async def test_a_shard_that_comes_back_to_an_owner_is_read_from_the_last_seconds_on(
    client: RedisClient, shard: int
) -> None:
    stream, reader = hint_stream(shard), HintReader(client)
    messages = list(ids.uuid7s(3))
    await client.one("XADD", stream, "100000-0", "m", messages[0].bytes)
    assert await read(reader, shard) == messages[:1]
    await client.one("XADD", stream, "100001-0", "m", messages[1].bytes)  # read by another owner meanwhile
    await client.one("XADD", stream, "900000-0", "m", messages[2].bytes)

    reader.start([shard])

    assert await read(reader, shard) == messages[2:]


async def test_a_new_owner_reads_only_the_end_of_a_long_stream(
    client: RedisClient, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.delivery.hints.RECENT_ENTRIES", 3)
    hints = Hints(client)
    messages = [(await announce(hints, shard))[0] for _ in range(5)]

    assert await read(HintReader(client), shard) == messages[2:]


@pytest.mark.parametrize("fields", [{"m": b"1234567"}, {"m": b""}, {"other": b"field"}])
async def test_an_entry_that_this_software_did_not_write_announces_nothing(
    client: RedisClient, shard: int, fields: dict[str, bytes]
) -> None:
    reader = HintReader(client)
    [[name, value]] = fields.items()
    await client.one("XADD", hint_stream(shard), "*", name, value)
    assert await read(reader, shard) == []

    assert await read(reader, shard) == []
    messages = await announce(Hints(client), shard)
    assert await read(reader, shard) == messages


async def test_a_key_of_another_type_does_not_disturb_other_shards(client: RedisClient, shard: int) -> None:
    await client.one("SET", hint_stream(shard), "text")
    other = next(_fresh)
    messages = await announce(Hints(client), other)

    assert await read(HintReader(client), shard, other) == messages


async def test_readers_with_a_consumer_group_and_without_do_not_disturb_each_other(
    client: RedisClient, shard: int
) -> None:
    """While an installation is upgraded, processes of older versions read the same streams through a group."""
    hints, reader, stream = Hints(client), HintReader(client), hint_stream(shard)
    before = await announce(hints, shard)
    by_group = ("XREADGROUP", "GROUP", "mta", "old", "COUNT", 64, "STREAMS", stream, ">")
    await client.one("XGROUP", "CREATE", stream, "mta", "0")
    assert len((await client.one(*by_group))[0][1]) == 1  # never acknowledged

    assert await read(reader, shard) == before
    after = await announce(hints, shard)
    assert await read(reader, shard) == after
    assert len((await client.one(*by_group))[0][1]) == 1


async def test_reading_no_shards_sends_no_command() -> None:
    assert await read(HintReader(connect("redis://127.0.0.1:1"))) == []


async def test_a_stream_stays_bounded(client: RedisClient, shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.delivery.hints.KEPT_ENTRIES", 100)
    hints = Hints(client)
    for _ in range(1_000):
        hints._unsent[shard] = [ids.uuid7()]
        await hints._send(hints._unsent)

    assert await client.one("XLEN", hint_stream(shard)) < 500


# -- wake-ups ---------------------------------------------------------------------------------


async def test_an_announcement_wakes_the_owner(redis_url: str, client: RedisClient, shard: int) -> None:
    listener = connect(redis_url, timeout_s=30)
    woken = WokenShards()
    listening = asyncio.create_task(WakeListener(listener).run(woken))
    await until(woken._event.is_set)
    assert woken.take([1, 2, shard]) == [1, 2, shard]  # anything may have come before it listened
    await announce(Hints(client), shard)
    async with asyncio.timeout(PATIENCE_S):
        await woken.wait(600)
    assert woken.take([1, 2, shard]) == [shard]
    assert woken.take([1, 2, shard]) == []
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    await listener.aclose()


async def test_waiting_for_a_wake_up_ends_by_itself() -> None:
    woken = WokenShards()
    began = time.monotonic()
    await woken.wait(0.05)

    assert time.monotonic() - began > 0.04


async def test_a_shard_woken_before_it_was_owned_is_looked_at_by_who_gained_it() -> None:
    woken = WokenShards()
    woken.take([])
    woken.some([3])
    assert woken.take([1, 2]) == []
    woken.some([3])  # what the gain says

    assert woken.take([1, 3]) == [3]


# -- Redis away -------------------------------------------------------------------------------


async def test_a_flushed_redis_costs_a_hint_and_heals(doomed: RedisClient, shard: int) -> None:
    hints, reader = Hints(doomed), HintReader(doomed)
    await announce(hints, shard)
    await reader.read([shard])
    await doomed.one("FLUSHALL")

    assert await read(reader, shard) == []
    after = await announce(hints, shard)
    assert await read(reader, shard) == after
    assert hints.lost == 0


async def test_a_stream_that_begins_again_with_a_clock_that_is_behind_is_read_after_its_first_hint(
    client: RedisClient, shard: int
) -> None:
    stream, reader = hint_stream(shard), HintReader(client)
    messages = list(ids.uuid7s(3))
    await client.one("XADD", stream, "900000-0", "m", messages[0].bytes)
    await reader.read([shard])
    await client.one("DEL", stream)  # as on a server that was promoted without this stream
    await client.one("XADD", stream, "100000-0", "m", messages[1].bytes)

    assert await read(reader, shard) == []
    await client.one("XADD", stream, "100001-0", "m", messages[2].bytes)
    assert await read(reader, shard) == messages[1:]
    assert await read(reader, shard) == []


async def test_a_stream_without_the_entry_read_last_is_read_on(client: RedisClient, shard: int) -> None:
    """A replica that is promoted early lacks the entry; so does a stream that was trimmed meanwhile."""
    hints, reader = Hints(client), HintReader(client)
    await announce(hints, shard)
    await reader.read([shard])
    await client.one("XTRIM", hint_stream(shard), "MAXLEN", 0)
    messages = await announce(hints, shard, 2)

    assert await read(reader, shard) == messages


async def test_announcing_to_a_dead_redis_neither_waits_nor_raises_and_is_counted(
    disposable_servers: Temporary, doomed: RedisClient, shard: int
) -> None:
    hints, reader = Hints(doomed), HintReader(doomed)
    await announce(hints, shard)
    await reader.read([shard])
    before = hints.lost  # a busy machine may take longer than the time-out of Redis
    disposable_servers.valkey.kill()

    for _ in range(100):
        hints.announce({shard: [ids.uuid7()]})  # no coroutine: it can't wait
    await hints.drain()
    assert hints.lost == before + 100
    assert is_away(hints)
    with pytest.raises(RedisUnavailable):
        await reader.read([shard])

    disposable_servers.valkey.start()
    await asyncio.sleep(OPEN_S + 0.1)
    assert is_away(hints)  # nobody has asked since
    await hints.probe()
    assert not is_away(hints)
    after = await announce(hints, shard)
    assert hints.lost == before + 100
    assert (await read(reader, shard))[-1:] == after


async def test_a_hanging_redis_costs_no_more_than_its_time_out(
    disposable_servers: Temporary, doomed: RedisClient, shard: int
) -> None:
    hints = Hints(doomed)
    await announce(hints, shard)
    assert disposable_servers.valkey.pid is not None
    os.kill(disposable_servers.valkey.pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await announce(hints, shard, 5)
        assert is_away(hints)
        async with asyncio.timeout(PATIENCE_S):
            await announce(hints, shard, 5)
    finally:
        os.kill(disposable_servers.valkey.pid, signal.SIGCONT)

    assert hints.lost == 10


async def test_what_waits_for_a_slow_redis_is_bounded(
    doomed: RedisClient, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.delivery.hints.MAX_UNSENT", 10)
    hints = Hints(doomed)
    for _ in range(25):
        hints.announce({shard: [ids.uuid7()]})
    assert hints.lost == 15
    await hints.drain()

    assert len(await read(HintReader(doomed), shard)) == 10


async def test_the_wake_channel_survives_a_restart(
    disposable_servers: Temporary, doomed: RedisClient, shard: int
) -> None:
    listener = connect(disposable_servers.redis_url, timeout_s=30)
    woken = WokenShards()
    listening = asyncio.create_task(WakeListener(listener).run(woken))
    await until(woken._event.is_set)
    woken.take([])

    disposable_servers.valkey.kill()
    await asyncio.sleep(0.2)
    disposable_servers.valkey.start()
    await until(woken._event.is_set)

    assert woken.take([1, shard]) == [1, shard]  # whatever was announced meanwhile
    await announce(Hints(doomed), shard)
    await woken.wait(PATIENCE_S)
    assert woken.take([1, shard]) == [shard]
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    await listener.aclose()
