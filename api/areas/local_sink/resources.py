"""`/v1/local/sink`: the mail that the local sink received for the account; in local mode only."""

import asyncio
from typing import Any, Final
from uuid import UUID

import msgspec

from api.areas.local_sink.schemas import (
    MAX_WAIT_S,
    SinkAttachment,
    SinkEnvelope,
    SinkHeaderField,
    SinkMailDetail,
    SinkMailList,
    SinkMailRow,
    SinkQuery,
    SinkWarning,
)
from api.http.download import MAIL, mail_file
from api.http.operation import Area, Call, LimitedKeys, Operation, Raw
from engine.base import ids
from engine.base.errors import ErrorType, invalid
from engine.mail.received import read_received
from engine.mail.received_header import field_text, read_header
from engine.sending.local_sink import service
from engine.sending.local_sink.types import SinkFilters, SinkMail
from engine.store.concurrency_limiter import LARGE_MESSAGES
from engine.store.sink_folder import position_of

HEADER_BYTES: Final = 32 * 1024  # of a mail that are read for its subject
_ENCODER = msgspec.json.Encoder()


async def list_mails(call: Call, query: SinkQuery) -> SinkMailList:
    """Return a page of the account's mails in the sink, at once or when the first one has arrived."""
    found = await service.waited_page(
        call.services.pool, call.settings, call.account_id, _filters(query), limit=query.limit, wait_s=query.wait
    )
    heads = await service.beginnings(call.settings, found.mails, HEADER_BYTES)
    data = [SinkMailRow(**_fields(mail, head)) for mail, head in zip(found.mails, heads, strict=True)]
    return SinkMailList(data, found.cursor, found.cursor is not None)


async def empty_sink(call: Call) -> None:
    """Delete all mails of the account from the sink."""
    await service.empty(call.services.pool, call.settings, call.account_id)


async def read_mail(call: Call) -> Raw:
    """Return one mail with its content, read outside the event loop."""
    mail = await _one(call)
    async with LARGE_MESSAGES.of(call.account_id):
        mime = await service.content(call.settings, mail)
        return Raw(await asyncio.to_thread(lambda: _ENCODER.encode(_detail(mail, mime))), "application/json")


async def read_raw(call: Call) -> Raw:
    """Return a mail as the sink received it."""
    mail = await _one(call)
    async with LARGE_MESSAGES.of(call.account_id):
        mime = await service.content(call.settings, mail)
    return mail_file(mime, f"{mail.entry.id}.eml")


async def _one(call: Call) -> SinkMail:
    return await service.one(call.services.pool, call.settings, call.account_id, call.path["id"])


def _filters(query: SinkQuery) -> SinkFilters:
    before = None if query.before is None else position_of(query.before)
    if query.before is not None and before is None:
        raise invalid("before", "`before` is not the `nextCursor` of a page of this list.")
    after = None if query.after is None else position_of(query.after)
    if query.after is not None and after is None:
        raise invalid("after", "`after` isn't the `id` of an email in the local sink.")
    recipient = None if query.recipient is None else query.recipient.lower()
    return SinkFilters(before=before, after=after, message_id=_message(query.message), recipient=recipient)


def _message(text: str | None) -> UUID | None:
    try:
        return None if text is None else ids.parse_id(ids.Kind.MESSAGE, text)
    except ids.WrongId as error:
        raise invalid("message", f"`message` is not the id of a message: {error}.") from None


def _fields(mail: SinkMail, head: bytes) -> dict[str, Any]:
    entry = mail.entry
    return {
        "id": entry.id,
        "message_id": ids.format_id(ids.Kind.MESSAGE, mail.message_id),
        "received_at": entry.at,
        "subject": field_text(read_header(head).first(b"subject") or b"")[0] if head else None,
        "envelope": SinkEnvelope(entry.sender, list(entry.recipients), entry.helo, entry.tls, entry.port or None),
        "size_bytes": entry.size,
    }


def _detail(mail: SinkMail, mime: bytes) -> SinkMailDetail:
    read = read_received(mime)
    return SinkMailDetail(
        **_fields(mail, mime[:HEADER_BYTES]),
        headers=[SinkHeaderField(field.name, field.value) for field in read.headers],
        text=read.text,
        html=read.html,
        attachments=[
            SinkAttachment(one.filename, one.content_type, one.size_bytes, one.sha256, one.cid)
            for one in read.attachments
        ],
        warnings=[SinkWarning(one.code, one.text) for one in read.warnings],
    )


_KEYS = Area("Messages", reads=("messages:read",), writes=("emails:send",), limited_keys=LimitedKeys.WHOLE_ACCOUNT)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/local/sink",
        list_mails,
        "List the emails in the local sink, in local mode",
        _KEYS,
        refusals=(ErrorType.NOT_FOUND,),
        deadline_s=MAX_WAIT_S + 10,
    ),
    Operation(
        "DELETE",
        "/v1/local/sink",
        empty_sink,
        "Delete all mail of the account from the local sink, in local mode",
        _KEYS,
        refusals=(ErrorType.NOT_FOUND,),
    ),
    Operation("GET", "/v1/local/sink/{id}", read_mail, "Read an email in the local sink", _KEYS, reply=SinkMailDetail),
    Operation(
        "GET", "/v1/local/sink/{id}/raw", read_raw, "Download an email in the local sink", _KEYS, reply_type=MAIL
    ),
)
