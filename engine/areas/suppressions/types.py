"""Suppressions as they are stored and listed."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class Reason(StrEnum):
    """Why an address gets no mail of an account."""

    BOUNCE = "bounce"
    COMPLAINT = "complaint"
    MANUAL = "manual"
    UNSUBSCRIBE = "unsubscribe"


class Hit(Struct, frozen=True):
    """An address of a batch that its account must not send to."""

    account_id: UUID
    address: str
    reason: str


class SuppressionRow(Struct, frozen=True):
    """One suppressed address, in its canonical form, with the message that caused it where one did."""

    address: str
    reason: str
    detail: str | None
    message_id: UUID | None
    created_at: datetime


class SuppressionCursor(Struct, frozen=True):
    """A place in the list: rows after it are older, or as old with a smaller address."""

    created_at: datetime
    address: str


class SuppressionFilters(Struct, frozen=True, kw_only=True):
    """What a list is narrowed to; None leaves a field open."""

    before: SuppressionCursor
    reason: str | None = None
    search: list[str] | None = None  # LIKE patterns, any of which may match


class SuppressionRows(Struct, frozen=True):
    """Suppressions newest first, and whether older ones match."""

    rows: list[SuppressionRow]
    has_more: bool
