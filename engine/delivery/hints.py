"""Hints in Redis streams: "look now" for a shard's owner. Losing one costs seconds, never a message.

One stream per shard (engine.delivery.partition.hint_stream), one consumer group. An entry holds the ids of
fresh messages, 16 bytes each. A pub/sub message then names the shards to look at, so that nobody has to block
on hundreds of streams; no command names two shards' keys (Redis Cluster).
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

import structlog
from msgspec import Struct
from redis.exceptions import RedisError

from engine.delivery.partition import hint_stream
from engine.store.postgres import heed_cancellation
from engine.store.redis import AWAY, RedisClient, RedisCommand, RedisUnavailable

GROUP = "mta"
WAKE_CHANNEL = "wb:wake"
KEPT_ENTRIES = 10_000  # per stream; what is trimmed away is found through the queue's due times
SILENCE_S = 5.0  # on the wake channel, before its server is asked whether it is there still
GATHER_S = 0.008  # from one sending to the next: each costs the sender, the server and every listener 0.1 ms
MAX_UNSENT = 50_000  # message ids a process keeps for a Redis that is slow; beyond, the queue row suffices
_FIELD = b"m"

_log = structlog.get_logger("hints")


class Hints:
    """Announces fresh queue rows. Never raises and never waits: announcing is off the accepting path."""

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
        """True from the first failure until Redis answers again."""
        return self._failing

    async def probe(self) -> None:
        """While Redis is away and nobody announces anything: ask whether it is back."""
        if self._failing:
            with suppress(RedisUnavailable):
                await self._client.ping()
                self._failing = False

    def announce(self, hinted: Mapping[int, Iterable[UUID]]) -> None:
        """Tell the owners of these shards about these messages."""
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
        """Wait until what was announced has been sent or given up."""
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
        """Write the entries and wake their owners; returns the shards whose entry could not be written."""
        commands = []
        for shard, messages in batch.items():
            stream = hint_stream(shard)
            packed = b"".join([message.bytes for message in messages])
            commands.append(RedisCommand(stream, ("XADD", stream, "MAXLEN", "~", KEPT_ENTRIES, "*", _FIELD, packed)))
        commands.append(RedisCommand(None, ("PUBLISH", WAKE_CHANNEL, ",".join(map(str, batch)))))
        answers = await self._client.ask(commands)
        return {
            shard: answer
            for shard, answer in zip(batch, answers, strict=False)  # the last one is the wake-up's
            if isinstance(answer, RedisError | RedisUnavailable)
        }


class Hint(Struct, frozen=True):
    """One stream entry."""

    shard: int
    entry: bytes
    messages: tuple[UUID, ...]


class HintReader:
    """Reads the hints of the shards a process owns, as one consumer of the group."""

    def __init__(self, client: RedisClient, consumer: str) -> None:
        self._client = client
        self._consumer = consumer
        self._grouped: set[int] = set()
        self._generation = client.generation
        self._left: set[int] = set()  # shards whose stream another server keeps by now
        self._putting_off = False

    async def read(self, shards: Iterable[int], *, most: int = 64) -> list[Hint]:
        """Fresh entries of these shards, at most `most` a shard. Those of shards whose server is away are left out:
        their due times find them. Raises Away when that is true of all."""
        wanted = list(shards)
        if not wanted:
            return []
        await self._clear_up(wanted)
        await self._ensure_groups(wanted)
        answers = await self._client.ask([self._read_one(shard, most) for shard in wanted])
        hints: list[Hint] = []
        for shard, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, RedisError):  # NOGROUP: the stream was flushed away, or was never copied
                self._grouped.discard(shard)
            elif answer and not isinstance(answer, RedisUnavailable):
                hints += [_hint(shard, entry, fields) for entry, fields in answer[0][1]]
        return hints

    async def take_over(self, shards: Iterable[int]) -> list[Hint]:
        """What earlier owners of these shards had read and not finished: now this consumer's."""
        wanted = list(shards)
        if not wanted:
            return []
        await self._ensure_groups(wanted)
        answers = await self._client.ask([self._claim_one(shard) for shard in wanted], timeout_s=5)
        return [
            _hint(shard, entry, fields)
            for shard, answer in zip(wanted, answers, strict=True)
            if not isinstance(answer, RedisError | RedisUnavailable)
            for entry, fields in answer[1]
            if entry is not None
        ]

    async def left_long(self, shards: Iterable[int], idle_s: float) -> dict[int, list[bytes]]:
        """Entries of these shards that somebody read `idle_s` ago and did not finish, some of each shard: the answer
        to the reader was lost, or its word that they are done. They are this consumer's now, and of fresh age."""
        wanted = list(shards)
        if not wanted:
            return {}
        answers = await self._client.ask([self._claim_one(shard, idle_s, "JUSTID") for shard in wanted])
        return {
            shard: answer[1]
            for shard, answer in zip(wanted, answers, strict=True)
            if not isinstance(answer, RedisError | RedisUnavailable) and answer[1]
        }

    async def ack(self, entries: Mapping[int, list[bytes]]) -> bool:
        """Finish entries whose messages are settled; False when Redis is away and it should be tried again."""
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
            _log.warning("acknowledgements put off until Redis is back", error=str(away))
        self._putting_off = away is not None
        return away is None

    async def _clear_up(self, shards: list[int]) -> None:
        """A server that was promoted may not have heard of acknowledgements: what it holds to be unfinished is
        finished, for it is settled, in hand, or found by its due time."""
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
            if not isinstance(answer, RedisError | RedisUnavailable) or "BUSYGROUP" in str(answer):
                self._grouped.add(shard)

    def _read_one(self, shard: int, most: int) -> RedisCommand:
        stream = hint_stream(shard)
        words = ("XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", most, "STREAMS", stream, ">")
        return RedisCommand(stream, words)

    def _claim_one(self, shard: int, idle_s: float = 0, *how: str) -> RedisCommand:
        stream = hint_stream(shard)
        idle_ms = int(idle_s * 1_000)
        return RedisCommand(stream, ("XAUTOCLAIM", stream, GROUP, self._consumer, idle_ms, "0", "COUNT", 1000, *how))


