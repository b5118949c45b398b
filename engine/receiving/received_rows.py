"""Received messages as rows: the row sets of the statement that stores a batch, and the event of each message. Pure.

To store another field of a received message, see "Add a stored field of received mail" in ops/runbooks/changing.md.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from hashlib import sha256
from operator import attrgetter
from uuid import UUID

import orjson
from msgspec import Struct

from engine.authentication.results import AuthenticationVerdicts
from engine.authentication.spam_rules import SPAM_THRESHOLD
from engine.base import clock, ids
from engine.base.events import AccountEvent
from engine.ledger import log
from engine.mail.received import ReceivedSummary
from engine.mail.received_header import ReceivedAddress
from engine.mail.searchable_text import searchable_text
from engine.receiving.inbound_messages.rules import thread_key
from engine.receiving.inbound_messages.types import ReceivedFields
from engine.receiving.types import InboundRecipient, ReceivedEnvelope, ScanResult
from engine.store.row_sets import Column, RowSet, columns_of

MAX_SEARCH_TEXT = 8_192  # characters of the readable text that the search in bodies looks through
MAX_EVENT_ENTRIES = 50  # of `to` and `attachments` in an event, which is kept in memory, tailed and posted whole


class IncomingMail(ReceivedFields, frozen=True, kw_only=True):
    """A received message as stored once for all its recipients."""

    digest: bytes  # SHA-256 over envelope sender and bytes
    raw: bytes
    received_at: datetime
    candidates: tuple[UUID, ...]  # messages of ours that In-Reply-To and References may name
    search_text: str
    detail: dict[str, object]  # of its events, as far as it is the same for all recipients


class StoredMessage(Struct, kw_only=True):
    """A received message of one claimed address, as decided."""

    mail: IncomingMail
    id: UUID
    account_id: UUID
    recipient: InboundRecipient
    replies_to: UUID | None
    action: str
    fallback: bool
    in_mailbox: bool
    include: list[str]
    forward_to: str | None
    webhook_ids: Sequence[UUID]
    forgets: bool  # the content is deleted once the message is posted or forwarded
    event_id: UUID | None = None
    seq: int = 0

    @property
    def is_spam(self) -> bool:
        """Return True if the score alone marks the message, as nobody has overridden it yet."""
        return self.mail.spam_score is not None and self.mail.spam_score >= SPAM_THRESHOLD


class CountChange(Struct, frozen=True):
    """A change of the exact counts; `day` is the UTC day of the messages' ids."""

    account_id: UUID
    day: date
    address_id: UUID
    address: str
    domain: str
    in_mailbox: bool
    is_spam: bool
    messages: int


class UsageChange(Struct, frozen=True):
    """Messages to add to a month's count of an account that pays for them."""

    account_id: UUID
    month: date
    messages: int


class ReceivedNow(Struct, frozen=True):
    """The time of the newest message of an address."""

    address_id: UUID
    at: datetime


class RoutedPost(Struct, frozen=True):
    """A post of an `inbound.received` event to one endpoint."""

    webhook_id: UUID
    event_id: UUID
    account_id: UUID
    seq: int


