"""Stored messages as they are read: what a list page, a single fetch and a download are made of."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

Fields = Sequence[Any]  # one nested record, in the order of its Struct's fields


class MessageRow(Struct):
    """One message with its recipients, of one snapshot: a recipient never contradicts its message."""

    id: UUID
    status: str
    source: str
    sender: str
    reply_to: str | None
    subject: str
    stream: str
    template: str | None
    template_version: int | None
    tags: str | None  # JSON, as are the next two
    metadata: str | None
    attachments: str | None
    size_bytes: int
    scheduled_at: datetime | None
    delivered_at: datetime | None
    resent_from: UUID | None
    recipients: list[Fields]  # of RecipientRow, by their number


class MessageWithWaybill(MessageRow):
    """A message with its waybill besides."""

    waybill: list[Fields]  # of EventRow, by seq


class RecipientRow(Struct, frozen=True):
    """Where one recipient of a message stands; `kind` is to, cc or bcc."""

    kind: str
    address: str
    name: str | None
    status: str
    attempts: int
    last_response: str | None
    next_attempt_at: datetime | None


class WaybillRow(Struct, frozen=True):
    """One line of a waybill; `payload` is the sealed JSON text."""

    id: UUID
    seq: int
    type: str
    occurred_at: datetime
    payload: str


class FilesRow(Struct, frozen=True):
    """What a download needs to know of its message."""

    attachments: str | None
    size_bytes: int


class BodyRow(Struct, frozen=True):
    """The composed message."""

    mime: bytes


class StoredFile(Struct, frozen=True):
    """An attachment as kept beside its message."""

    id: str
    filename: str
    content_type: str
    size_bytes: int
    sha256: str


class MessageFilters(Struct, frozen=True, kw_only=True):
    """What a list of messages is narrowed to; None leaves a field open. The ids bound the time: [low, high)."""

    low: UUID
    high: UUID
    status: str | None = None
    to: str | None = None
    search: list[str] | None = None  # ILIKE patterns, any of which may match
    domain: str | None = None
    stream: str | None = None
    tags: str | None = None  # JSON that the message's own contains
    metadata: list[str] | None = None  # likewise, any of them

    @property
    def scans(self) -> str | None:
        """The filter for which any number of messages that do not match may have to be passed over, or None."""
        names = {"status": self.status, "domain": self.domain, "stream": self.stream}
        return self.unindexed or next((name for name, value in names.items() if value is not None), None)

    @property
    def unindexed(self) -> str | None:
        """The filter for which messages have to be read one by one, or None."""
        names = {"search": self.search, "tag": self.tags, "metadata": self.metadata}
        return next((name for name, value in names.items() if value is not None), None)


class MessageRows(Struct, frozen=True):
    """Messages newest first, and whether older ones match."""

    rows: list[MessageRow]
    has_more: bool
