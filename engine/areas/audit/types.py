"""The account log as the audit sees it: events with the hashes that chain them, and a verdict on the chain."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

LAST_ID = UUID(int=(1 << 128) - 1)


class LogHead(Struct, frozen=True):
    """Both ends of a log. `stray` is the place of an event that lies outside of them."""

    seq: int
    hash: bytes
    purged_through_seq: int
    purged_hash: bytes  # of the last event that retention took; of seq 0 it is 32 zero octets
    stray: int | None


class CheckedPage(Struct, frozen=True):
    """What checking a page of events came to."""

    events: int
    last_seq: int | None
    last_id: UUID | None
    last_hash: bytes | None
    broken_seq: int | None
    broken_before: int | None
    messages: list[UUID]  # beside them what the sealed texts say instead, and the first place of each pair
    told: list[str]
    places: list[int]


class ListRow(Struct, frozen=True):
    """One event as it is listed; `occurred_at` is the exact text that was hashed."""

    seq: int
    id: UUID
    type: str
    occurred_at: str
    payload: str
    hash: bytes


class ExportRow(Struct, frozen=True):
    """One event as it is exported, with the place and the hash before it."""

    seq: int
    id: UUID
    type: str
    message_id: UUID | None
    occurred_at: str
    payload: str
    hash: bytes
    before: int
    previous: bytes | None
    sound: bool
    inside: bool


class HashRow(Struct, frozen=True):
    """The hash at one place."""

    seq: int
    hash: bytes


class ReachedRow(Struct, frozen=True):
    """Whether the event at a place happened at a moment or later."""

    seq: int
    reached: bool


class Position(Struct):
    """How far a walk along the chain has come: the last event seen and its hash."""

    seq: int
    id: UUID
    hash: bytes | None


class ChainBreak(Struct, frozen=True):
    """Where a chain is broken, and how."""

    at: int
    problem: str


class ChainVerdict(Struct, frozen=True):
    """What replaying a chain came to. It covers the events up to `head`, the tip as it was at `as_of`."""

    broken: ChainBreak | None
    events: int
    head: LogHead
    as_of: datetime


class Range(Struct, frozen=True):
    """What a list or an export is narrowed to; None leaves an end open. `until` itself is outside."""

    since: datetime | None = None
    until: datetime | None = None
