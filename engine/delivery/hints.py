"""Hints in Redis streams: announce fresh queue rows to the mta process that owns their shard.

A lost hint delays a delivery by seconds, until its due time; it never loses a message. Each shard has one stream
(`partition.hint_stream`), read by one consumer group. An entry holds the ids of fresh messages, 16 bytes each. A
pub/sub message then names the shards to look at, so that no process has to block on hundreds of streams. No command
names the keys of two shards, because Redis Cluster may keep them on different servers.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

import structlog
from msgspec import Struct

from engine.delivery.partition import hint_stream
from engine.store.redis import RedisClient, RedisCommand, RedisRefused, RedisUnavailable

GROUP = "mta"
WAKE_CHANNEL = "wb:wake"
KEPT_ENTRIES = 10_000  # per stream; deliveries whose hints are trimmed are found through the queue's due times
SILENCE_S = 5.0  # without a message on the wake channel, after which its server is pinged
GATHER_S = 0.008  # between two batches of hints: each batch costs the sender, Redis and every listener 0.1 ms
MAX_UNSENT = 50_000  # message ids that a process buffers while Redis is slow; beyond, the due times find the rows
_FIELD = b"m"

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


class Hint(Struct, frozen=True):
    """An entry of a shard's stream."""

    shard: int
    entry: bytes
    messages: tuple[UUID, ...]


class HintReader:
    """Reads the hints of the shards that a process owns, as one consumer of the group."""

    def __init__(self, client: RedisClient, consumer: str) -> None:
        self._client = client
        self._consumer = consumer
        self._grouped: set[int] = set()
        self._generation = client.generation
        self._left: set[int] = set()  # shards whose stream has moved to another server
        self._putting_off = False

    async def read(self, shards: Iterable[int], *, max_each: int = 64) -> list[Hint]:
        """Return fresh entries of these shards, at most `max_each` per shard.

        Shards whose Redis server is away are left out: their due times find the deliveries. Raises RedisUnavailable if
        no server answers.
        """
        wanted = list(shards)
        if not wanted:
            return []
        await self._clear_up(wanted)
        await self._ensure_groups(wanted)
        answers = await self._client.ask([self._read_one(shard, max_each) for shard in wanted])
        hints: list[Hint] = []
        for shard, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, RedisRefused):  # NOGROUP: the stream was flushed or never replicated
                self._grouped.discard(shard)
            elif answer and not isinstance(answer, RedisUnavailable):
                hints += [_hint(shard, entry, fields) for entry, fields in answer[0][1]]
        return hints

    async def take_over(self, shards: Iterable[int]) -> list[Hint]:
        """Claim and return the entries that earlier owners of these shards read and did not acknowledge."""
        wanted = list(shards)
        if not wanted:
            return []
        await self._ensure_groups(wanted)
        answers = await self._client.ask([self._claim_one(shard) for shard in wanted], timeout_s=5)
        return [
            _hint(shard, entry, fields)
            for shard, answer in zip(wanted, answers, strict=True)
            if not isinstance(answer, RedisRefused | RedisUnavailable)
            for entry, fields in answer[1]
            if entry is not None
        ]

    async def left_long(self, shards: Iterable[int], idle_s: float) -> dict[int, list[bytes]]:
        """Claim entries of these shards that were read `idle_s` ago and not acknowledged; return some ids of each
        shard.

        Such entries remain when the reply to a read or to an acknowledgement was lost.
        """
        wanted = list(shards)
        if not wanted:
            return {}
        answers = await self._client.ask([self._claim_one(shard, idle_s, "JUSTID") for shard in wanted])
        return {
            shard: answer[1]
            for shard, answer in zip(wanted, answers, strict=True)
            if not isinstance(answer, RedisRefused | RedisUnavailable) and answer[1]
        }

    async def ack(self, entries: Mapping[int, list[bytes]]) -> bool:
        """Acknowledge entries whose messages are settled; return False if Redis is away, so that the caller tries
        again.
        """
        if not entries:
            return True
        commands = [
            RedisCommand(stream := hint_stream(shard), ("XACK", stream, GROUP, *ids)) for shard, ids in entries.items()
        ]
        try:
            answers = await self._client.ask(commands, timeout_s=2)
            away = next((answer for answer in answers if isinstance(answer, RedisUnavailable)), None)
        except RedisUnavailable as error:
            away = error
        if away is not None and not self._putting_off:
            _log.warning("acknowledgement postponed until redis is back", error=str(away))
        self._putting_off = away is not None
        return away is None

    async def _clear_up(self, shards: list[int]) -> None:
        """Acknowledge all pending entries of a server that was promoted and may have missed acknowledgements.

        No delivery depends on these entries: each is settled, in memory, or found by its due time.
        """
        if self._generation != self._client.generation:
            self._generation = self._client.generation
            self._left |= self._grouped
            self._grouped.clear()
        left = [shard for shard in shards if shard in self._left]
        if left:
            entries: dict[int, list[bytes]] = {}
            for hint in await self.take_over(left):
                entries.setdefault(hint.shard, []).append(hint.entry)
            if await self.ack(entries):
                self._left.difference_update(left)

    async def _ensure_groups(self, shards: list[int]) -> None:
        missing = [shard for shard in shards if shard not in self._grouped]
        if not missing:
            return
        commands = [
            RedisCommand(stream := hint_stream(shard), ("XGROUP", "CREATE", stream, GROUP, "0", "MKSTREAM"))
            for shard in missing
        ]
        for shard, answer in zip(missing, await self._client.ask(commands), strict=True):
            if not isinstance(answer, RedisRefused | RedisUnavailable) or "BUSYGROUP" in str(answer):
                self._grouped.add(shard)

    def _read_one(self, shard: int, max_each: int) -> RedisCommand:
        stream = hint_stream(shard)
        words = ("XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", max_each, "STREAMS", stream, ">")
        return RedisCommand(stream, words)

    def _claim_one(self, shard: int, idle_s: float = 0, *how: str) -> RedisCommand:
        stream = hint_stream(shard)
        idle_ms = int(idle_s * 1_000)
        return RedisCommand(stream, ("XAUTOCLAIM", stream, GROUP, self._consumer, idle_ms, "0", "COUNT", 1000, *how))