def received_mail(
    envelope: ReceivedEnvelope,
    raw: bytes,
    mail: ReceivedSummary,
    authentication: AuthenticationVerdicts,
    scan: ScanResult,
    at: datetime,
) -> IncomingMail:
    """Build what all recipients' rows of a message share. Takes about as long as hashing `raw`."""
    sender = mail.sender
    attachments = _attachments(mail, scan)
    score = scan.spam_score if scan.spam_score is not None and math.isfinite(scan.spam_score) else None
    verdicts = _verdicts(authentication)
    references = [text for text in (mail.in_reply_to, *reversed(mail.references)) if text]
    subject = storable(mail.subject)
    return IncomingMail(
        raw_id=ids.uuid7(clock.milliseconds(at)),
        digest=digest(envelope.sender, raw),
        raw=raw,
        received_at=at,
        envelope_from=storable(envelope.sender),
        remote_ip=envelope.remote_ip,
        helo=storable(envelope.helo),
        tls=envelope.tls,
        sender=None if sender is None else _json(_address(sender)),
        sender_address=None if sender is None else storable(sender.address).lower(),
        reply_to=None if mail.reply_to is None else _json(_address(mail.reply_to)),
        to=_json([_address(one) for one in mail.to]),
        cc=_json([_address(one) for one in mail.cc]),
        subject=subject,
        snippet=storable(mail.snippet),
        sent_at=mail.date,
        header_message_id=_optional(mail.header_message_id),
        in_reply_to=_optional(mail.in_reply_to),
        thread_key=thread_key(
            mail.references[0] if mail.references else mail.in_reply_to or mail.header_message_id or ""
        ),
        candidates=own_messages(references),
        spam_score=score,
        authentication=_json(verdicts),
        attachments=_json(attachments),
        warnings=_json([{"code": one.code, "text": storable(one.text)} for one in mail.warnings]),
        search_text=storable(searchable_text(raw, mail.text_parts, mail.html_parts, MAX_SEARCH_TEXT)),
        detail={
            "from": None if sender is None else _address(sender),
            "to": [_address(one) for one in mail.to[:MAX_EVENT_ENTRIES]],
            "subject": subject,
            "size_bytes": len(raw),
            "spam_score": score,
            "authentication": verdicts,
            "attachments": attachments[:MAX_EVENT_ENTRIES],
        },
    )


def digest(sender: str, raw: bytes) -> bytes:
    """Return the digest by which the same bytes of the same sender are recognised."""
    found = sha256(sender.encode("utf-8", "surrogateescape") + b"\0")
    found.update(raw)
    return found.digest()


def own_messages(message_ids: Iterable[str]) -> tuple[UUID, ...]:
    """Return the ids of messages that Message-IDs of the form `<26 characters>@<domain>` may name, at most ten."""
    found: dict[UUID, None] = {}
    for one in message_ids:
        local, _, domain = one.partition("@")
        if domain and len(local) == 26 and len(found) < 10:
            try:
                found[ids.parse_id(ids.Kind.MESSAGE, f"{ids.Kind.MESSAGE.value}_{local.lower()}")] = None
            except ids.WrongId:
                continue
    return tuple(found)


def storable(text: str) -> str:
    """Return text that PostgreSQL can store: without NUL and halves of characters (lone surrogates)."""
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def received_entry(one: StoredMessage) -> log.Entry:
    """Return the `inbound.received` event of a message."""
    recipient, mail, at = one.recipient, one.mail, clock.at_milliseconds(ids.milliseconds_of(one.id))
    detail = {
        "inbound_message_id": ids.format_id(ids.Kind.RECEIVED, one.id),
        "address": recipient.address,
        "recipient": storable(recipient.given),
        "tag": None if recipient.tag is None else storable(recipient.tag),
        "received_at": clock.iso(at),
        **mail.detail,
        "replies_to": None if one.replies_to is None else ids.format_id(ids.Kind.MESSAGE, one.replies_to),
        "action": one.action,
    }
    return log.Entry(one.account_id, AccountEvent.INBOUND_RECEIVED, log.detail_text(detail), at)


def count_changes(stored: Iterable[StoredMessage]) -> list[CountChange]:
    """Return the additions to the counts, in the order in which their rows are locked."""
    found: dict[tuple[UUID, date, UUID, str, str, bool, bool], int] = {}
    for one in stored:
        place = one.recipient
        assert place.address_id is not None and place.address is not None and place.domain is not None  # noqa: PT018
        day = clock.at_milliseconds(ids.milliseconds_of(one.id)).date()
        key = (one.account_id, day, place.address_id, place.address, place.domain, one.in_mailbox, one.is_spam)
        found[key] = found.get(key, 0) + 1
    return [CountChange(*key, count) for key, count in sorted(found.items())]


def posts(stored: Iterable[StoredMessage]) -> list[RoutedPost]:
    """Return the posts that the routes of the messages ask for."""
    return [
        RoutedPost(webhook, one.event_id, one.account_id, one.seq)
        for one in stored
        if one.event_id is not None
        for webhook in one.webhook_ids
    ]


