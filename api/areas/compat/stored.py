"""Read stored messages for the compatible operations: one page, one message with its content. Several areas' rows."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from api.http.operation import Call
from engine.base import clock
from engine.base.errors import not_found, unavailable
from engine.base.events import SEALED_SOURCES
from engine.mail.read import Bodies, UnreadableMail, bodies
from engine.sending.messages import rules, store
from engine.sending.messages.types import (
    MessageFilters,
    MessageRow,
    MessageRows,
    MessageWithWaybill,
    RecipientRow,
    WaybillRow,
)
from engine.store.concurrency_limiter import LARGE_MESSAGES

LARGE_BYTES: Final = 128 * 1024  # parsing more takes over a millisecond, so it runs in a thread


class _StoredPayload(Struct):
    detail: dict[str, Any]


_TAGS = msgspec.json.Decoder(list[str])
_METADATA = msgspec.json.Decoder(dict[str, str])
_PAYLOAD = msgspec.json.Decoder(_StoredPayload)


class MessageContent(Struct, frozen=True):
    """A message with its bodies and its source; these are None once they are deleted, and for sealed messages."""

    row: MessageWithWaybill
    bodies: Bodies
    mime: bytes | None

    def events(self) -> Iterator[tuple[WaybillRow, dict[str, Any]]]:
        """Yield the events in order, each with its detail."""
        for fields in self.row.waybill:
            event = WaybillRow(*fields)
            yield event, detail_of(event.payload)


async def page(call: Call, wanted: MessageFilters, *, limit: int) -> MessageRows:
    """Return at most `limit` messages, newest first; raise the 400 that names the filter if they take too long."""
    try:
        return await store.page(call.services.pool, call.account_id, wanted, limit=limit)
    except TimeoutError:
        raise rules.too_slow(wanted) or unavailable() from None


async def content(call: Call, message: UUID) -> MessageContent:
    """Return a message of the account with its content; raise the 404 if there is none."""
    row = await store.read(call.services.pool, call.account_id, message)
    if row is None:
        raise not_found("message")
    if row.size_bytes <= LARGE_BYTES:
        mime = await store.body(call.services.pool, call.account_id, message, pepper=call.settings.pepper)
        return MessageContent(row, _bodies(mime), mime)
    async with LARGE_MESSAGES.of(call.account_id):
        mime = await store.body(call.services.pool, call.account_id, message, pepper=call.settings.pepper)
        return MessageContent(row, await asyncio.to_thread(_bodies, mime), mime)


def recipients_of(row: MessageRow) -> list[RecipientRow]:
    """Return the recipients; none of a sealed message."""
    return [] if row.source in SEALED_SOURCES else [RecipientRow(*fields) for fields in row.recipients]


def written(row: MessageRow, kind: str) -> list[str]:
    """Return the recipients of one kind, as `Ann <ann@example.net>`."""
    return [rules.written(one.name, one.address) for one in recipients_of(row) if one.kind == kind]


def tags_of(row: MessageRow) -> list[str]:
    """Return the tags of a message."""
    return [] if row.tags is None else _TAGS.decode(row.tags)


def metadata_of(row: MessageRow) -> dict[str, str]:
    """Return the metadata of a message."""
    return {} if row.metadata is None else _METADATA.decode(row.metadata)


def detail_of(payload: str) -> dict[str, Any]:
    """Return the detail of an event."""
    return _PAYLOAD.decode(payload).detail


def made_at(row: MessageRow) -> str:
    """Return the time of the request."""
    return clock.iso(rules.made_at(row.id))


def _bodies(mime: bytes | None) -> Bodies:
    try:
        return Bodies(None, None) if mime is None else bodies(mime)
    except UnreadableMail:  # SMTP submission accepts messages that can't be parsed
        return Bodies(None, None)