async def unfinished(client: RedisClient, shards: Iterable[int]) -> int:
    """Return how many entries of these shards were read and not acknowledged.

    Raises RedisUnavailable unless every shard can be asked.
    """
    streams = [hint_stream(shard) for shard in shards]
    answers = await client.ask([RedisCommand(stream, ("XPENDING", stream, GROUP)) for stream in streams])
    for answer in answers:
        if isinstance(answer, RedisUnavailable):
            raise answer
    return sum(
        int(answer[0]) for answer in answers if isinstance(answer, list)
    )  # an error: there is no such stream or group


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
                await asyncio.sleep(1)

    async def _listen(self, woken: "WokenShards") -> None:
        """Listen until another server is primary; raise RedisUnavailable if the channel's server does not answer a
        ping.
        """
        generation = self._client.generation
        async with await self._client.pubsub() as channel:
            await channel.subscribe(WAKE_CHANNEL, timeout_s=SILENCE_S)
            woken.all()
            asked = False
            while generation == self._client.generation:
                message = await channel.get_message(timeout_s=SILENCE_S)
                if message is None:
                    if asked:
                        raise RedisUnavailable("Redis does not answer on the wake channel")
                    await channel.ping(timeout_s=SILENCE_S)
                asked = message is None
                if message is not None and message["type"] == "message":
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


def _hint(shard: int, entry: bytes, fields: Sequence[bytes] | None) -> Hint:
    """Return a stream entry as a Hint; `fields` alternates names and values and is None for a trimmed entry."""
    named = dict(zip(fields[::2], fields[1::2], strict=True)) if fields else {}
    packed = named.get(_FIELD, b"")
    whole = len(packed) - len(packed) % 16
    return Hint(shard, entry, tuple(UUID(bytes=packed[at : at + 16]) for at in range(0, whole, 16)))
