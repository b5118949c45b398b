"""`/v1/lists/{id}/opt-outs`: listing, adding, importing, exporting and taking back opt-outs of a contact list."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from uuid import UUID

import asyncpg
import msgspec

from api.areas.contacts.opt_out_schemas import (
    ListOptOut,
    ListOptOutPage,
    NewOptOuts,
    OptOutFileIn,
    OptOutsExportQuery,
    OptOutsQuery,
    OptOutsReply,
    RefusedOptOut,
)
from api.http import item_errors
from api.http.download import streamed_file
from api.http.operation import Area, Call, LimitedKeys, Operation, Streamed
from engine.audience import topic_opt_outs
from engine.audience.contacts import lists_store
from engine.audience.contacts.files import MAX_FILE_ROWS, FileFormat
from engine.base import clock, csv_files, ids, list_cursors
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.list_cursors import ListPlace
from engine.sending.suppressions import rules
from engine.sending.unsubscribes import exports, files, store
from engine.sending.unsubscribes.types import TopicOptOut

MAX_FILE_BYTES = 8 * 1024 * 1024
_CURSOR = "opt_"
_ENCODER = msgspec.json.Encoder()


async def list_opt_outs(call: Call, query: OptOutsQuery) -> ListOptOutPage:
    """Return a page of the people who opted out of a list."""
    pool, topic = call.services.pool, call.id
    before = list_cursors.place(_CURSOR, query.before)
    await lists_store.read(pool, call.account_id, topic)
    rows = await store.topic_opt_outs(pool, call.account_id, topic, before=before, limit=query.limit + 1)
    shown = rows[: query.limit]
    return ListOptOutPage([_opt_out(row) for row in shown], _cursor(shown[-1]) if len(rows) > query.limit else None)


async def add_opt_outs(call: Call, body: NewOptOuts) -> OptOutsReply:
    """Record that people opted out of a list."""
    return await _added(call, body.addresses)


async def import_file(call: Call, body: OptOutFileIn) -> OptOutsReply:
    """Record the opt-outs of a file, 1,000 in a transaction."""
    return await _added(call, await asyncio.to_thread(topic_opt_outs.read_file, body.format, body.content))


async def export_opt_outs(call: Call, query: OptOutsExportQuery) -> Streamed:
    """Stream all opt-outs of a list, newest first."""
    pool, topic = call.services.pool, call.id
    await lists_store.read(pool, call.account_id, topic)
    as_csv = query.format is FileFormat.CSV
    pieces = _pieces(pool, call.account_id, topic, as_csv=as_csv)
    content_type = "text/csv; charset=utf-8" if as_csv else "application/x-ndjson"
    return streamed_file(pieces, content_type, f"opt-outs.{query.format.value}")


async def take_back(call: Call) -> None:
    """Take back the opt-out of an address, given in any equivalent form."""
    try:
        address = rules.address_of(call.path["address"])
    except Refusal:
        raise not_found("opt-out") from None
    await topic_opt_outs.take_back(call.services.pool, call.account_id, call.id, address, actor=call.actor)


async def _added(call: Call, given: Sequence[str]) -> OptOutsReply:
    result = await topic_opt_outs.opt_out(call.services.pool, call.account_id, call.id, given, actor=call.actor)
    refused = [RefusedOptOut(one.index, one.error) for one in result.refused]
    item_errors.link(call, refused)
    return OptOutsReply(result.added, result.already, refused)


async def _pieces(pool: asyncpg.Pool, account: UUID, topic: UUID, *, as_csv: bool) -> AsyncGenerator[bytes, None]:
    if as_csv:
        yield files.csv_header()
    async for rows in exports.pages(pool, account, topic):
        if as_csv:
            yield csv_files.csv_lines(map(files.csv_row, rows))
        else:
            yield b"".join(_ENCODER.encode(_opt_out(row)) + b"\n" for row in rows)


def _opt_out(row: TopicOptOut) -> ListOptOut:
    return ListOptOut(address=row.address, source=row.source, created_at=clock.iso(row.created_at))


def _cursor(row: TopicOptOut) -> str:
    return list_cursors.cursor(_CURSOR, ListPlace(row.created_at, row.address))


_KEYS = Area(
    "Contacts",
    reads=("contacts:read",),
    writes=("contacts:write",),
    limited_keys=LimitedKeys.WHOLE_ACCOUNT,
    id_of=ids.Kind.LIST,
)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/lists/{id}/opt-outs",
        list_opt_outs,
        "List the people who opted out of a contact list",
        _KEYS,
        note="Broadcasts to the list leave them out, whether they are on the list or not; all other mail reaches them.",
        limited_keys=LimitedKeys.FREE,
        refusals=(ErrorType.NOT_FOUND,),
        lagging=True,
    ),
    Operation(
        "POST",
        "/v1/lists/{id}/opt-outs",
        add_opt_outs,
        "Record that up to 1,000 people opted out of a contact list",
        _KEYS,
        note=("For people who told you so, and for the opt-outs of a previous service. They need not be contacts."),
        refusals=(ErrorType.NOT_FOUND,),
    ),
    Operation(
        "POST",
        "/v1/lists/{id}/opt-outs/import/file",
        import_file,
        f"Import up to {MAX_FILE_ROWS:,} opt-outs of a contact list from a CSV or newline-delimited JSON",
        _KEYS,
        note="1,000 rows in a transaction: after a failure, send the file again.",
        max_body_bytes=MAX_FILE_BYTES,
        refusals=(ErrorType.NOT_FOUND,),
    ),
    Operation(
        "GET",
        "/v1/lists/{id}/opt-outs/export",
        export_opt_outs,
        "Export all opt-outs of a contact list, one JSON object per line or as CSV",
        _KEYS,
        limited_keys=LimitedKeys.FREE,
        reply=ListOptOut,
        reply_type="application/x-ndjson",
        other_reply_types=("text/csv",),
        refusals=(ErrorType.NOT_FOUND,),
        lagging=True,
    ),
    Operation(
        "DELETE",
        "/v1/lists/{id}/opt-outs/{address}",
        take_back,
        "Undo an opt-out of a contact list",
        _KEYS,
        note="Only when the person asked for it: broadcasts to the list reach the person again.",
    ),
)
