"""Accepted messages as rows: the first event of each, and the row sets of the statement that stores a batch. Pure.

To store another field of a message: give `Prepared` the field, the table a column, and MESSAGE a line.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Final
from uuid import UUID

import orjson
from msgspec import Struct

from engine.base import clock, trace_context
from engine.base.events import EventType, Status
from engine.delivery import partition
from engine.delivery.sealed_mail import SEAL_BYTES
from engine.ledger import log
from engine.sending import large_bodies
from engine.sending.emails.types import Prepared, PreparedRecipient
from engine.store.row_sets import Arrays, Column, RowSet

FORWARDED: Final = "forward"  # the source of messages that were received and are sent on


def first_entry(message: Prepared, at: datetime) -> log.Entry:
    """The `accepted` event, or the `scheduled` one of a message for later."""
    detail: dict[str, object] = trace_context.detail_of(message.traceparent) | {
        "to_domain": message.recipients[0].mailbox.domain,
        "from_domain": message.from_domain,
        "stream": message.stream,
        "source": message.source,
    }
    if message.attachments:
        detail["attachments"] = [
            {
                "filename": one.filename,
                "content_type": one.content_type,
                "size_bytes": one.size_bytes,
                "sha256": one.sha256,
            }
            for one in message.attachments
        ]
    kind = EventType.ACCEPTED
    if message.scheduled_at is not None:
        kind = EventType.SCHEDULED
        detail["scheduled_at"] = clock.iso(message.scheduled_at)
    return log.Entry(message.account_id, kind, log.detail_text(detail), at, message.id, message.public_id)


def suppressed_entry(message: Prepared, suppressed: tuple[str, str], at: datetime) -> log.Entry:
    """The event of a send refused for (address, reason): there is no message that it could name."""
    detail = log.detail_text({"address": suppressed[0], "reason": suppressed[1]})
    return log.Entry(message.account_id, EventType.SUPPRESSED, detail, at)


def by_domain(recipients: Iterable[tuple[int, str]]) -> dict[str, list[tuple[int, str]]]:
    """(Place, address) of recipients by domain: one queue row, and one SMTP transaction, each."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for place, address in recipients:
        groups.setdefault(address.rpartition("@")[2], []).append((place, address))
    return groups


def hinted(messages: Iterable[Prepared], shards: int, split: Mapping[str, int]) -> dict[int, list[UUID]]:
    """Whom to tell about which of the messages that go out at once."""
    found: dict[int, list[UUID]] = {}
    for message in messages:
        for domain in _groups(message):
            own = found.setdefault(partition.shard_of(domain, shards, split=split, message_id=message.id), [])
            if not own or own[-1] != message.id:
                own.append(message.id)
    return found


def recipients_of(stored: Iterable[Prepared]) -> Arrays:
    """Return the recipients of these messages, for the row set RECIPIENT."""
    return RECIPIENT.of([AcceptedRecipient(message, one) for message in stored for one in message.recipients])


def queued(messages: Iterable[Prepared], shards: int, split: Mapping[str, int]) -> Arrays:
    """Return the pending deliveries of messages that go out at once, for the row set QUEUED."""
    rows = [
        QueuedRow(
            message.id, domain, partition.shard_of(domain, shards, split=split, message_id=message.id),
            message.account_id, _signing_domain(message),
            message.sealed_recipient or orjson.dumps(group).decode(), len(message.recipients),
            message.deliver_by, message.min_tls, message.source, message.stream, message.content_key is not None,
            message.traceparent,
        )
        for message in messages
        for domain, group in _groups(message).items()
    ]  # fmt: skip
    return QUEUED.of(rows)


def goes_now(message: Prepared) -> bool:
    """Return True if the message is sent at once, not scheduled."""
    return message.scheduled_at is None


def content_of(stored: Sequence[Prepared], shards: int, split: Mapping[str, int]) -> tuple[Arrays, ...]:
    """Return the rows of messages, for the row sets CONTENT; large bodies are left out."""
    return (
        MESSAGE.of(stored),
        BODY.of([one for one in stored if not large_bodies.is_large(one)]),
        recipients_of(stored),
        queued(filter(goes_now, stored), shards, split),
        CONTENT_KEY.of([one for one in stored if one.content_key is not None]),
        IDEMPOTENCY.of([one for one in stored if one.idempotency_key is not None]),
    )


def scheduled_of(stored: Sequence[Prepared]) -> Arrays:
    """Return the times of messages that are sent later, for the row set SCHEDULED."""
    return SCHEDULED.of([one for one in stored if not goes_now(one)])


def size_bytes(message: Prepared) -> int:
    """Return the size of a message as composed, without what its encryption adds."""
    return len(message.mime) - (0 if message.content_key is None else SEAL_BYTES)


