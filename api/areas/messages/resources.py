"""`GET /v1/messages`, one message with its waybill, its attachments and its octets."""

import asyncio
from typing import Any, Literal, cast
from uuid import UUID

import msgspec
from msgspec import Struct, structs

from api.areas.messages.schemas import (
    Attachment,
    AttemptWaits,
    Message,
    MessageDetail,
    MessageFilterQuery,
    MessagePage,
    MessagesQuery,
    Recipient,
    WaybillEvent,
)
from api.http import owner_checks
from api.http.download import MAIL, download, mail_file
from api.http.operation import Area, Call, LimitedKeys, Operation, Raw
from api.http.paging import Page
from api.http.waits import WaitCauses
from engine.base import clock, ids
from engine.base.errors import ErrorType, existing, not_found, unavailable
from engine.base.events import SEALED_SOURCES, Status
from engine.delivery.waits import in_words
from engine.mail.read import Bodies, UnreadableMail, bodies
from engine.receiving.receivers.types import Forecast
from engine.sending.emails.content_retention import retains, until_shown
from engine.sending.messages import rules, store
from engine.sending.messages.types import MessageFilters, MessageRow, MessageWithWaybill, RecipientRow, WaybillRow
from engine.sending.messages.waits import AttemptWait, WaitingEvent, attempt_waits
from engine.store.concurrency_limiter import LARGE_MESSAGES

LARGE_BYTES = 128 * 1024  # parsing more takes over a millisecond, so it runs in a thread

_ENCODER = msgspec.json.Encoder()
_TAGS = msgspec.json.Decoder(list[str])
_METADATA = msgspec.json.Decoder(dict[str, str])


class _Payload(Struct):
    detail: dict[str, Any]


_PAYLOAD = msgspec.json.Decoder(_Payload)


async def list_messages(call: Call, query: MessagesQuery, page: Page) -> MessagePage:
    """Return a page of the account's messages."""
    wanted = filters_of(call, query, before=page.before)
    try:
        found = await store.page(call.services.pool, call.account_id, wanted, limit=page.limit)
    except TimeoutError:
        raise rules.too_slow(wanted) or unavailable() from None
    data = [message_of(row) for row in found.rows]
    return MessagePage(data, data[-1].id if found.has_more else None, found.has_more)


async def read_message(call: Call) -> MessageDetail | Raw:
    """Return one message with its bodies and its waybill."""
    row = existing(await store.read(call.services.pool, call.account_id, call.id), "message")
    weight = row.size_bytes + sum(len(fields[-1]) for fields in row.waybill)
    forecast = await _forecast(call, row)
    if weight <= LARGE_BYTES:
        return detail_of(row, await _body(call), forecast)
    async with LARGE_MESSAGES.of(call.account_id):
        mime = await _body(call)
        content = await asyncio.to_thread(lambda: _ENCODER.encode(detail_of(row, mime, forecast)))
    return Raw(content, "application/json")


async def _forecast(call: Call, row: MessageWithWaybill) -> Forecast | None:
    """Return the forecast for the recipients for whom the message waits."""
    domains = rules.waited_for(row)
    if not domains:
        return None
    waited_s = (clock.now() - (row.scheduled_at or rules.made_at(row.id))).total_seconds()
    account = call.account_id if call.reach is None else None
    return await call.services.receivers.forecast(
        account, domains, deliver_by=row.deliver_by, waited_s=max(0.0, waited_s)
    )


async def read_attachment(call: Call) -> Raw:
    """Return an attachment's octets, always as a download."""
    found = existing(await store.files(call.services.pool, call.account_id, call.id), "message")
    files, size_bytes, _ = found
    name = ids.format_id(ids.Kind.ATTACHMENT, call.inner_id)
    file = existing(next((one for one in files if one.id == name), None), "attachment")
    if size_bytes <= LARGE_BYTES:
        mime = await _body(call)
        content = None if mime is None else rules.content_of(mime, files, file)
    else:
        async with LARGE_MESSAGES.of(call.account_id):
            mime = await _body(call)
            content = None if mime is None else await asyncio.to_thread(rules.content_of, mime, files, file)
    if mime is None:
        raise rules.content_gone(forgets=found[2])
    if content is None:
        raise not_found("attachment")
    return download(content, filename=file.filename, content_type=file.content_type)


async def read_raw(call: Call) -> Raw:
    """Return the message as a mail file.

    The DKIM-Signature is left out, as it is kept only until the last recipient is settled: the file is the same at any
    time. Blind recipients are not in it, as they were not in the mail sent.
    """
    found = existing(await store.files(call.services.pool, call.account_id, call.id), "message")
    if found[1] <= LARGE_BYTES:
        mime = await _body(call)
    else:
        async with LARGE_MESSAGES.of(call.account_id):
            mime = await _body(call)
    if mime is None:
        raise rules.content_gone(forgets=found[2])
    return mail_file(mime, f"{ids.format_id(ids.Kind.MESSAGE, call.id)}.eml")


async def _body(call: Call) -> bytes | None:
    return await store.body(call.services.pool, call.account_id, call.id, pepper=call.settings.pepper)


def filters_of(call: Call, query: MessageFilterQuery, *, before: UUID | None) -> MessageFilters:
    """Return the filters of a list or an export for a caller; raise the 400 that names the invalid parameter."""
    return rules.filters(
        before=before,
        status=query.status,
        to=query.to,
        search=query.search,
        domain=query.domain,
        stream=query.stream,
        tags=query.tag,
        metadata=query.metadata,
        since=query.from_,
        until=query.until,
        source=query.source,
        template=query.template,
        recipient_domain=query.recipient_domain,
        broadcast=query.broadcast,
        scope=query.scope,
        visible_domains=call.domains,
        visible_streams=call.streams,
    )


