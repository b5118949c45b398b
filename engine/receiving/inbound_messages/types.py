"""Define the rows of received messages: list pages, single messages, what a change found."""

from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

from engine.base.sql_types import BigInt, Inet, Json, Real

ERASED: Final = UUID(int=0)  # the `raw_id` of messages whose content was deleted


class Routed(StrEnum):
    """Which received messages a list shows, by what their route did."""

    MAILBOX = "mailbox"
    WEBHOOK = "webhook"  # sent to webhooks or forwarded, and not kept in the mailbox
    ALL = "all"


class ReceivedFields(Struct, frozen=True):
    """The stored fields that are taken from a received message and its SMTP transaction, named as their columns.

    Those who store, list and fetch received mail use this type; the API shows a field by giving it a property.
    """

    raw_id: UUID
    envelope_from: str
    remote_ip: Inet
    helo: str
    tls: str | None
    sender: Json | None
    sender_address: str | None
    reply_to: Json | None
    to: Json
    cc: Json
    subject: str
    snippet: str
    sent_at: datetime | None
    header_message_id: str | None
    in_reply_to: str | None
    thread_key: BigInt
    spam_score: Real | None
    authentication: Json
    attachments: Json
    warnings: Json


class ReceivedRow(ReceivedFields, frozen=True):
    """A received message of an account, as stored."""

    id: UUID
    address_id: UUID
    address: str
    domain: str
    recipient: str
    tag: str | None
    replies_to: UUID | None
    size_bytes: int
    is_read: bool
    read_at: datetime | None
    is_spam: bool
    spam_threshold: float
    spam_override: bool | None
    action: str
    fallback: bool
    include: Json
    event_id: UUID | None
    event_seq: int | None
    forwarded_as: UUID | None
    forward_error: str | None

    @property
    def is_erased(self) -> bool:
        """Return True if the content was deleted, as the route asked for."""
        return self.raw_id == ERASED


class ThreadReceivedRow(Struct, frozen=True):
    """A received message of a conversation."""

    id: UUID
    address: str
    sender: str | None
    subject: str
    snippet: str
    is_read: bool
    thread_key: int
    replies_to: UUID | None


class ThreadSentRow(Struct, frozen=True):
    """A sent message of a conversation; `answers` is the received message that it answers."""

    id: UUID
    sender: str
    from_domain: str
    subject: str
    status: str
    answers: UUID | None
    recipients: list[str]


class ReceivedBytesRow(Struct, frozen=True):
    """The bytes of a received message as they came."""

    bytes: bytes


class ReceivedPage(Struct, frozen=True):
    """A page of received messages, newest first; `has_more` is True if older ones match."""

    rows: list[ReceivedRow]
    has_more: bool


class ReceivedFile(Struct, frozen=True):
    """Describe an attachment of a received message, as stored with it."""

    id: str
    filename: str
    content_type: str
    size_bytes: int
    sha256: str
    cid: str | None
    scan: str
    signature: str | None


class ReceivedFilters(Struct, frozen=True, kw_only=True):
    """The filters of a list of received messages; None means no filter. The ids bound the time: [low, high).

    `domains`: those that a key is limited to.
    """

    low: UUID
    high: UUID
    address: str | None = None
    domain: str | None = None
    domains: frozenset[str] | None = None
    sender: str | None = None
    search: list[str] | None = None  # ILIKE patterns, any of which may match
    body: list[str] | None = None  # the same, in the text of the message
    read: bool | None = None
    spam: bool | None = None
    replies_to: UUID | None = None
    routed: Routed = Routed.MAILBOX
    all_time: bool = True  # False if the bounds are not those of all messages

    @property
    def text(self) -> str | None:
        """Name the filter that reads messages one by one, or None."""
        return "search" if self.search is not None else "body" if self.body is not None else None