async def unfinished(client: RedisClient, shards: Iterable[int]) -> int:
    """Entries of these shards that were read and not acknowledged, for whoever looks from outside. Raises Away when
    not every shard can be asked."""
    streams = [hint_stream(shard) for shard in shards]
    answers = await client.ask([RedisCommand(stream, ("XPENDING", stream, GROUP)) for stream in streams])
    for answer in answers:
        if isinstance(answer, RedisUnavailable):
            raise answer
    return sum(int(answer[0]) for answer in answers if isinstance(answer, list))  # others: no such stream or group


class Wakes:
    """Listens which shards have fresh hints; survives Redis going away, and the server it listens at dying or falling
    behind."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def run(self, woken: "WokenShards") -> None:
        """Feed `woken` until cancelled."""
        while True:
            try:
                await self._listen(woken)
            except (*AWAY, RedisUnavailable) as error:
                heed_cancellation()
                _log.warning("wake channel lost", error=repr(error))
                await asyncio.sleep(1)

    async def _listen(self, woken: "WokenShards") -> None:
        """Until the channel may be deaf: another server is primary, or its own does not answer."""
        generation = self._client.generation
        async with await self._client.pubsub() as channel:
            async with asyncio.timeout(SILENCE_S):
                await channel.subscribe(WAKE_CHANNEL)
            woken.all()
            asked = False
            while generation == self._client.generation:
                heed_cancellation()  # the driver swallows one that meets its own time-out
                message = await channel.get_message(timeout=SILENCE_S)
                if message is None:
                    if asked:
                        raise TimeoutError("no answer from the wake channel's server")
                    async with asyncio.timeout(SILENCE_S):
                        await channel.ping()
                asked = message is None
                if message is not None and message["type"] == "message":
                    woken.some(_numbers(message["data"]))


class WokenShards:
    """Shards somebody has hinted at since they were last taken."""

    def __init__(self) -> None:
        self._shards: set[int] = set()
        self._every = True
        self._event = asyncio.Event()

    def some(self, shards: Iterable[int]) -> None:
        """These shards have hints."""
        self._shards.update(shards)
        self._event.set()

    def all(self) -> None:
        """Any shard may have hints."""
        self._every = True
        self._event.set()

    def take(self, owned: Iterable[int]) -> list[int]:
        """Those of the owned shards to look at now; forgets them."""
        found = list(owned) if self._every else [shard for shard in owned if shard in self._shards]
        self._shards.clear()
        self._every = False
        self._event.clear()
        return found

    async def wait(self, timeout_s: float) -> None:
        """Until a hint comes, or the time is up."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            pass


def _numbers(data: bytes) -> list[int]:
    """Shards named on the wake channel; whatever else somebody publishes there names none."""
    return [int(part) for part in data.split(b",") if part.isdigit()]


def _hint(shard: int, entry: bytes, fields: Sequence[bytes] | None) -> Hint:
    """An entry as the server gives it, names and values in turn; None when it was trimmed away."""
    named = dict(zip(fields[::2], fields[1::2], strict=True)) if fields else {}
    packed = named.get(_FIELD, b"")
    whole = len(packed) - len(packed) % 16
    return Hint(shard, entry, tuple(UUID(bytes=packed[at : at + 16]) for at in range(0, whole, 16)))
