"""Define events with their hashes, and verdicts on the hash chain, for the audit."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

LAST_ID = UUID(int=(1 << 128) - 1)


class LogHead(Struct, frozen=True):
    """Both ends of a log. `stray` is the number of an event outside of them."""

    seq: int
    hash: bytes
    purged_through_seq: int
    purged_hash: bytes  # of the last event that retention deleted; 32 zero bytes for seq 0
    stray: int | None


class CheckedPage(Struct, frozen=True):
    """The result of checking a page of events."""

    events: int
    last_seq: int | None
    last_id: UUID | None
    last_hash: bytes | None
    broken_seq: int | None
    broken_before: int | None
    messages: list[UUID]  # pairs of the column and the payload, with the first seq of each pair
    payload_messages: list[str]
    places: list[int]
    erased: list[int]  # events without payload


class ListRow(Struct, frozen=True):
    """A listed event; `occurred_at` is the exact text that was hashed."""

    seq: int
    id: UUID
    type: str
    occurred_at: str
    payload: str | None  # null after an erasure
    hash: bytes


class ExportRow(Struct, frozen=True):
    """An exported event, with the number and hash before it."""

    seq: int
    id: UUID
    type: str
    message_id: UUID | None
    occurred_at: str
    payload: str | None  # null after an erasure
    hash: bytes
    before: int
    previous: bytes | None
    sound: bool
    inside: bool


class NamedRow(Struct, frozen=True):
    """The ranges of erased events that one event names, as JSON; null if it names none."""

    entries: str | None


class HashRow(Struct, frozen=True):
    """The hash of one event."""

    seq: int
    hash: bytes


class ReachedRow(Struct, frozen=True):
    """State whether an event occurred at a given time or later."""

    seq: int
    reached: bool


class Position(Struct):
    """The progress of a verification: the last event and its hash."""

    seq: int
    id: UUID
    hash: bytes | None


class ChainBreak(Struct, frozen=True):
    """Describe a break of the chain: event number and problem."""

    at: int
    problem: str


class ChainVerdict(Struct, frozen=True):
    """The result of a verification of the events up to `head`, the end of the log at `as_of`."""

    broken: ChainBreak | None
    events: int
    head: LogHead
    as_of: datetime
    erased: int = 0  # of them, entries without payload


class Range(Struct, frozen=True):
    """A time range; None leaves an end open, `until` is exclusive."""

    since: datetime | None = None
    until: datetime | None = None
