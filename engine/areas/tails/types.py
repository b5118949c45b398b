"""What a tail shows and what it is narrowed to; what a pull of events gives."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Raw, Struct

from engine.base.events import Status

Fields = Sequence[Any]


class Ending(StrEnum):
    """Why a tail is over."""

    IDLE = "idle"
    SHUTDOWN = "shutdown"
    UNAUTHORIZED = "unauthorized"
    TOO_SLOW = "too_slow"
    TOO_MANY_STREAMS = "too_many_streams"


class TailReader(Struct, frozen=True):
    """Who follows a log: an API key by its clear part, or a session at the account that it was at. One of the two."""

    account_id: UUID
    key_id: str | None = None
    session_id: UUID | None = None


class SlotRow(Struct, frozen=True):
    """An attempt at a place: the one tried (None: all are taken), and the one got."""

    tried: int | None
    slot: int | None


class HolderRow(Struct, frozen=True):
    """A tail that has kept its place."""

    holder: UUID


class EndsRow(Struct, frozen=True):
    """Where an account's log ends, and up to where retention has taken events."""

    account_id: UUID
    seq: int
    purged_through_seq: int


class TailRow(Struct, frozen=True):
    """One event with what its message says; the message may be gone."""

    id: UUID
    seq: int
    type: str
    created_at: str
    message_id: UUID | None
    payload: str
    recipient_count: int | None
    sender: str | None
    subject: str | None
    stream: str | None
    tags: str | None
    recipients: list[Fields]  # (name, address) of those in `to`


class StepRow(Struct, frozen=True):
    """One step of a message's way."""

    message_id: UUID
    seq: int
    type: str
    payload: str | None


class PullRow(Struct, frozen=True):
    """One event as it is pulled."""

    id: UUID
    seq: int
    type: str
    created_at: str
    message_id: UUID | None
    payload: str


class Event(Struct, frozen=True):
    """One event of a message as tails show it. `status` is the message's as the event left it."""

    seq: int
    id: UUID
    type: str
    created_at: str
    message_id: UUID | None
    status: Status | None
    sender: str | None
    to: list[tuple[str | None, str]]
    subject: str | None
    stream: str | None
    tags: list[str]
    detail: Raw


class ShownEvent(Struct, frozen=True):
    """One place of the log in memory: what filters ask for, and the octets that go to every tail. Empty octets: an
    event of the account, which tails pass over."""

    seq: int
    status: Status | None
    stream: str | None
    tags: frozenset[str]
    chunk: bytes


class TailFilters(Struct, frozen=True, kw_only=True):
    """What a tail is narrowed to; every filter given must match."""

    status: Status | None = None
    stream: str | None = None
    tags: frozenset[str] = frozenset()

    def takes(self, event: ShownEvent) -> bool:
        """Whether the event is to be shown."""
        return (
            bool(event.chunk)
            and (self.status is None or event.status is self.status)
            and (self.stream is None or event.stream == self.stream)
            and self.tags <= event.tags
        )


class TailStart(Struct, frozen=True, kw_only=True):
    """Where a tail begins: behind place `after`, or with the last `replay` events that it would have shown."""

    after: int | None = None
    replay: int = 0
