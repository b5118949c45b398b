"""Write a live tail as Server-Sent Events: the hub's events, heartbeats and a closing event."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from api.areas.tails.schemas import PulledEvent, TailBye, TailHeartbeat, TailMessage, TailReady
from api.http import sse
from engine.base import clock, ids
from engine.base.events import EventType
from engine.base.settings import Settings
from engine.events.tails import rules
from engine.events.tails.feed import EventView, MessageView
from engine.events.tails.hub import Tail
from engine.events.tails.types import Ending, Event, PullRow
from engine.sending.messages.rules import written

RETRY_MS: Final = (1_000, 3_000)  # drawn at random, so that the readers of a crashed worker do not reconnect at once
_ENCODER = msgspec.json.Encoder()
_MESSAGES: Final = {
    Ending.IDLE: "There was no event for a long time. Connect again to continue.",
    Ending.SHUTDOWN: "The server is being restarted. Connect again to continue.",
    Ending.UNAUTHORIZED: "The API key no longer authenticates, or the session has ended.",
    Ending.TOO_SLOW: "The client did not read the stream fast enough. Connect again to continue after the last event.",
    Ending.TOO_MANY_STREAMS: "The account opened more live tails than it may have; this one, the oldest, was closed.",
}


def encode(event: Event) -> bytes:
    """Return the `message` event of one event of the log; made once and shared by all tails."""
    data = TailMessage(
        seq=event.seq,
        id=ids.format_id(ids.Kind.EVENT, event.id),
        type=EventType(event.type),
        created_at=event.created_at,
        message_id=None if event.message_id is None else ids.format_id(ids.Kind.MESSAGE, event.message_id),
        status=event.status,
        from_=event.sender,
        to=[written(name, address) for name, address in event.to],
        subject=event.subject,
        stream=event.stream,
        tags=event.tags,
        detail=event.detail,
    )
    return sse.event("message", _ENCODER.encode(data), seq=event.seq)


def pulled(row: PullRow) -> PulledEvent:
    """Return one event of the log as `GET /v1/events` shows it."""
    return PulledEvent(
        ids.format_id(ids.Kind.EVENT, row.id),
        row.seq,
        row.type,
        row.created_at,
        None if row.message_id is None else ids.format_id(ids.Kind.MESSAGE, row.message_id),
        rules.detail_of(row.payload),
    )


def encode_row(row: PullRow) -> bytes:
    """Return the `event` event of one event of the log; made once and shared by all tails."""
    return sse.event("event", _ENCODER.encode(pulled(row)), seq=row.seq)


MESSAGES: Final = MessageView(encode)
EVENTS: Final = EventView(encode_row)


def bye(reason: Ending, seq: int | None = None) -> bytes:
    """Return the last event of a stream."""
    return sse.event("bye", _ENCODER.encode(TailBye(reason, _MESSAGES[reason])), seq=seq)


class Followed:
    """The pieces of one tail's response (`api.http.operation.Chunks`)."""

    def __init__(self, tail: Tail, settings: Settings) -> None:
        self._tail = tail
        self._heartbeat_s = settings.tail_heartbeat_s
        self._idle_s = settings.tail_idle_s
        self._now = asyncio.get_running_loop().time
        self._beat_at = 0.0
        self._idle_at = 0.0
        self._begun = self._over = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """Return the next events together, or a heartbeat, or the closing event."""
        if not self._begun:
            return self._ready()
        while not self._over:
            found = await self._tail.next(min(self._beat_at, self._idle_at) - self._now())
            now = self._now()
            if found:
                self._idle_at = now + self._idle_s
                return b"".join([one.chunk for one in found]) + self._beat(now)
            if self._tail.ended is None and now >= self._idle_at:
                self._tail.end(Ending.IDLE)
            if self._tail.ended is not None:
                self._over = True
                return bye(self._tail.ended, self._tail.at)
            if beat := self._beat(now):
                return beat
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Release the tail's place in the hub."""
        await self._tail.close()

    def _ready(self) -> bytes:
        self._begun = True
        self._beat_at, self._idle_at = self._now() + self._heartbeat_s, self._now() + self._idle_s
        data = TailReady(
            seq=self._tail.feed.head,
            after=self._tail.at,
            first_seq=self._tail.first,
            heartbeat_seconds=self._heartbeat_s,
            idle_seconds=self._idle_s,
        )
        return sse.event("ready", _ENCODER.encode(data), seq=self._tail.at, retry_ms=random.randint(*RETRY_MS))

    def _beat(self, now: float) -> bytes:
        if now < self._beat_at:
            return b""
        self._beat_at = now + self._heartbeat_s
        data = TailHeartbeat(self._tail.at, clock.iso(clock.now()))
        return sse.event("heartbeat", _ENCODER.encode(data), seq=self._tail.at)
