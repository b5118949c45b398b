"""`/v1/segments`: creating, listing, reading, changing and deleting stored filters of contacts."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from api.areas.contacts.segment_schemas import (
    CountedSegment,
    MatchingIn,
    MatchingReply,
    NewSegment,
    Segment,
    SegmentChange,
    SegmentPage,
    SegmentsQuery,
)
from api.http.dispatch import cursor_id, path_id
from api.http.operation import Access, Call, LimitedKeys, Operation
from engine.audience.contacts import segments, store
from engine.audience.contacts.segment_rules import MAX_FILTER_BYTES
from engine.audience.contacts.types import SegmentRow
from engine.base import clock, ids
from engine.base.errors import ErrorType

WHAT = segments.WHAT
MAX_SEGMENT_BYTES = 6 * MAX_FILTER_BYTES + 16 * 1024  # each character of the filter as an escape
READ, WRITE = ("contacts:read",), ("contacts:write",)


async def create(call: Call) -> CountedSegment:
    """Create a segment."""
    body: NewSegment = call.body
    row = await segments.create(
        call.services.pool,
        call.account_id,
        name=body.name,
        filter_=body.filter,
        description=body.description,
        actor=call.actor,
    )
    return await _counted(call, row)


async def list_segments(call: Call) -> SegmentPage:
    """Return a page of the account's segments."""
    query: SegmentsQuery = call.query
    before = cursor_id(ids.Kind.SEGMENT, query.before) or store.LAST_ID
    rows = await segments.LIST.fetch(call.services.pool, call.account_id, before, query.limit + 1)
    page = rows[: query.limit]
    deleted = await segments.deleted_lists(call.services.pool, call.account_id, page)
    data = [Segment(**_fields(row, deleted[row.id])) for row in page]
    return SegmentPage(data, data[-1].id if len(rows) > query.limit else None)


async def read(call: Call) -> CountedSegment:
    """Return one segment."""
    return await _counted(call, await segments.read(call.services.pool, call.account_id, _named(call)))


async def count_matching(call: Call) -> MatchingReply:
    """Count the contacts that a filter selects; nothing is stored."""
    body: MatchingIn = call.body
    return MatchingReply(await segments.count_matching(call.services.pool, call.account_id, body.filter))


async def change(call: Call) -> CountedSegment:
    """Change the given values of a segment."""
    body: SegmentChange = call.body
    row = await segments.change(
        call.services.pool,
        call.account_id,
        _named(call),
        name=body.name,
        description=body.description,
        filter_=body.filter,
        actor=call.actor,
    )
    return await _counted(call, row)


async def delete(call: Call) -> None:
    """Delete a segment."""
    await segments.delete(call.services.pool, call.account_id, _named(call), actor=call.actor)


def _named(call: Call) -> UUID:
    return path_id(ids.Kind.SEGMENT, call.path["id"], WHAT)


async def _counted(call: Call, row: SegmentRow) -> CountedSegment:
    contacts = await segments.count(call.services.pool, call.account_id, row)
    deleted = await segments.deleted_lists(call.services.pool, call.account_id, [row])
    return CountedSegment(**_fields(row, deleted[row.id]), contacts=contacts)


def _fields(row: SegmentRow, deleted_lists: Sequence[UUID]) -> dict[str, Any]:
    return {
        "id": ids.format_id(ids.Kind.SEGMENT, row.id),
        "name": row.name,
        "description": row.description,
        "filter": msgspec.json.decode(row.filter),
        "deleted_lists": [ids.format_id(ids.Kind.LIST, one) for one in deleted_lists],
        "created_at": clock.iso(row.created_at),
        "updated_at": clock.iso(row.updated_at),
    }


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/segments",
        tag="Contacts",
        summary="List segments",
        access=Access.KEY,
        limited_keys=LimitedKeys.FREE,
        scopes=READ,
        query=SegmentsQuery,
        reply=SegmentPage,
        handler=list_segments,
    ),
    Operation(
        method="POST",
        path="/v1/segments",
        tag="Contacts",
        summary="Create a segment: a stored filter of contacts",
        access=Access.KEY,
        limited_keys=LimitedKeys.FREE,
        scopes=WRITE,
        success=201,
        request=NewSegment,
        max_body_bytes=MAX_SEGMENT_BYTES,
        reply=CountedSegment,
        refusals=(ErrorType.CONFLICT, ErrorType.PLAN_LIMIT_REACHED, ErrorType.NOT_FOUND),
        handler=create,
    ),
    Operation(
        method="POST",
        path="/v1/segments/count",
        tag="Contacts",
        summary="Count the contacts that a filter selects, before it is stored",
        access=Access.KEY,
        limited_keys=LimitedKeys.FREE,
        scopes=READ,
        request=MatchingIn,
        max_body_bytes=MAX_SEGMENT_BYTES,
        reply=MatchingReply,
        refusals=(ErrorType.NOT_FOUND,),
        handler=count_matching,
    ),
    Operation(
        method="GET",
        path="/v1/segments/{id}",
        tag="Contacts",
        summary="Read a segment with the number of its contacts",
        access=Access.KEY,
        limited_keys=LimitedKeys.FREE,
        scopes=READ,
        reply=CountedSegment,
        handler=read,
    ),
    Operation(
        method="PATCH",
        path="/v1/segments/{id}",
        tag="Contacts",
        summary="Change the name, description or filter of a segment",
        access=Access.KEY,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        scopes=WRITE,
        request=SegmentChange,
        max_body_bytes=MAX_SEGMENT_BYTES,
        reply=CountedSegment,
        refusals=(ErrorType.CONFLICT,),
        handler=change,
    ),
    Operation(
        method="DELETE",
        path="/v1/segments/{id}",
        tag="Contacts",
        summary="Delete a segment and keep its contacts",
        note="A segment that a scheduled broadcast or one in review names can't be deleted: 409 `invalid_state`.",
        access=Access.KEY,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        scopes=WRITE,
        success=204,
        refusals=(ErrorType.INVALID_STATE,),
        handler=delete,
    ),
)