def _groups(message: Prepared) -> dict[str, list[tuple[int, str]]]:
    return by_domain((one.n, one.mailbox.address) for one in message.recipients)


def _signing_domain(message: Prepared) -> str:
    """Return the domain that signs a message; "" for one that is forwarded, which its author may have signed."""
    return "" if message.source == FORWARDED else message.from_domain


def _status(message: Prepared) -> str:
    return Status.QUEUED.value if message.scheduled_at is None else Status.SCHEDULED.value


def _json(value: object) -> str | None:
    """JSON text, or None for nothing: an absent value costs no bytes in its row."""
    if not value:
        return None
    return orjson.dumps(value, default=_plain).decode()


def _plain(value: object) -> object:
    if isinstance(value, Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    raise TypeError(type(value))


class AcceptedRecipient(Struct, frozen=True):
    """A recipient with its message."""

    message: Prepared
    recipient: PreparedRecipient


class QueuedRow(Struct, frozen=True):
    """A pending delivery: the recipients of a message at one domain, as JSON pairs of number and address.

    `from_domain` is the domain that signs the message; "" leaves it unsigned, under the service's bounce domain.
    """

    message_id: UUID
    domain: str
    shard: int
    account_id: UUID
    from_domain: str
    recipients: str
    total: int  # recipients of the whole message
    deliver_by: datetime | None
    min_tls: str | None
    source: str
    stream: str
    forgets: bool  # the content is encrypted with a key of its own, which is deleted after the last outcome
    traceparent: str | None


MESSAGE = RowSet(
    "message",
    Prepared,
    Column("id"),
    Column("account_id", repeats=True),
    Column("status", "text", _status, repeats=True),
    Column("source", repeats=True),
    Column("sender", repeats=True),
    Column("from_domain", repeats=True),
    Column("reply_to"),
    Column("subject"),
    Column("stream", repeats=True),
    Column("tags", "jsonb", lambda message: _json(message.tags)),
    Column("metadata", "jsonb", lambda message: _json(message.metadata)),
    Column("attachments", "jsonb", lambda message: _json(message.attachments)),
    Column("recipient_count", "smallint", lambda message: len(message.recipients), repeats=True),
    Column("size_bytes", "integer", size_bytes),
    Column("template"),
    Column("template_version", "integer"),
    Column("scheduled_at"),
    Column("resent_from"),
    Column("answers"),
    Column("content_hours", "smallint"),
    Column("traceparent"),
)
BODY = RowSet(
    "body",
    Prepared,
    Column("message_id", "uuid", attrgetter("id")),
    Column("mime"),
    Column("smtputf8", repeats=True),
)
RECIPIENT = RowSet(
    "recipient",
    AcceptedRecipient,
    Column("message_id", "uuid", attrgetter("message.id")),
    Column("n", "smallint", attrgetter("recipient.n"), repeats=True),
    Column("account_id", "uuid", attrgetter("message.account_id"), repeats=True),
    Column("kind", "text", attrgetter("recipient.kind"), repeats=True),
    Column("address", "text", attrgetter("recipient.mailbox.address")),
    Column("name", "text", lambda row: row.recipient.mailbox.name or None),
    Column("status", "text", lambda row: _status(row.message), repeats=True),
)
QUEUED = RowSet(
    "queued",
    QueuedRow,
    Column("message_id"),
    Column("domain", repeats=True),
    Column("shard", "integer", repeats=True),
    Column("account_id", repeats=True),
    Column("from_domain", repeats=True),
    Column("recipients", "jsonb"),
    Column("total", "smallint", repeats=True),
    Column("deliver_by"),
    Column("min_tls", "text"),
    Column("source", repeats=True),
    Column("stream", repeats=True),
    Column("forgets", repeats=True),
    Column("traceparent"),
)
CONTENT_KEY = RowSet(
    "content_key",
    Prepared,
    Column("message_id", "uuid", attrgetter("id")),
    Column("account_id", repeats=True),
    Column("sealed_key", "bytea", attrgetter("content_key")),
    Column("hours", "smallint", attrgetter("content_hours"), repeats=True),
)
SCHEDULED = RowSet(
    "scheduled",
    Prepared,
    Column("message_id", "uuid", attrgetter("id")),
    Column("account_id", repeats=True),
    Column("due_at", "timestamptz", attrgetter("scheduled_at")),
    Column("look_at", "timestamptz", attrgetter("scheduled_at")),
    Column("deliver_by"),
    Column("min_tls", "text"),
)
IDEMPOTENCY = RowSet(
    "idempotency",
    Prepared,
    Column("account_id", repeats=True),
    Column("key", "text", attrgetter("idempotency_key")),
    Column("message_id", "uuid", attrgetter("id")),
    Column("request_digest"),
)
CONTENT: Final = MESSAGE, BODY, RECIPIENT, QUEUED, CONTENT_KEY, IDEMPOTENCY
