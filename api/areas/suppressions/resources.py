"""Suppressions: listing, adding by hand and in bulk, lifting, and exporting."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from msgspec import structs

from api.areas.suppressions.schemas import (
    MAX_ROWS,
    ByHand,
    ImportIn,
    ImportReply,
    RefusedRow,
    Suppression,
    SuppressionFileIn,
    SuppressionIn,
    SuppressionPage,
    SuppressionsExportQuery,
    SuppressionsQuery,
)
from api.http import item_errors
from api.http.decode import refusal_of
from api.http.download import streamed_file
from api.http.operation import Area, Call, LimitedKeys, Operation, Streamed
from engine.base import clock, csv_files, ids
from engine.base.errors import ErrorType, Refusal, existing, invalid, not_found, unavailable
from engine.base.list_cursors import ListPlace
from engine.sending.suppressions import files, rules, store
from engine.sending.suppressions import service as suppressions_service
from engine.sending.suppressions.files import MAX_FILE_ROWS, SuppressionFileFormat
from engine.sending.suppressions.service import SuppressionChange
from engine.sending.suppressions.types import Reason, SuppressionFilters, SuppressionRow

EXPORT_ROWS = 1000  # in one query, and in one piece of the response
MAX_IMPORT_BYTES = 2 * 1024 * 1024  # 1,000 rows with address, reason and the extra fields of other services' exports
MAX_FILE_BYTES = 8 * 1024 * 1024

_ENCODER = msgspec.json.Encoder()


async def list_suppressions(call: Call, query: SuppressionsQuery) -> SuppressionPage:
    """Return a page of the account's suppressions."""
    wanted = rules.filters(before=query.before, reason=query.reason, search=query.search)
    try:
        page = await store.page(call.services.pool, call.account_id, wanted, limit=query.limit)
    except TimeoutError:
        if query.search is None:
            raise unavailable() from None
        raise invalid("search", "The search took too long. Use a longer `search`.") from None
    data = [_suppression(row) for row in page.rows]
    return SuppressionPage(data, rules.cursor(page.rows[-1]) if page.has_more else None, page.has_more)


async def add_suppression(call: Call, body: SuppressionIn) -> Suppression:
    """Suppress an address; answer 201 for a new suppression, 200 for an existing one."""
    wanted = (rules.address_of(body.address), Reason(body.reason or Reason.MANUAL))
    (outcome,) = await suppressions_service.suppress(call.services.pool, call.account_id, [wanted], actor=call.actor)
    if outcome.change is not SuppressionChange.ADDED:
        call.status = 200
    return _suppression(outcome.row)


async def import_suppressions(call: Call, body: ImportIn) -> ImportReply:
    """Suppress many addresses in one transaction; invalid rows are reported by their index and do not affect others."""
    wanted, refused = await asyncio.to_thread(_read, body.suppressions, body.reason)
    item_errors.link(call, refused)
    return _reply(await _suppress(call, wanted), refused)


async def import_file(call: Call, body: SuppressionFileIn) -> ImportReply:
    """Suppress the addresses of a file, 1,000 in a transaction."""
    wanted, refused = await asyncio.to_thread(_read_file, body)
    counted: Counter[SuppressionChange] = Counter()
    for start in range(0, len(wanted), MAX_ROWS):
        counted += await _suppress(call, wanted[start : start + MAX_ROWS])
    item_errors.link(call, refused)
    return _reply(counted, refused)


async def export_suppressions(call: Call, query: SuppressionsExportQuery) -> Streamed:
    """Stream every suppressed address, newest first, as one JSON object per line."""
    wanted = rules.filters(before=None, reason=query.reason, search=None)
    as_csv = query.format is SuppressionFileFormat.CSV
    pieces = _pieces(call.services.pool, call.account_id, wanted, as_csv=as_csv)
    content_type = "text/csv; charset=utf-8" if as_csv else "application/x-ndjson"
    return streamed_file(pieces, content_type, f"suppressions.{query.format.value}")


async def read_suppression(call: Call) -> Suppression:
    """Return the suppression of an address, given in any equivalent form."""
    address = _named(call)
    row = existing(
        (await store.read(call.services.pool, call.account_id, [address])).get(address), "suppressed address"
    )
    return _suppression(row)


async def lift_suppression(call: Call) -> None:
    """Lift the suppression of an address, given in any equivalent form."""
    await suppressions_service.lift(call.services.pool, call.account_id, _named(call), actor=call.actor)


def _named(call: Call) -> str:
    """Return the canonical form of the address in the path; raises 404 for an invalid one."""
    try:
        return rules.address_of(call.path["address"])
    except Refusal:
        raise not_found("suppressed address") from None


