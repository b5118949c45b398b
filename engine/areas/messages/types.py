"""Define the rows of stored messages: list pages, single messages and downloads."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

Fields = Sequence[Any]  # one nested record, in the order of its Struct's fields


class MessageRow(Struct):
    """Hold one message with its recipients, from one snapshot."""

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
    """Hold a message with its recipients and waybill."""

    waybill: list[Fields]  # of EventRow, by seq


class RecipientRow(Struct, frozen=True):
    """Hold the status of one recipient; `kind` is to, cc or bcc."""

    kind: str
    address: str
    name: str | None
    status: str
    attempts: int
    last_response: str | None
    next_attempt_at: datetime | None


class WaybillRow(Struct, frozen=True):
    """Hold one event of a waybill; `payload` is the stored JSON text."""

    id: UUID
    seq: int
    type: str
    occurred_at: datetime
    payload: str


class FilesRow(Struct, frozen=True):
    """Hold the attachments (JSON) and size of one message."""

    attachments: str | None
    size_bytes: int


class BodyRow(Struct, frozen=True):
    mime: bytes


class StoredFile(Struct, frozen=True):
    """Describe an attachment of a stored message."""

    id: str
    filename: str
    content_type: str
    size_bytes: int
    sha256: str


class MessageFilters(Struct, frozen=True, kw_only=True):
    """Hold the filters of a message list; None means no filter. The ids bound the time: [low, high)."""

    low: UUID
    high: UUID
    status: str | None = None
    to: str | None = None
    search: list[str] | None = None  # ILIKE patterns, any of which may match
    domain: str | None = None
    stream: str | None = None
    tags: str | None = None  # JSON array; the message must have all of them
    metadata: list[str] | None = None  # JSON objects, any of which may match

    @property
    def scans(self) -> str | None:
        """Name the filter that may skip any number of messages that do not match, or None."""
        names = {"status": self.status, "domain": self.domain, "stream": self.stream}
        return self.unindexed or next((name for name, value in names.items() if value is not None), None)

    @property
    def unindexed(self) -> str | None:
        """Name the filter that has no index and reads messages one by one, or None."""
        names = {"search": self.search, "tag": self.tags, "metadata": self.metadata}
        return next((name for name, value in names.items() if value is not None), None)


class MessageRows(Struct, frozen=True):
    """Hold a page of messages, newest first; `has_more` is True if older ones match."""

    rows: list[MessageRow]
    has_more: bool