def _attachments(mail: ReceivedSummary, scan: ScanResult) -> list[dict[str, object]]:
    """Return the attachments as the API shows them; an attachment beyond the scanner's answers is `unscanned`."""
    found: list[dict[str, object]] = []
    for place, one in enumerate(mail.attachments):
        verdict = scan.attachments[place] if place < len(scan.attachments) else None
        found.append(
            {
                "id": ids.format_id(ids.Kind.ATTACHMENT, ids.uuid7()),
                "filename": storable(one.filename),
                "content_type": storable(one.content_type),
                "size_bytes": one.size_bytes,
                "sha256": one.sha256,
                "cid": None if one.cid is None else storable(one.cid),
                "scan": "unscanned" if verdict is None else verdict.scan.value,
                "signature": None if verdict is None or verdict.signature is None else storable(verdict.signature),
            }
        )
    return found


def _verdicts(authentication: AuthenticationVerdicts) -> dict[str, object]:
    return {
        name: {"result": one.result, "domain": _optional(one.domain), "detail": storable(one.detail)}
        for name in ("spf", "dkim", "dmarc", "arc")
        for one in (getattr(authentication, name),)
    }


def _address(one: ReceivedAddress) -> dict[str, str | None]:
    return {"name": storable(one.name) or None, "address": storable(one.address) or None}


def _optional(text: str | None) -> str | None:
    return None if text is None else storable(text)


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


BYTES = RowSet(
    "content",
    IncomingMail,
    Column("id", "uuid", attrgetter("raw_id")),
    Column("bytes", "bytea", attrgetter("raw")),
    Column("search_text"),
)
MESSAGE = RowSet(
    "message",
    StoredMessage,
    *columns_of(
        ReceivedFields,
        "mail",
        repeated={"envelope_from", "remote_ip", "helo", "cc", "attachments", "warnings"},
    ),
    Column("id"),
    Column("account_id", repeats=True),
    Column("address_id", "uuid", attrgetter("recipient.address_id"), repeats=True),
    Column("address", "text", attrgetter("recipient.address"), repeats=True),
    Column("domain", "text", attrgetter("recipient.domain"), repeats=True),
    Column("recipient", "text", lambda one: storable(one.recipient.given), repeats=True),
    Column("tag", "text", lambda one: None if one.recipient.tag is None else storable(one.recipient.tag)),
    Column("replies_to"),
    Column("size_bytes", "integer", lambda one: len(one.mail.raw)),
    Column("spam_threshold", "real", lambda _: SPAM_THRESHOLD, repeats=True),
    Column("action", repeats=True),
    Column("fallback", repeats=True),
    Column("in_mailbox", repeats=True),
    Column("include", "jsonb", lambda one: _json(one.include), repeats=True),
    Column("forward_to"),
    Column("event_id"),
    Column("event_seq", "bigint", attrgetter("seq")),
)
RECENT = RowSet(
    "recent",
    StoredMessage,
    Column("digest", "bytea", attrgetter("mail.digest")),
    Column("address_id", "uuid", attrgetter("recipient.address_id"), repeats=True),
    Column("account_id", repeats=True),
    Column("message_id", "uuid", attrgetter("id")),
    Column("stored_at", "timestamptz", attrgetter("mail.received_at"), repeats=True),
)
COUNT = RowSet(
    "change",
    CountChange,
    Column("account_id", repeats=True),
    Column("day", repeats=True),
    Column("address_id"),
    Column("address"),
    Column("domain", repeats=True),
    Column("in_mailbox", repeats=True),
    Column("is_spam", repeats=True),
    Column("messages", "bigint"),
)
USAGE = RowSet("used", UsageChange, Column("account_id"), Column("month", repeats=True), Column("messages", "bigint"))
NEWEST = RowSet("newest", ReceivedNow, Column("address_id"), Column("at", repeats=True))
POST = RowSet(
    "post", RoutedPost, Column("webhook_id", repeats=True), Column("event_id"), Column("account_id", repeats=True),
    Column("seq", "bigint"),
)  # fmt: skip
FORWARD = RowSet(
    "forward", StoredMessage, Column("message_id", "uuid", attrgetter("id")), Column("account_id", repeats=True),
    Column("forward_to"),
)  # fmt: skip
FORGET = RowSet(
    "forget", StoredMessage, Column("message_id", "uuid", attrgetter("id")), Column("account_id", repeats=True),
    Column("event_id"),
)  # fmt: skip