async def _pieces(
    pool: asyncpg.Pool, account: UUID, wanted: SuppressionFilters, *, as_csv: bool
) -> AsyncGenerator[bytes, None]:
    """Yield the export page by page, without holding a connection while the client reads."""
    if as_csv:
        yield files.csv_header()
    while True:
        page = await store.page(pool, account, wanted, limit=EXPORT_ROWS)
        if page.rows and as_csv:
            yield csv_files.csv_lines(map(files.csv_row, page.rows))
        elif page.rows:
            yield b"".join(_ENCODER.encode(_suppression(row)) + b"\n" for row in page.rows)
        if not page.has_more:
            return
        last = page.rows[-1]
        wanted = structs.replace(wanted, before=ListPlace(last.created_at, last.address))


async def _suppress(call: Call, wanted: list[tuple[str, Reason]]) -> Counter[SuppressionChange]:
    if not wanted:
        return Counter()
    outcomes = await suppressions_service.suppress(call.services.pool, call.account_id, wanted, actor=call.actor)
    return Counter(outcome.change for outcome in outcomes)


def _reply(counted: Counter[SuppressionChange], refused: list[RefusedRow]) -> ImportReply:
    return ImportReply(
        counted[SuppressionChange.ADDED],
        counted[SuppressionChange.CHANGED],
        counted[SuppressionChange.UNCHANGED],
        refused,
    )


def _read_file(body: SuppressionFileIn) -> tuple[list[tuple[str, Reason]], list[RefusedRow]]:
    rows = [files.request_of(row, body.reason) for row in files.read_file(body.format, body.content)]
    return _read(rows, body.reason)


def _read(rows: list[dict[str, Any]], reason: ByHand | None) -> tuple[list[tuple[str, Reason]], list[RefusedRow]]:
    """Return the valid rows and the refused ones. Takes a fifth of a second for a thousand unusual addresses."""
    wanted: list[tuple[str, Reason]] = []
    refused: list[RefusedRow] = []
    for index, row in enumerate(rows):
        try:
            wanted.append(_wanted(row, reason))
        except Refusal as refusal:
            refused.append(RefusedRow(index, refusal.envelope()["error"]))
    return wanted, refused


def _wanted(row: dict[str, Any], reason: ByHand | None) -> tuple[str, Reason]:
    try:
        one = msgspec.convert(row, SuppressionIn)
    except msgspec.ValidationError as error:
        raise refusal_of(error, SuppressionIn, row) from None
    return rules.address_of(one.address), Reason(one.reason or reason or Reason.MANUAL)


def _suppression(row: SuppressionRow) -> Suppression:
    message = None if row.message_id is None else ids.format_id(ids.Kind.MESSAGE, row.message_id)
    return Suppression(row.address, Reason(row.reason), row.detail, message, clock.iso(row.created_at))


_KEYS = Area(
    "Suppressions", reads=("suppressions:read",), writes=("suppressions:write",), limited_keys=LimitedKeys.WHOLE_ACCOUNT
)
OPERATIONS = (
    Operation("GET", "/v1/suppressions", list_suppressions, "List suppressed addresses", _KEYS, lagging=True),
    Operation(
        "POST",
        "/v1/suppressions",
        add_suppression,
        "Suppress an address",
        _KEYS,
        success=201,
        also=(200,),
        refusals=(ErrorType.INVALID_ADDRESS, ErrorType.NOT_FOUND),
    ),
    Operation(
        "POST",
        "/v1/suppressions/import",
        import_suppressions,
        "Suppress up to 1,000 addresses",
        _KEYS,
        max_body_bytes=MAX_IMPORT_BYTES,
        refusals=(ErrorType.NOT_FOUND,),
    ),
    Operation(
        "POST",
        "/v1/suppressions/import/file",
        import_file,
        f"Suppress up to {MAX_FILE_ROWS:,} addresses of a CSV or newline-delimited JSON, such as opt-outs",
        _KEYS,
        max_body_bytes=MAX_FILE_BYTES,
        refusals=(ErrorType.NOT_FOUND,),
    ),
    Operation(
        "GET",
        "/v1/suppressions/export",
        export_suppressions,
        "Export all suppressed addresses, one JSON object per line or as CSV",
        _KEYS,
        reply=Suppression,
        reply_type="application/x-ndjson",
        other_reply_types=("text/csv",),
        lagging=True,
    ),
    Operation("GET", "/v1/suppressions/{address}", read_suppression, "Read the suppression of an address", _KEYS),
    Operation(
        "DELETE",
        "/v1/suppressions/{address}",
        lift_suppression,
        "Remove a suppression, unless a complaint caused it",
        _KEYS,
        refusals=(ErrorType.INVALID_STATE,),
    ),
)
