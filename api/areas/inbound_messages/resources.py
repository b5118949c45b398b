"""`/v1/inbound/messages`: listing, counting, reading and downloading received messages."""

import asyncio
from uuid import UUID

import msgspec

from api.areas.inbound_messages.changes import OPERATIONS as CHANGES
from api.areas.inbound_messages.conversations import OPERATIONS as CONVERSATIONS
from api.areas.inbound_messages.records import WHAT, fields_of, message_of
from api.areas.inbound_messages.schemas import (
    ReceivedCount,
    ReceivedHeaderField,
    ReceivedMessageDetail,
    ReceivedMessagePage,
    ReceivedMessagesQuery,
    ReceivedWarning,
)
from api.http.download import MAIL, download, mail_file
from api.http.operation import Area, Call, LimitedKeys, Operation, Raw
from api.http.paging import Page
from engine.base import ids
from engine.base.errors import ErrorType, existing, not_found, unavailable
from engine.receiving.inbound_messages import rules, store
from engine.receiving.inbound_messages.bodies import NO_BODIES, bodies_of
from engine.receiving.inbound_messages.types import ReceivedFilters, ReceivedRow
from engine.store.concurrency_limiter import LARGE_MESSAGES

_ENCODER = msgspec.json.Encoder()


async def list_messages(call: Call, query: ReceivedMessagesQuery, page: Page) -> ReceivedMessagePage:
    """Return a page of the account's received messages."""
    wanted = _filters(call, query, before=page.before)
    try:
        found = await store.page(call.services.pool, call.account_id, wanted, limit=page.limit)
    except TimeoutError:
        raise rules.too_slow(wanted) or unavailable() from None
    data = [message_of(row) for row in found.rows]
    return ReceivedMessagePage(data, data[-1].id if data else None, found.has_more)


async def count_messages(call: Call, query: ReceivedMessagesQuery) -> ReceivedCount:
    """Return the number of received messages that match."""
    wanted = _filters(call, query, before=None)
    try:
        return ReceivedCount(await store.count(call.services.pool, call.account_id, wanted))
    except TimeoutError:
        raise rules.too_slow(wanted) or unavailable() from None


async def read_message(call: Call) -> Raw:
    """Return one received message with its bodies, read from its bytes outside the event loop."""
    row = await _row(call)
    async with LARGE_MESSAGES.of(call.account_id):
        mime = await store.raw(call.services.pool, row.raw_id)
        if mime is None and not row.is_erased:  # deleted meanwhile
            raise not_found(WHAT)
        return Raw(await asyncio.to_thread(lambda: _ENCODER.encode(detail_of(row, mime))), "application/json")


async def read_attachment(call: Call) -> Raw:
    """Return an attachment's octets, always as a download."""
    row = await _row(call)
    files = rules.files_of(row.attachments)
    name = ids.format_id(ids.Kind.ATTACHMENT, call.inner_id)
    file = existing(next((one for one in files if one.id == name), None), "attachment")
    rules.check_download(file, scanner_required=call.settings.clamd_required)
    async with LARGE_MESSAGES.of(call.account_id):
        mime = await store.raw(call.services.pool, row.raw_id)
        content = None if mime is None else await asyncio.to_thread(rules.content_of, mime, files, file)
    if content is None:
        raise rules.content_gone() if row.is_erased else not_found("attachment")
    return download(content, filename=file.filename, content_type=file.content_type)


async def read_raw(call: Call) -> Raw:
    """Return the message as it came, as a mail file."""
    row = await _row(call)
    rules.check_raw(rules.files_of(row.attachments), row.warnings, scanner_required=call.settings.clamd_required)
    async with LARGE_MESSAGES.of(call.account_id):
        mime = await store.raw(call.services.pool, row.raw_id)
    if mime is None:
        raise rules.content_gone() if row.is_erased else not_found(WHAT)
    return mail_file(mime, f"{ids.format_id(ids.Kind.RECEIVED, row.id)}.eml")


def _filters(call: Call, query: ReceivedMessagesQuery, *, before: UUID | None) -> ReceivedFilters:
    return rules.filters(
        before=before,
        address=query.address,
        domain=query.domain,
        domains=call.domains,
        sender=query.sender,
        search=query.search,
        body=query.body,
        read=query.read,
        spam=query.spam,
        replies_to=query.replies_to,
        since=query.from_,
        until=query.until,
        routed=query.routed,
    )


async def _row(call: Call) -> ReceivedRow:
    return existing(await store.read(call.services.pool, call.account_id, call.id, domains=call.domains), WHAT)


def detail_of(row: ReceivedRow, mime: bytes | None) -> ReceivedMessageDetail:
    """Return a message with its bodies, read from its bytes (None: deleted); takes 10 ms for each 100 KB of HTML."""
    found = NO_BODIES if mime is None else bodies_of(mime)
    return ReceivedMessageDetail(
        **fields_of(row),
        text=found.text,
        html=found.html,
        html_omitted=found.html_omitted,
        reply_text=found.reply_text,
        headers=[ReceivedHeaderField(one.name, one.value) for one in found.headers],
        auto_submitted=found.auto_submitted or not row.envelope_from,
        bulk=found.bulk,
        envelope_from=row.envelope_from,
        remote_ip=row.remote_ip,
        helo=row.helo,
        tls=row.tls,
        forwarded_as=None if row.forwarded_as is None else ids.format_id(ids.Kind.MESSAGE, row.forwarded_as),
        forward_error=row.forward_error,
        content_erased=mime is None,
        warnings=[ReceivedWarning(one.code, one.text) for one in found.warnings],
    )


_KEYS = Area("Inbound", reads=("inbound:read", "messages:read"), limited_keys=LimitedKeys.OWN, id_of=ids.Kind.RECEIVED)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/inbound/messages",
        list_messages,
        "List received messages",
        _KEYS,
        page=ids.Kind.RECEIVED,
        note="Newest first. `nextCursor` is given on the last page too: stop when `hasMore` is false. `search` and "
        "`body` read messages one by one; narrow them by time or address in a large mailbox. To miss no message, "
        "follow `inbound.received` in `GET /v1/events?after=`: the log has no gaps, while the clocks of hosts differ.",
        lagging=True,
    ),
    Operation(
        "GET",
        "/v1/inbound/messages/count",
        count_messages,
        "Count received messages",
        _KEYS,
        note="The filters of the list; `limit` and `before` are accepted and ignored. The count is exact.",
        lagging=True,
    ),
    Operation(
        "GET",
        "/v1/inbound/messages/{id}",
        read_message,
        "Read a received message with its bodies",
        _KEYS,
        note="`html` is sanitised whenever it is read and loads nothing from elsewhere; `cid:` sources stay, for the "
        "attachments with that `cid`.",
        reply=ReceivedMessageDetail,
    ),
    Operation(
        "GET",
        "/v1/inbound/messages/{id}/attachments/{attachmentId}",
        read_attachment,
        "Download an attachment of a received message",
        _KEYS,
        inner_id_of=ids.Kind.ATTACHMENT,
        reply_type="*/*",
        refusals=(ErrorType.ATTACHMENT_INFECTED, ErrorType.ATTACHMENT_BLOCKED),
    ),
    Operation(
        "GET",
        "/v1/inbound/messages/{id}/raw",
        read_raw,
        "Download a received message as it came",
        _KEYS,
        reply_type=MAIL,
        refusals=(ErrorType.ATTACHMENT_INFECTED, ErrorType.ATTACHMENT_BLOCKED),
    ),
    *CHANGES,
    *CONVERSATIONS,
)
