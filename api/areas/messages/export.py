"""`GET /v1/messages/export`: the messages that filters select, as a file."""

from collections.abc import AsyncGenerator
from enum import StrEnum
from uuid import UUID

import asyncpg
import msgspec

from api.areas.messages.resources import filters_of, message_of
from api.areas.messages.schemas import Message, MessageFilterQuery
from api.http.download import streamed_file
from api.http.operation import Area, Call, LimitedKeys, Operation, Streamed
from engine.base.errors import ErrorType, unavailable
from engine.sending.messages import exports, rules
from engine.sending.messages.types import MessageFilters, MessageRows

_ENCODER = msgspec.json.Encoder()


class ExportFormat(StrEnum):
    """The format of a file of messages."""

    CSV = "csv"
    NDJSON = "ndjson"


class MessagesExportQuery(MessageFilterQuery, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/messages/export`: newest first; every given filter must match."""

    format: ExportFormat = ExportFormat.NDJSON


async def export_messages(call: Call, query: MessagesExportQuery) -> Streamed:
    """Stream the messages, newest first."""
    pool, account, wanted = call.services.pool, call.account_id, filters_of(call, query, before=None)
    try:
        first = await exports.first_page(pool, account, wanted)
    except TimeoutError:
        raise rules.too_slow(wanted) or unavailable() from None
    is_csv = query.format is ExportFormat.CSV
    chunks = (_csv if is_csv else _lines)(pool, account, wanted, first)
    content_type = "text/csv; charset=utf-8" if is_csv else "application/x-ndjson"
    return streamed_file(chunks, content_type, f"messages.{query.format.value}")


async def _csv(
    pool: asyncpg.Pool, account: UUID, wanted: MessageFilters, first: MessageRows
) -> AsyncGenerator[bytes, None]:
    yield exports.csv_header()
    async for rows in exports.pages(pool, account, wanted, first):
        yield exports.csv_rows(rows)


async def _lines(
    pool: asyncpg.Pool, account: UUID, wanted: MessageFilters, first: MessageRows
) -> AsyncGenerator[bytes, None]:
    async for rows in exports.pages(pool, account, wanted, first):
        yield b"".join(_ENCODER.encode(message_of(row)) + b"\n" for row in rows)


_KEYS = Area("Messages", reads=("messages:read",), limited_keys=LimitedKeys.OWN)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/messages/export",
        export_messages,
        "Export messages, one JSON object per line or as CSV",
        _KEYS,
        note="Accepts the filters of `GET /v1/messages`, and returns all messages that match, newest first, "
        "without bodies and events. A message accepted during the export is left out. `format=csv` returns "
        "text/csv: `tags` and `metadata` are JSON there, `lastResponse` is the first recipient's, and a "
        "cell that a spreadsheet would take for a formula begins with an apostrophe. An export that fails "
        "halfway ends its body unfinished: clients report a broken transfer.",
        reply=Message,
        reply_type="application/x-ndjson",
        other_reply_types=("text/csv",),
        refusals=(ErrorType.NOT_FOUND,),
        lagging=True,
    ),
)
