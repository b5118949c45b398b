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
)
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from engine.audience.contacts import segments
from engine.audience.contacts.segment_rules import MAX_FILTER_BYTES
from engine.audience.contacts.types import SegmentRow
from engine.base import clock, ids
from engine.base.errors import ErrorType

MAX_SEGMENT_BYTES = 6 * MAX_FILTER_BYTES + 16 * 1024  # each character of the filter as an escape


async def create(call: Call, body: NewSegment) -> CountedSegment:
    """Create a segment."""
    row = await segments.create(
        call.services.pool,
        call.account_id,
        name=body.name,
        filter_=body.filter,
        description=body.description,
        actor=call.actor,
    )
    return await _counted(call, row)


async def list_segments(call: Call, page: Page) -> SegmentPage:
    """Return a page of the account's segments."""
    rows = await segments.LIST.fetch(call.services.pool, call.account_id, page.below, page.probe)
    deleted = await segments.deleted_lists(call.services.pool, call.account_id, rows[: page.limit])
    return SegmentPage(*page.of(rows, lambda row: Segment(**_fields(row, deleted[row.id]))))


async def read(call: Call) -> CountedSegment:
    """Return one segment."""
    return await _counted(call, await segments.read(call.services.pool, call.account_id, call.id))


async def count_matching(call: Call, body: MatchingIn) -> MatchingReply:
    """Count the contacts that a filter selects; nothing is stored."""
    return MatchingReply(await segments.count_matching(call.services.pool, call.account_id, body.filter))


async def change(call: Call, body: SegmentChange) -> CountedSegment:
    """Change the given values of a segment."""
    row = await segments.change(
        call.services.pool,
        call.account_id,
        call.id,
        name=body.name,
        description=body.description,
        filter_=body.filter,
        actor=call.actor,
    )
    return await _counted(call, row)


async def delete(call: Call) -> None:
    """Delete a segment."""
    await segments.delete(call.services.pool, call.account_id, call.id, actor=call.actor)


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


_KEYS = Area(
    "Contacts",
    reads=("contacts:read",),
    writes=("contacts:write",),
    limited_keys=LimitedKeys.FREE,
    id_of=ids.Kind.SEGMENT,
)
OPERATIONS = (
    Operation("GET", "/v1/segments", list_segments, "List segments", _KEYS, page=ids.Kind.SEGMENT, lagging=True),
    Operation(
        "POST",
        "/v1/segments",
        create,
        "Create a segment: a stored filter of contacts",
        _KEYS,
        success=201,
        max_body_bytes=MAX_SEGMENT_BYTES,
        refusals=(ErrorType.CONFLICT, ErrorType.PLAN_LIMIT_REACHED, ErrorType.NOT_FOUND),
    ),
    Operation(
        "POST",
        "/v1/segments/count",
        count_matching,
        "Count the contacts that a filter selects, before it is stored",
        _KEYS,
        scopes=_KEYS.reads,
        max_body_bytes=MAX_SEGMENT_BYTES,
        refusals=(ErrorType.NOT_FOUND,),
    ),
    Operation("GET", "/v1/segments/{id}", read, "Read a segment with the number of its contacts", _KEYS),
    Operation(
        "PATCH",
        "/v1/segments/{id}",
        change,
        "Change the name, description or filter of a segment",
        _KEYS,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        max_body_bytes=MAX_SEGMENT_BYTES,
        refusals=(ErrorType.CONFLICT,),
    ),
    Operation(
        "DELETE",
        "/v1/segments/{id}",
        delete,
        "Delete a segment and keep its contacts",
        _KEYS,
        note="A segment that a scheduled broadcast or one in review names can't be deleted: 409 `invalid_state`.",
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        refusals=(ErrorType.INVALID_STATE,),
    ),
)
