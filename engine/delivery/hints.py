"""Hints in Redis streams: "look now" for a shard's owner. Losing one costs seconds, never a message.

One stream per shard (engine.delivery.partition.hint_stream), one consumer group. An entry holds the ids of
fresh messages, 16 bytes each. A pub/sub message then names the shards to look at, so that nobody has to block
on hundreds of streams; no command names two shards' keys (Redis Cluster).
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

import redis.asyncio as redis
import structlog
from msgspec import Struct
from redis.exceptions import RedisError, ResponseError

from engine.delivery.partition import hint_stream
from engine.store.postgres import heed_cancellation
from engine.store.redis import AWAY, Away, Circuit

GROUP = "mta"
WAKE_CHANNEL = "wb:wake"
KEPT_ENTRIES = 10_000  # per stream; what is trimmed away is found through the queue's due times
MOST_UNSENT = 50_000  # message ids a process keeps for a Redis that is slow; beyond, the queue row suffices
_FIELD = b"m"

_log = structlog.get_logger("hints")


class Hints:
    """Announces fresh queue rows. Never raises and never waits: announcing is off the accepting path."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._circuit = Circuit()
        self._unsent: dict[int, list[UUID]] = {}
        self._count = 0
        self._task: asyncio.Task[None] | None = None
        self.lost = 0

    @property
    def away(self) -> bool:
        """True from the first failure until Redis answers again."""
        return self._circuit.failing

    async def probe(self) -> None:
        """While Redis is away and nobody announces anything: ask whether it is back."""
        if self._circuit.failing and not self._circuit.open:
            with suppress(Away):
                await self._circuit.run(self._client.ping())

    def announce(self, hinted: Mapping[int, Iterable[UUID]]) -> None:
        """Tell the owners of these shards about these messages."""
        for shard, messages in hinted.items():
            fresh = list(messages)
            if self._count + len(fresh) > MOST_UNSENT:
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
            batch, self._unsent, self._count = self._unsent, {}, 0
            try:
                await self._circuit.run(self._send(batch))
            except Away as error:
                self.lost += sum(map(len, batch.values()))
                _log.warning("hints lost", shards=len(batch), error=str(error))

    async def _send(self, batch: Mapping[int, list[UUID]]) -> None:
        pipe = self._client.pipeline(transaction=False)
        for shard, messages in batch.items():
            packed = b"".join([message.bytes for message in messages])
            pipe.execute_command("XADD", hint_stream(shard), "MAXLEN", "~", KEPT_ENTRIES, "*", _FIELD, packed)
        pipe.execute_command("PUBLISH", WAKE_CHANNEL, ",".join(map(str, batch)))
        await pipe.execute()


class Hint(Struct, frozen=True):
    """One stream entry."""

    shard: int
    entry: bytes
    messages: tuple[UUID, ...]


class HintReader:
    """Reads the hints of the shards a process owns, as one consumer of the group."""

    def __init__(self, client: redis.Redis, consumer: str) -> None:
        self._client = client
        self._consumer = consumer
        self._circuit = Circuit()
        self._grouped: set[int] = set()
        self._putting_off = False

    @property
    def away(self) -> bool:
        """True while Redis does not answer."""
        return self._circuit.open

    async def read(self, shards: Iterable[int], *, most: int = 64) -> list[Hint]:
        """Fresh entries of these shards, at most `most` a shard; raises Away when Redis does."""
        wanted = list(shards)
        if not wanted:
            return []
        await self._circuit.run(self._ensure_groups(wanted))
        answers = await self._circuit.run(self._read(wanted, most))
        hints: list[Hint] = []
        for shard, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, ResponseError):  # NOGROUP: the stream was flushed away
                self._grouped.discard(shard)
            elif isinstance(answer, RedisError):
                raise Away(repr(answer))
            elif answer:
                hints += [_hint(shard, entry, fields) for entry, fields in answer[0][1]]
        return hints

    async def take_over(self, shards: Iterable[int]) -> list[Hint]:
        """What earlier owners of these shards had read and not finished: now this consumer's."""
        wanted = list(shards)
        if not wanted:
            return []
        await self._circuit.run(self._ensure_groups(wanted))
        pipe = self._client.pipeline(transaction=False)
        for shard in wanted:
            pipe.execute_command("XAUTOCLAIM", hint_stream(shard), GROUP, self._consumer, 0, "0", "COUNT", 1000)
        answers = await self._circuit.run(pipe.execute(raise_on_error=False), timeout_s=5)
        return [
            _hint(shard, entry, fields)
            for shard, answer in zip(wanted, answers, strict=True)
            if not isinstance(answer, RedisError)
            for entry, fields in answer[1]
            if entry is not None
        ]

    async def ack(self, entries: Mapping[int, list[bytes]]) -> bool:
        """Finish entries whose messages are settled; False when Redis is away and it should be tried again."""
        if not entries:
            return True
        pipe = self._client.pipeline(transaction=False)
        for shard, ids in entries.items():
            pipe.execute_command("XACK", hint_stream(shard), GROUP, *ids)
        try:
            await self._circuit.run(pipe.execute(raise_on_error=False), timeout_s=2)
        except Away as error:
            if not self._putting_off:
                _log.warning("acknowledgements put off until Redis is back", error=str(error))
            self._putting_off = True
            return False
        self._putting_off = False
        return True

    async def _ensure_groups(self, shards: list[int]) -> None:
        missing = [shard for shard in shards if shard not in self._grouped]
        if not missing:
            return
        pipe = self._client.pipeline(transaction=False)
        for shard in missing:
            pipe.execute_command("XGROUP", "CREATE", hint_stream(shard), GROUP, "0", "MKSTREAM")
        for shard, answer in zip(missing, await pipe.execute(raise_on_error=False), strict=True):
            if not isinstance(answer, RedisError) or "BUSYGROUP" in str(answer):
                self._grouped.add(shard)

    async def _read(self, shards: list[int], most: int) -> list[Any]:
        pipe = self._client.pipeline(transaction=False)
        for shard in shards:
            pipe.execute_command(
                "XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", most, "STREAMS", hint_stream(shard), ">"
            )
        answers: list[Any] = await pipe.execute(raise_on_error=False)
        return answers


class Wakes:
    """Listens which shards have fresh hints; survives Redis going away."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    async def run(self, woken: "WokenShards") -> None:
        """Feed `woken` until cancelled."""
        while True:
            try:
                async with self._client.pubsub() as channel:
                    await channel.subscribe(WAKE_CHANNEL)
                    woken.all()
                    while True:
                        heed_cancellation()  # the driver swallows one that meets its own time-out
                        message = await channel.get_message(ignore_subscribe_messages=True, timeout=5)
                        if message is not None:
                            woken.some(_numbers(message["data"]))
            except AWAY as error:
                heed_cancellation()
                _log.warning("wake channel lost", error=repr(error))
                await asyncio.sleep(1)


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


def _hint(shard: int, entry: bytes, fields: dict[bytes, bytes]) -> Hint:
    packed = fields.get(_FIELD, b"")
    whole = len(packed) - len(packed) % 16
    return Hint(shard, entry, tuple(UUID(bytes=packed[at : at + 16]) for at in range(0, whole, 16)))
