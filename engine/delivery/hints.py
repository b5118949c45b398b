"""Hints in Redis streams: announce fresh queue rows to the mta process that owns their shard.

A lost hint delays a delivery by seconds, until its due time; it never loses a message. So Redis records no readers and
no acknowledgements. Each shard has one stream (`partition.hint_stream`), bounded in length. An entry holds the ids of
fresh messages, 16 bytes each. The shard's owner remembers in memory which entry it read last. A pub/sub message names
the shards to look at, so that no process has to block on hundreds of streams. No command names the keys of two shards,
because Redis Cluster may keep them on different servers.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

import structlog
from msgspec import Struct

from engine.delivery.partition import hint_stream
from engine.store.pace import PACE
from engine.store.redis import RedisClient, RedisCommand, RedisRefused, RedisUnavailable

WAKE_CHANNEL = "wb:wake"
KEPT_ENTRIES = 1_000  # per stream; deliveries whose hints are trimmed are found through the queue's due times
RECENT_ENTRIES = 64  # of a stream, read by the new owner of its shard
RECENT_MS = 5_000  # before a stream's newest entry; deliveries announced earlier are due by now
SILENCE_S = 5.0  # without a message on the wake channel, after which its server is pinged
GATHER_S = 0.008  # between two batches of hints: each batch costs the sender, Redis and every listener 0.1 ms
MAX_UNSENT = 50_000  # message ids that a process buffers while Redis is slow; beyond, the due times find the rows
_FIELD = b"m"

_Entry = tuple[bytes, Sequence[bytes]]  # id, and names and values in turn

_log = structlog.get_logger("hints")


class Hints:
    """Writes the hints of one process; buffers them while Redis is slow. Announcing never raises and never waits."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._failing = False
        self._unsent: dict[int, list[UUID]] = {}
        self._count = 0
        self._task: asyncio.Task[None] | None = None
        self._sent_at = 0.0
        self.lost = 0

    @property
    def away(self) -> bool:
        """Return True from the first failure until Redis answers again."""
        return self._failing

    async def probe(self) -> None:
        """Ask Redis whether it is back if it failed and nothing is being sent."""
        if self._failing:
            with suppress(RedisUnavailable):
                await self._client.ping()
                self._failing = False

    def announce(self, hinted: Mapping[int, Iterable[UUID]]) -> None:
        """Queue hints about these messages, keyed by shard, for sending in the background."""
        for shard, messages in hinted.items():
            fresh = list(messages)
            if self._count + len(fresh) > MAX_UNSENT:
                self.lost += len(fresh)
                continue
            self._unsent.setdefault(shard, []).extend(fresh)
            self._count += len(fresh)
        if self._unsent and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._send_all())

    async def nudge(self) -> None:
        """Pass a sign of life (`engine.store.pace`) on to the processes that listen on the wake channel."""
        with suppress(RedisUnavailable, RedisRefused):
            await self._client.ask([RedisCommand(None, ("PUBLISH", WAKE_CHANNEL, ""))])

    async def drain(self) -> None:
        """Wait until all announced hints were sent or dropped."""
        if self._task is not None:
            await self._task

    async def _send_all(self) -> None:
        while self._unsent:
            if (left_s := self._sent_at + GATHER_S - time.monotonic()) > 0:
                await asyncio.sleep(left_s)
            self._sent_at = time.monotonic()
            batch, self._unsent, self._count = self._unsent, {}, 0
            try:
                failed = await self._send(batch)
            except RedisUnavailable as error:
                failed = dict.fromkeys(batch, error)
            self.lost += sum([len(batch[shard]) for shard in failed])
            if failed and not self._failing:
                _log.warning("hints lost", shards=len(failed), error=str(next(iter(failed.values()))))
            self._failing = bool(failed)

    async def _send(self, batch: Mapping[int, list[UUID]]) -> Mapping[int, Exception]:
        """Write the entries and wake the shards' owners; return the errors of the shards whose entry could not be
        written.
        """
        commands = []
        for shard, messages in batch.items():
            stream = hint_stream(shard)
            packed = b"".join([message.bytes for message in messages])
            commands.append(RedisCommand(stream, ("XADD", stream, "MAXLEN", "~", KEPT_ENTRIES, "*", _FIELD, packed)))
        commands.append(RedisCommand(None, ("PUBLISH", WAKE_CHANNEL, ",".join(map(str, batch)))))
        answers = await self._client.ask(commands)
        return {
            shard: answer
            for shard, answer in zip(batch, answers, strict=False)  # the last answer is that of PUBLISH
            if isinstance(answer, RedisRefused | RedisUnavailable)
        }


class FreshHints(Struct, frozen=True):
    """The messages that were announced since the last read, as (shard, message), and the shards that may have more."""

    messages: list[tuple[int, UUID]]
    unread: list[int]


