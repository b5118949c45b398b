"""An accepted message as it is stored: its first event, and columns for the statement that stores a batch. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from uuid import UUID

import orjson
from msgspec import Struct

from engine.areas.emails.types import Prepared
from engine.base import clock
from engine.base.events import EventType, Status
from engine.delivery import partition
from engine.ledger import log
from engine.store.queries import columns, thinned

Columns = tuple[list[object], ...]

# Places of the columns that are mostly alike throughout a batch, and never NULL: `insert_accepted` fills them up.
_MESSAGES_ALIKE = frozenset({1, 2, 3, 4, 5, 8, 12, 18})
_RECIPIENTS_ALIKE = frozenset({1, 2, 3, 6})
_QUEUE_ALIKE = frozenset({1, 2, 3, 4, 6, 7})
_EVENTS_ALIKE = frozenset({1, 3, 5})


def first_entry(message: Prepared, at: datetime) -> log.Entry:
    """The `accepted` event, or the `scheduled` one of a message for later."""
    detail: dict[str, object] = {
        "to_domain": message.recipients[0].mailbox.domain,
        "from_domain": message.from_domain,
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


def message_columns(stored: Iterable[Prepared]) -> Columns:
    """Messages and their bodies."""
    rows = [
        (
            one.id, one.account_id, _status(one), one.source, one.sender, one.from_domain, one.reply_to, one.subject,
            one.stream, _json(one.tags), _json(one.metadata), _json(one.attachments), len(one.recipients),
            len(one.mime), one.template, one.template_version, one.scheduled_at, one.mime, one.smtputf8,
        )
        for one in stored
    ]  # fmt: skip
    return thinned(columns(rows, 19), _MESSAGES_ALIKE)


def recipient_columns(stored: Iterable[Prepared]) -> Columns:
    """Their recipients."""
    rows = [
        (
            message.id, one.n, message.account_id, one.kind, one.mailbox.address, one.mailbox.name or None,
            _status(message),
        )
        for message in stored
        for one in message.recipients
    ]  # fmt: skip
    return thinned(columns(rows, 7), _RECIPIENTS_ALIKE)


def queue_columns(messages: Iterable[Prepared], shards: int, split: Mapping[str, int], wait: timedelta) -> Columns:
    """Pending deliveries of the messages that go out at once, due `wait` after they are stored."""
    rows = [
        (
            message.id, domain, partition.shard_of(domain, shards, split=split, message_id=message.id),
            message.account_id, message.from_domain, orjson.dumps(group).decode(), len(message.recipients), wait,
            message.deliver_by, message.min_tls,
        )
        for message in messages
        for domain, group in _groups(message).items()
    ]  # fmt: skip
    return thinned(columns(rows, 10), _QUEUE_ALIKE)


def event_columns(events: list[log.LogRow]) -> Columns:
    """Their sealed events."""
    return thinned(log.columns(events), _EVENTS_ALIKE)


def schedule_columns(stored: Iterable[Prepared]) -> Columns:
    """What waits for its time."""
    rows = [
        (one.id, one.account_id, one.scheduled_at, one.scheduled_at, one.deliver_by, one.min_tls)
        for one in stored
        if one.scheduled_at is not None
    ]
    return columns(rows, 6)


def once_columns(stored: Iterable[Prepared]) -> Columns:
    """Idempotency keys and the messages they stand for."""
    rows = [
        (one.account_id, one.idempotency_key, one.id, one.request_digest)
        for one in stored
        if one.idempotency_key is not None
    ]
    return columns(rows, 4)


def _groups(message: Prepared) -> dict[str, list[tuple[int, str]]]:
    return by_domain((one.n, one.mailbox.address) for one in message.recipients)


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
