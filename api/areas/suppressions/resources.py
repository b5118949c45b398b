"""Suppressions: the list, adding by hand and in bulk, lifting, and the export."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from msgspec import structs

from api.areas.suppressions.schemas import (
    ByHand,
    ImportIn,
    ImportReply,
    RefusedRow,
    Suppression,
    SuppressionIn,
    SuppressionPage,
    SuppressionsExportQuery,
    SuppressionsQuery,
)
from api.http.decode import refusal_of
from api.http.operation import Access, Call, Operation, Streamed
from engine.areas.suppressions import rules, store
from engine.areas.suppressions import service as suppressions_service
from engine.areas.suppressions.service import SuppressionChange
from engine.areas.suppressions.types import Reason, SuppressionCursor, SuppressionFilters, SuppressionRow
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid, not_found, unavailable

EXPORT_ROWS = 1000  # a query, and a piece of the answer
MAX_IMPORT_BYTES = 2 * 1024 * 1024  # 1,000 rows of an address, a reason and what other services' exports hold beside

_ENCODER = msgspec.json.Encoder()


async def list_suppressions(call: Call) -> SuppressionPage:
    """A page of the account's suppressions."""
    query: SuppressionsQuery = call.query
    wanted = rules.filters(before=query.before, reason=query.reason, search=query.search)
    try:
        page = await store.page(call.services.pool, call.account_id, wanted, limit=query.limit)
    except TimeoutError:
        if query.search is None:
            raise unavailable() from None
        raise invalid("search", "Too many addresses would have to be looked through; narrow `search`.") from None
    data = [_suppression(row) for row in page.rows]
    return SuppressionPage(data, rules.cursor(page.rows[-1]) if page.has_more else None, page.has_more)


async def add_suppression(call: Call) -> Suppression:
    """Suppress an address: 201 when it was not, 200 when it stood already."""
    body: SuppressionIn = call.body
    wanted = (rules.address_of(body.address), Reason(body.reason or Reason.MANUAL))
    (outcome,) = await suppressions_service.suppress(call.services.pool, call.account_id, [wanted], actor=call.actor)
    if outcome.change is not SuppressionChange.ADDED:
        call.status = 200
    return _suppression(outcome.row)


async def import_suppressions(call: Call) -> ImportReply:
    """Suppress many addresses in one transaction; bad rows are reported by their index and fail alone."""
    wanted, refused = await asyncio.to_thread(_read, call.body)
    outcomes = []
    if wanted:
        outcomes = await suppressions_service.suppress(call.services.pool, call.account_id, wanted, actor=call.actor)
    counted = Counter(outcome.change for outcome in outcomes)
    return ImportReply(
        counted[SuppressionChange.ADDED],
        counted[SuppressionChange.CHANGED],
        counted[SuppressionChange.UNCHANGED],
        refused,
    )


async def export_suppressions(call: Call) -> Streamed:
    """Every suppressed address, newest first, one JSON object a line."""
    query: SuppressionsExportQuery = call.query
    wanted = rules.filters(before=None, reason=query.reason, search=None)
    return Streamed(
        _lines(call.services.pool, call.account_id, wanted),
        "application/x-ndjson",
        (("Content-Disposition", 'attachment; filename="suppressions.ndjson"'), ("Cache-Control", "private, no-store")),
    )


async def read_suppression(call: Call) -> Suppression:
    """Whether an address is suppressed, and why; named in any form that means it."""
    address = _named(call)
    row = (await store.read(call.services.pool, call.account_id, [address])).get(address)
    if row is None:
        raise not_found("suppressed address")
    return _suppression(row)


async def lift_suppression(call: Call) -> None:
    """Send to an address again, named in any form that means it."""
    await suppressions_service.lift(call.services.pool, call.account_id, _named(call), actor=call.actor)


def _named(call: Call) -> str:
    """Return the canonical address that the path names; what is no address is as unknown as any other (404)."""
    try:
        return rules.address_of(call.path["address"])
    except Refusal:
        raise not_found("suppressed address") from None


async def _lines(pool: asyncpg.Pool, account: UUID, wanted: SuppressionFilters) -> AsyncGenerator[bytes, None]:
    """Page by page: no connection is held while the client reads."""
    while True:
        page = await store.page(pool, account, wanted, limit=EXPORT_ROWS)
        if page.rows:
            yield b"".join(_ENCODER.encode(_suppression(row)) + b"\n" for row in page.rows)
        if not page.has_more:
            return
        last = page.rows[-1]
        wanted = structs.replace(wanted, before=SuppressionCursor(last.created_at, last.address))


def _read(body: ImportIn) -> tuple[list[tuple[str, Reason]], list[RefusedRow]]:
    """What is wanted, and the rows that can't be: a thousand odd addresses take a fifth of a second."""
    wanted: list[tuple[str, Reason]] = []
    refused: list[RefusedRow] = []
    for index, row in enumerate(body.suppressions):
        try:
            wanted.append(_wanted(row, body.reason))
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


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/suppressions",
        tag="Suppressions",
        summary="List suppressed addresses",
        access=Access.KEY,
        scopes=("suppressions:read",),
        query=SuppressionsQuery,
        reply=SuppressionPage,
        handler=list_suppressions,
    ),
    Operation(
        method="POST",
        path="/v1/suppressions",
        tag="Suppressions",
        summary="Suppress an address",
        access=Access.KEY,
        scopes=("suppressions:write",),
        request=SuppressionIn,
        reply=Suppression,
        success=201,
        also=(200,),
        refusals=(ErrorType.INVALID_ADDRESS, ErrorType.NOT_FOUND),
        handler=add_suppression,
    ),
    Operation(
        method="POST",
        path="/v1/suppressions/import",
        tag="Suppressions",
        summary="Suppress up to 1,000 addresses",
        access=Access.KEY,
        scopes=("suppressions:write",),
        request=ImportIn,
        max_body_bytes=MAX_IMPORT_BYTES,
        reply=ImportReply,
        refusals=(ErrorType.NOT_FOUND,),
        handler=import_suppressions,
    ),
    Operation(
        method="GET",
        path="/v1/suppressions/export",
        tag="Suppressions",
        summary="Export all suppressed addresses, one JSON object a line",
        access=Access.KEY,
        scopes=("suppressions:read",),
        query=SuppressionsExportQuery,
        reply=Suppression,
        reply_type="application/x-ndjson",
        handler=export_suppressions,
    ),
    Operation(
        method="GET",
        path="/v1/suppressions/{address}",
        tag="Suppressions",
        summary="Whether an address is suppressed, and why",
        access=Access.KEY,
        scopes=("suppressions:read",),
        reply=Suppression,
        handler=read_suppression,
    ),
    Operation(
        method="DELETE",
        path="/v1/suppressions/{address}",
        tag="Suppressions",
        summary="Lift a suppression; one after a complaint stays",
        access=Access.KEY,
        scopes=("suppressions:write",),
        success=204,
        refusals=(ErrorType.INVALID_STATE,),
        handler=lift_suppression,
    ),
)
