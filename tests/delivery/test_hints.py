"""Hints over a real Valkey: announced, read, acknowledged, taken over, and lost."""

import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from engine.base import ids
from engine.delivery.hints import GROUP, Hint, HintReader, Hints, WakeListener, WokenShards
from engine.delivery.partition import hint_stream
from engine.store.redis import OPEN_S, RedisClient, RedisUnavailable, connect
from ops.embedded import Temporary
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


async def pending(client: RedisClient, shard: int) -> int:
    return int((await client.one("XPENDING", hint_stream(shard), GROUP))[0])


def is_away(hints: Hints) -> bool:
    return hints.away


def messages_of(hints: list[Hint]) -> list[UUID]:
    return [message for hint in hints for message in hint.messages]


# -- the usual way ----------------------------------------------------------------------------


async def test_what_is_announced_is_read_once_and_finished(client: RedisClient, shard: int) -> None:
    messages = await announce(Hints(client), shard, 3)
    reader = HintReader(client, "mta-1")

    found = await reader.read([shard])

    assert messages_of(found) == messages
    assert {hint.shard for hint in found} == {shard}
    assert await reader.read([shard]) == []
    assert await pending(client, shard) == 1
    assert await reader.ack({shard: [hint.entry for hint in found]})
    assert await pending(client, shard) == 0


async def test_a_reader_sees_what_was_announced_before_it_came(client: RedisClient, shard: int) -> None:
    early = await announce(Hints(client), shard)

    assert messages_of(await HintReader(client, "mta-1").read([shard])) == early


async def test_announcements_of_a_moment_share_a_round_trip(client: RedisClient, shard: int) -> None:
    hints = Hints(client)
    messages = list(ids.uuid7s(20))
    for message in messages:
        hints.announce({shard: [message], shard + 5_000: [message]})
    await hints.drain()
    found = await HintReader(client, "mta-1").read([shard, shard + 5_000])

    assert sorted(messages_of(found)) == sorted(messages * 2)
    assert len(found) == 2


async def test_what_is_announced_right_after_another_goes_out_together(
    client: RedisClient, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.delivery.hints.GATHER_S", 0.5)  # a busy machine reads longer than 8 ms
    hints, reader = Hints(client), HintReader(client, "mta-1")
    [alone] = await announce(hints, shard)
    first = await reader.read([shard])
    together = list(ids.uuid7s(20))
    for message in together:
        hints.announce({shard: [message]})
        await asyncio.sleep(0)
    await hints.drain()
    behind = await reader.read([shard])

    assert messages_of(first) == [alone]
    assert [list(hint.messages) for hint in behind] == [together]


async def test_the_number_read_at_once_is_bounded(client: RedisClient, shard: int) -> None:
    hints = Hints(client)
    messages = [(await announce(hints, shard))[0] for _ in range(5)]
    reader = HintReader(client, "mta-1")

    first, second, third = [messages_of(await reader.read([shard], max_each=2)) for _ in range(3)]

    assert (first, second, third) == (messages[:2], messages[2:4], messages[4:])


async def test_two_readers_never_get_the_same_hint(client: RedisClient, shard: int) -> None:
    hints = Hints(client)
    messages = [(await announce(hints, shard))[0] for _ in range(10)]
    one, two = HintReader(client, "mta-1"), HintReader(client, "mta-2")

    found = [messages_of(await reader.read([shard], max_each=3)) for reader in (one, two, one, two)]

    assert sorted(itertools.chain(*found)) == sorted(messages)


async def test_the_next_owner_takes_over_what_a_dead_one_had_read(client: RedisClient, shard: int) -> None:
    messages = await announce(Hints(client), shard, 4)
    assert messages_of(await HintReader(client, "dead").read([shard])) == messages
    heir = HintReader(client, "heir")

    found = await heir.take_over([shard])

    assert messages_of(found) == messages
    assert await heir.ack({shard: [hint.entry for hint in found]})
    assert await pending(client, shard) == 0
    assert await heir.take_over([shard]) == []


async def test_a_hint_whose_reader_never_heard_of_it_is_found_after_a_while(client: RedisClient, shard: int) -> None:
    await announce(Hints(client), shard)
    [lost] = await HintReader(client, "mta-1").read([shard])  # as one whose answer came too late
    owner = HintReader(client, "mta-1")

    assert await owner.left_long([shard], idle_s=60) == {}
    await asyncio.sleep(0.05)
    found = await owner.left_long([shard, next(_fresh)], idle_s=0.04)

    assert found == {shard: [lost.entry]}
    assert await owner.left_long([shard], idle_s=0.04) == {}  # it was looked at just now
    assert await owner.ack(found)
    assert await pending(client, shard) == 0


async def test_a_hint_that_was_read_and_trimmed_away_is_not_left_for_ever(client: RedisClient, shard: int) -> None:
    await announce(Hints(client), shard)
    reader = HintReader(client, "mta-1")
    await reader.read([shard])
    await client.one("XTRIM", hint_stream(shard), "MAXLEN", 0)

    await reader.ack(await reader.left_long([shard], idle_s=0))

    assert await pending(client, shard) == 0


async def test_nothing_to_do_asks_nothing(client: RedisClient) -> None:
    reader = HintReader(connect("redis://127.0.0.1:1"), "mta-1")

    assert await reader.read([]) == []
    assert await reader.take_over([]) == []
    assert await reader.left_long([], idle_s=0) == {}
    assert await reader.ack({})


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
    hints, reader = Hints(doomed), HintReader(doomed, "mta-1")
    await announce(hints, shard)
    [before] = await reader.read([shard])
    await doomed.one("FLUSHALL")

    assert await reader.ack({shard: [before.entry]})
    await reader.read([shard])  # NOGROUP: the next read makes the group anew
    after = await announce(hints, shard)
    assert messages_of(await reader.read([shard])) == after
    assert hints.lost == 0


async def test_a_take_over_after_a_flush_finds_nothing_and_does_not_fail(doomed: RedisClient, shard: int) -> None:
    reader = HintReader(doomed, "mta-1")
    await announce(Hints(doomed), shard)
    await reader.read([shard])
    await doomed.one("FLUSHALL")

    assert await reader.take_over([shard]) == []


async def test_announcing_to_a_dead_redis_neither_waits_nor_raises_and_is_counted(
    disposable_servers: Temporary, doomed: RedisClient, shard: int
) -> None:
    hints, reader = Hints(doomed), HintReader(doomed, "mta-1")
    await announce(hints, shard)
    before = hints.lost  # a busy machine may take longer than the time-out of Redis
    disposable_servers.valkey.kill()

    for _ in range(100):
        hints.announce({shard: [ids.uuid7()]})  # no coroutine: it can't wait
    await hints.drain()
    assert hints.lost == before + 100
    assert is_away(hints)
    with pytest.raises(RedisUnavailable):
        await reader.read([shard])
    assert not await reader.ack({shard: [b"1-1"]})

    disposable_servers.valkey.start()
    await asyncio.sleep(OPEN_S + 0.1)
    assert is_away(hints)  # nobody has asked since
    await hints.probe()
    assert not is_away(hints)
    after = await announce(hints, shard)
    assert hints.lost == before + 100
    assert messages_of(await reader.read([shard]))[-1:] == after


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

    assert len(messages_of(await HintReader(doomed, "mta-1").read([shard]))) == 10


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
