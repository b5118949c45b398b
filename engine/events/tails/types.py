"""Define events, filters and positions of tails, and the rows of pulls."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from msgspec import Raw, Struct

from engine.base.events import Status

Fields = Sequence[Any]


class Ending(StrEnum):
    """State why a tail has ended."""

    IDLE = "idle"
    SHUTDOWN = "shutdown"
    UNAUTHORIZED = "unauthorized"
    TOO_SLOW = "too_slow"
    TOO_MANY_STREAMS = "too_many_streams"


class TailReader(Struct, frozen=True):
    """Identify the reader of a log: either an API key (by its public part) or a session in the account."""

    account_id: UUID
    key_id: str | None = None
    session_id: UUID | None = None


class SlotRow(Struct, frozen=True):
    """An attempt to claim a slot: the slot tried (None: all are taken), and the slot claimed."""

    tried: int | None
    slot: int | None


class HolderRow(Struct, frozen=True):
    """The holder of a renewed slot."""

    holder: UUID


class EndsRow(Struct, frozen=True):
    """The last seq of an account's log, and the last seq that retention has deleted."""

    account_id: UUID
    seq: int
    purged_through_seq: int


class TailRow(Struct, frozen=True):
    """An event with fields of its message, which may have been deleted."""

    id: UUID
    seq: int
    type: str
    created_at: str
    message_id: UUID | None
    payload: str
    recipient_count: int | None
    sender: str | None
    subject: str | None
    from_domain: str | None
    stream: str | None
    tags: str | None
    recipients: list[Fields]  # (name, address) of those in `to`


class StepRow(Struct, frozen=True):
    """An event of a message, to derive its status."""

    message_id: UUID
    seq: int
    type: str
    payload: str | None


class PullRow(Struct, frozen=True):
    """A pulled event."""

    id: UUID
    seq: int
    type: str
    created_at: str
    message_id: UUID | None
    payload: str


class Event(Struct, frozen=True):
    """An event of a message as tails show it; `status` is the message's status after the event."""

    seq: int
    id: UUID
    type: str
    created_at: str
    message_id: UUID | None
    status: Status | None
    sender: str | None
    to: list[tuple[str | None, str]]
    subject: str | None
    from_domain: str | None
    stream: str | None
    tags: list[str]
    detail: Raw


class ShownEvent(Struct, frozen=True):
    """An encoded event with the fields that filters use.

    An empty chunk is an event of the account, which tails of messages skip.
    """

    seq: int
    type: str
    chunk: bytes
    status: Status | None = None
    from_domain: str | None = None
    stream: str | None = None
    tags: frozenset[str] = frozenset()


class Filters(Protocol):
    """Choose the events that one tail shows."""

    def takes(self, event: ShownEvent) -> bool:
        """Return True if the event matches."""


class TailFilters(Struct, frozen=True, kw_only=True):
    """The filters of a tail, all of which must match; `domains` and `streams` match with any of theirs."""

    status: Status | None = None
    domains: list[str] | None = None
    streams: list[str] | None = None
    tags: frozenset[str] = frozenset()

    def takes(self, event: ShownEvent) -> bool:
        """Return True if the event matches."""
        return (
            bool(event.chunk)
            and (self.status is None or event.status is self.status)
            and (self.domains is None or event.from_domain in self.domains)
            and (self.streams is None or event.stream in self.streams)
            and self.tags <= event.tags
        )


class EventFilters(Struct, frozen=True):
    """The event types that a tail of the whole log shows, and beginnings of types; without both it shows all."""

    types: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def takes(self, event: ShownEvent) -> bool:
        """Return True if the type is one of them, or begins with a prefix."""
        return not (self.types or self.prefixes) or event.type in self.types or event.type.startswith(self.prefixes)


class TailStart(Struct, frozen=True, kw_only=True):
    """State where a tail begins: after seq `after`, or with the last `replay` matching events."""

    after: int | None = None
    replay: int = 0
