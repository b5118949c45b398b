"""Define failed deliveries as read from the account log."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class BounceType(StrEnum):
    """How a delivery ended: refused for good, or given up after the last retry."""

    BOUNCED = "bounced"
    FAILED = "failed"


class BounceFilters(Struct, frozen=True, kw_only=True):
    """The filters of a list; None means no filter."""

    type: str | None = None
    category: str | None = None
    scope: str | None = None
    recipient_domain: str | None = None
    domains: list[str] | None = None
    streams: list[str] | None = None
    since: datetime | None = None
    until: datetime | None = None


class BounceRow(Struct, frozen=True):
    """An event about a recipient. `payload` is its JSON; the message's fields are None once it is deleted."""

    id: UUID
    seq: int
    type: str
    message_id: UUID | None
    occurred_at: datetime
    payload: str
    from_domain: str | None
    stream: str | None


class BounceRows(Struct, frozen=True):
    """A page, newest first; `before` is the number of the event to go on before, None at the end."""

    rows: list[BounceRow]
    before: int | None


class ReadRange(Struct, frozen=True):
    """How many events a page may read, and the lowest number among them; None without any."""

    events: int
    lowest: int | None


class ClassCount(Struct, frozen=True):
    """The failed deliveries of one class and scope, with the last reply."""

    category: str
    scope: str | None
    bounces: int
    suppressed: int
    last_at: datetime
    diagnostic: str


class ClassCounts(Struct, frozen=True):
    """The counts by class, most first, and whether older events of the period were left out."""

    rows: list[ClassCount]
    counted: int
    complete: bool