def message_of(row: MessageRow) -> Message:
    """Return a message as the list shows it."""
    return Message(**_fields(row))


def detail_of(row: MessageWithWaybill, mime: bytes | None, forecast: Forecast | None = None) -> MessageDetail:
    """Return a message with its bodies, read from its octets `mime`, and its waybill."""
    try:
        shown = bodies(mime) if mime is not None else Bodies(None, None)
    except UnreadableMail:  # SMTP submission accepts messages that can't be parsed
        shown = Bodies(None, None)
    events = [WaybillRow(*fields) for fields in row.waybill]
    details = [_PAYLOAD.decode(one.payload).detail for one in events]
    pairs = list(zip(events, details, strict=True))
    waited = [WaitingEvent(one.id, one.type, one.occurred_at, detail) for one, detail in pairs]
    return MessageDetail(
        **_fields(row),
        deliver_by=clock.iso_or_none(row.deliver_by),
        text=shown.text,
        html=shown.html,
        content_erased=mime is None,
        waybill=[_event(one, detail) for one, detail in pairs],
        waits=[_waits(one) for one in attempt_waits(waited)],
        forecast=forecast,
    )


def _fields(row: MessageRow) -> dict[str, Any]:
    """Return the fields that the list and the single message have in common."""
    recipients = [RecipientRow(*fields) for fields in row.recipients]
    private = row.source in SEALED_SOURCES
    return {
        "id": ids.format_id(ids.Kind.MESSAGE, row.id),
        "status": Status(row.status),
        "source": row.source,
        "from_": row.sender,
        **{
            kind: [rules.written(one.name, one.address) for one in recipients if one.kind == kind and not private]
            for kind in ("to", "cc", "bcc")
        },
        "reply_to": row.reply_to,
        "subject": row.subject,
        "stream": row.stream,
        "template": row.template,
        "template_version": row.template_version,
        "tags": [] if row.tags is None else _TAGS.decode(row.tags),
        "metadata": {} if row.metadata is None else _METADATA.decode(row.metadata),
        "created_at": clock.iso(rules.made_at(row.id)),
        "scheduled_at": clock.iso_or_none(row.scheduled_at),
        "delivered_at": clock.iso_or_none(row.delivered_at),
        "size_bytes": row.size_bytes,
        "resent_from": None if row.resent_from is None else ids.format_id(ids.Kind.MESSAGE, row.resent_from),
        "retain_content": retains(row.content_hours),
        "content_until": until_shown(row.content_hours),
        "traceparent": row.traceparent,
        "attachments": [Attachment(**structs.asdict(one)) for one in rules.files_of(row.attachments)],
        "recipients": [_recipient(one) for one in recipients],
    }


def _recipient(row: RecipientRow) -> Recipient:
    return Recipient(
        row.address,
        cast("Literal['to', 'cc', 'bcc']", row.kind),
        Status(row.status),
        row.attempts,
        row.last_response,
        clock.iso_or_none(row.next_attempt_at),
    )


def _waits(one: AttemptWait) -> AttemptWaits:
    return AttemptWaits(
        event_id=ids.format_id(ids.Kind.EVENT, one.event),
        domain=one.domain,
        from_=clock.iso(one.since),
        until=clock.iso(one.until),
        total_ms=sum(one.ms.values()),
        causes=WaitCauses(**{cause.value: ms for cause, ms in one.ms.items()}),
        fair_share=one.fair_share,
        text=in_words(one.ms),
    )


def _event(row: WaybillRow, detail: dict[str, Any]) -> WaybillEvent:
    return WaybillEvent(ids.format_id(ids.Kind.EVENT, row.id), row.seq, row.type, clock.iso(row.occurred_at), detail)


_KEYS = Area(
    "Messages",
    reads=("messages:read",),
    limited_keys=LimitedKeys.OWN,
    owner_check=owner_checks.message,
    id_of=ids.Kind.MESSAGE,
)
_KEYS_EMAILS = Area(
    "Emails",
    reads=("messages:read",),
    limited_keys=LimitedKeys.OWN,
    owner_check=owner_checks.message,
    id_of=ids.Kind.MESSAGE,
)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/messages",
        list_messages,
        "List messages",
        _KEYS,
        page=ids.Kind.MESSAGE,
        note="Messages are listed newest first, by the time of their request. A message appears when it is stored, "
        "usually some milliseconds and at most 15 seconds later, so a new one may appear below another that was listed "
        "before. To miss no message, follow `GET /v1/events?after=` or `GET /v1/messages/tail`: the log has no gaps.",
        refusals=(ErrorType.NOT_FOUND,),
        lagging=True,
    ),
    Operation(
        "GET",
        "/v1/messages/{id}",
        read_message,
        "Read a message with its bodies and its waybill",
        _KEYS,
        reply=MessageDetail,
    ),
    Operation(
        "GET",
        "/v1/emails/{id}",
        read_message,
        "Read a message; the same as GET /v1/messages/{id}",
        _KEYS_EMAILS,
        reply=MessageDetail,
    ),
    Operation(
        "GET",
        "/v1/messages/{id}/attachments/{attachmentId}",
        read_attachment,
        "Download an attachment",
        _KEYS,
        inner_id_of=ids.Kind.ATTACHMENT,
        reply_type="*/*",
    ),
    Operation(
        "GET",
        "/v1/messages/{id}/raw",
        read_raw,
        "Download a message as it was composed, without its DKIM signature",
        _KEYS,
        reply_type=MAIL,
    ),
)
