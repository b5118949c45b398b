"""Define suppressions as stored and listed."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from engine.base.list_cursors import ListPlace


class Reason(StrEnum):
    """State why an account must not send to an address."""

    BOUNCE = "bounce"
    COMPLAINT = "complaint"
    MANUAL = "manual"
    UNSUBSCRIBE = "unsubscribe"


class Hit(Struct, frozen=True):
    """A suppressed address found in a batch."""

    account_id: UUID
    address: str
    reason: str


class SuppressionRow(Struct, frozen=True):
    """A suppressed canonical address, with the message that caused it if there is one."""

    address: str
    reason: str
    detail: str | None
    message_id: UUID | None
    created_at: datetime


class SuppressionFilters(Struct, frozen=True, kw_only=True):
    """The filters of a list; None means no filter."""

    before: ListPlace
    reason: str | None = None
    search: list[str] | None = None  # LIKE patterns, any of which may match


class SuppressionRows(Struct, frozen=True):
    """A page of suppressions, newest first; `has_more` is True if older ones match."""

    rows: list[SuppressionRow]
    has_more: bool