class HintReader:
    """Reads the hints of the shards that a process owns; remembers the last entry of each for as long as it lives."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._last: dict[int, bytes] = {}

    def start(self, shards: Iterable[int]) -> None:
        """Begin anew with these shards: the next read returns hints of the last seconds, even if another owner read
        them.
        """
        for shard in shards:
            self._last.pop(shard, None)

    async def read(self, shards: Iterable[int], *, max_each: int = 64) -> FreshHints:
        """Read new entries of these shards, at most `max_each` per shard once it was started.

        Shards whose Redis server is away are left out: their due times find the deliveries. Raises RedisUnavailable if
        no server answers.
        """
        messages: list[tuple[int, UUID]] = []
        unread: list[int] = []
        wanted = list(shards)
        answers = await self._client.ask([self._command(shard, max_each) for shard in wanted]) if wanted else []
        for shard, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, RedisRefused | RedisUnavailable):
                continue
            entries = self._fresh(shard, answer)
            messages += [(shard, message) for entry in entries for message in _messages(entry)]
            if len(entries) >= max_each:
                unread.append(shard)
        return FreshHints(messages, unread)

    def _command(self, shard: int, max_each: int) -> RedisCommand:
        """Return the command that reads on from the last entry, which the reply repeats; or the stream's end."""
        stream = hint_stream(shard)
        last = self._last.get(shard)
        if last is None:
            return RedisCommand(stream, ("XREVRANGE", stream, "+", "-", "COUNT", RECENT_ENTRIES))
        return RedisCommand(stream, ("XRANGE", stream, last, "+", "COUNT", max_each + 1))

    def _fresh(self, shard: int, found: Sequence[_Entry]) -> list[_Entry]:
        """Return the entries that were not read yet, oldest first, and remember the last one."""
        last = self._last.pop(shard, None)
        if not found:
            # There is no stream. Or it lacks even the last entry: it was flushed or not replicated, and its successor
            # may be numbered by a clock that is behind. The next read begins anew.
            return []
        if last is None:
            found = _recent(found)
        self._last[shard] = found[-1][0]
        return [entry for entry in found if entry[0] != last]


class WakeListener:
    """Listens on the wake channel for shards that have fresh hints; reconnects when Redis fails, restarts or falls
    behind.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def run(self, woken: "WokenShards") -> None:
        """Pass the announced shards to `woken` until cancelled."""
        while True:
            try:
                await self._listen(woken)
            except RedisUnavailable as error:
                _log.warning("wake channel lost", error=repr(error))
                PACE.touch()  # nobody else tells of signs of life now
                await asyncio.sleep(1)  # meanwhile the due times find the mail

    async def _listen(self, woken: "WokenShards") -> None:
        """Listen until another server is primary; raise RedisUnavailable if the channel's server does not answer a
        ping.
        """
        generation = self._client.generation
        async with await self._client.pubsub() as channel:
            await channel.subscribe(WAKE_CHANNEL, timeout_s=SILENCE_S)
            woken.all()
            PACE.touch()
            asked = False
            while generation == self._client.generation:
                message = await channel.get_message(timeout_s=SILENCE_S)
                if message is None:
                    if asked:
                        raise RedisUnavailable("Redis does not answer on the wake channel")
                    await channel.ping(timeout_s=SILENCE_S)
                asked = message is None
                if message is not None and message["type"] == "message":
                    PACE.touch()
                    woken.some(_numbers(message["data"]))


class WokenShards:
    """The shards with new hints since the last `take`."""

    def __init__(self) -> None:
        self._shards: set[int] = set()
        self._every = True
        self._event = asyncio.Event()

    def some(self, shards: Iterable[int]) -> None:
        """Mark these shards as having hints."""
        self._shards.update(shards)
        self._event.set()

    def all(self) -> None:
        """Mark all shards, for use when hints may have been missed."""
        self._every = True
        self._event.set()

    def take(self, owned: Iterable[int]) -> list[int]:
        """Return the marked shards among `owned` and clear all marks."""
        found = list(owned) if self._every else [shard for shard in owned if shard in self._shards]
        self._shards.clear()
        self._every = False
        self._event.clear()
        return found

    async def wait(self, timeout_s: float) -> None:
        """Wait until a shard is marked, at most `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            pass


def _numbers(data: bytes) -> list[int]:
    """Return the shards that a message on the wake channel names; ignore anything that is not a number."""
    return [int(part) for part in data.split(b",") if part.isdigit()]


def _recent(newest_first: Sequence[_Entry]) -> list[_Entry]:
    """Return the entries that are at most RECENT_MS older than the newest, oldest first."""
    since = _milliseconds(newest_first[0]) - RECENT_MS
    return [entry for entry in reversed(newest_first) if _milliseconds(entry) >= since]


def _milliseconds(entry: _Entry) -> int:
    return int(entry[0].partition(b"-")[0])


def _messages(entry: _Entry) -> list[UUID]:
    """Return the messages that an entry announces; none if this software did not write it."""
    fields = entry[1]
    packed = dict(zip(fields[::2], fields[1::2], strict=True)).get(_FIELD, b"")
    whole = len(packed) - len(packed) % 16
    return [UUID(bytes=packed[at : at + 16]) for at in range(0, whole, 16)]
