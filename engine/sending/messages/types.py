"""Define the rows of stored messages: list pages, single messages and downloads."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from engine.base.events import EventType, Status

Fields = Sequence[Any]  # one nested record, in the order of its Struct's fields
MOST_COMMON_SOURCE: Final = "api"  # has no index of its own
ERASED_ADDRESS: Final = "erased@erased.invalid"  # of an erased recipient; RFC 2606 section 2 reserves `.invalid`


class MessageIndex(Enum):
    """Name what a list of messages can be read by, in the order of time."""

    TIME = "all messages of the account"
    ADDRESS = "recipient"
    RECIPIENT_DOMAIN = "domain of a recipient"
    TEMPLATE = "template"
    SOURCE = "source other than the most common one"
    BROADCAST = "broadcast"
    SCOPE = "scope of a bounce"
    OUTCOME = "unusual outcome"
    SCHEDULED = "scheduled messages"


_NAMES: Final = {  # of the filters that an index serves whole
    MessageIndex.RECIPIENT_DOMAIN: "recipientDomain", MessageIndex.TEMPLATE: "template",
    MessageIndex.SOURCE: "source", MessageIndex.BROADCAST: "broadcast", MessageIndex.OUTCOME: "status",
    MessageIndex.SCHEDULED: "status",
}  # fmt: skip


# Events of which each message with the status has one; those of the index `events_by_outcome`.
OUTCOMES: Final[Mapping[str, list[str]]] = {
    Status.BOUNCED: [EventType.BOUNCED],
    Status.COMPLAINED: [EventType.COMPLAINED],
    Status.FAILED: [EventType.FAILED],
    Status.REJECTED: [EventType.REJECTED, EventType.SUPPRESSED, EventType.SCHEDULE_FAILED],
    Status.CANCELED: [EventType.SCHEDULE_CANCELED],
}


class MessageRow(Struct):
    """A message with its recipients, from one snapshot."""

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
    content_hours: int | None  # from the last outcome to the deletion of the content; None: kept as planned
    traceparent: str | None
    recipients: list[Fields]  # of RecipientRow, by their number


class MessageWithWaybill(MessageRow):
    """A message with its recipients and waybill; `deliver_by` while it waits."""

    deliver_by: datetime | None
    waybill: list[Fields]  # of EventRow, by seq


class RecipientRow(Struct, frozen=True):
    """The status of one recipient; `kind` is to, cc or bcc."""

    kind: str
    address: str
    name: str | None
    status: str
    attempts: int
    last_response: str | None
    next_attempt_at: datetime | None


class WaybillRow(Struct, frozen=True):
    """An event of a waybill; `payload` is the stored JSON text."""

    id: UUID
    seq: int
    type: str
    occurred_at: datetime
    payload: str


class MessageOwner(Struct, frozen=True):
    """The domain and the stream that a message belongs to."""

    from_domain: str
    stream: str


class FilesRow(Struct, frozen=True):
    """The attachments (JSON) and size of one message; `forgets` if its content is deleted after its last outcome."""

    attachments: str | None
    size_bytes: int
    forgets: bool


class BodyRow(Struct, frozen=True):
    """The stored content of one message; encrypted with the key `sealed_key` if it `forgets` that content."""

    mime: bytes
    forgets: bool
    sealed_key: bytes | None


class StoredFile(Struct, frozen=True):
    """Describe an attachment of a stored message."""

    id: str
    filename: str
    content_type: str
    size_bytes: int
    sha256: str


class MessageFilters(Struct, frozen=True, kw_only=True):
    """The filters of a message list; None means no filter. The ids bound the time: [low, high)."""

    low: UUID
    high: UUID
    status: str | None = None
    to: str | None = None
    search: list[str] | None = None  # ILIKE patterns, any of which may match
    domains: list[str] | None = None  # the sending domain is one of them
    streams: list[str] | None = None  # the stream is one of them
    tags: str | None = None  # JSON array; the message must have all of them
    metadata: list[str] | None = None  # JSON objects, any of which may match
    source: str | None = None
    template: str | None = None
    recipient_domain: str | None = None
    broadcast: UUID | None = None
    scope: str | None = None  # of a bounce of any recipient

    @property
    def index(self) -> MessageIndex:
        """Return the index to read the list from: that of the given filter which usually leaves the fewest messages."""
        given = {
            MessageIndex.ADDRESS: self.to is not None,
            MessageIndex.SCOPE: self.scope is not None,
            MessageIndex.BROADCAST: self.broadcast is not None,
            MessageIndex.TEMPLATE: self.template is not None,
            MessageIndex.SCHEDULED: self.status == Status.SCHEDULED,
            MessageIndex.RECIPIENT_DOMAIN: self.recipient_domain is not None,
            MessageIndex.OUTCOME: self.status in OUTCOMES,
            MessageIndex.SOURCE: self.source not in {None, MOST_COMMON_SOURCE},
        }
        return next((index for index, is_given in given.items() if is_given), MessageIndex.TIME)

    @property
    def indexed(self) -> str | UUID | list[str] | None:
        """Return the value of the filter that `index` serves."""
        values: dict[MessageIndex, str | UUID | list[str] | None] = {
            MessageIndex.ADDRESS: self.to, MessageIndex.SCOPE: self.scope, MessageIndex.BROADCAST: self.broadcast,
            MessageIndex.TEMPLATE: self.template, MessageIndex.RECIPIENT_DOMAIN: self.recipient_domain,
            MessageIndex.SOURCE: self.source, MessageIndex.OUTCOME: OUTCOMES.get(self.status or ""),
            MessageIndex.SCHEDULED: self.status,
        }  # fmt: skip
        return values.get(self.index)

    @property
    def scans(self) -> str | None:
        """Name the filter that may skip any number of messages that do not match, or None."""
        names = {
            "status": self.status, "domain": self.domains, "stream": self.streams, "source": self.source,
            "recipientDomain": self.recipient_domain, "template": self.template, "broadcast": self.broadcast,
        }  # fmt: skip
        names.pop(_NAMES.get(self.index, ""), None)
        return self.unindexed or next((name for name, value in names.items() if value is not None), None)

    @property
    def unindexed(self) -> str | None:
        """Name the filter that has no index and reads messages one by one, or None."""
        names = {"search": self.search, "tag": self.tags, "metadata": self.metadata}
        return next((name for name, value in names.items() if value is not None), None)


class MessageRows(Struct, frozen=True):
    """A page of messages, newest first; `has_more` is True if older ones match."""

    rows: list[MessageRow]
    has_more: bool
