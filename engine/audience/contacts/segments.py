"""Create, change, delete and count segments: stored filters of contacts, evaluated when they are used."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from msgspec import UNSET, UnsetType

from engine.audience.contacts import lists_store, rules, search, segment_rules, store
from engine.audience.contacts.segment_rules import SegmentFilter
from engine.audience.contacts.types import SegmentRow
from engine.base import ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.base.plans import MAX_SEGMENTS
from engine.ledger.events import record_event
from engine.ledger.plan_limits import limit_reached
from engine.store.concurrency_limiter import SEARCHES
from engine.store.database_clock import new_time
from engine.store.queries import Conn, Queries, Source

WHAT = "segment"

_SQL = Queries.beside(__file__, "segments.sql")
LIST = _SQL.rows("list_segments", SegmentRow)
READ = _SQL.rows("read_segment", SegmentRow)
_INSERT = _SQL.rows("insert_segment", SegmentRow)
_CHANGE = _SQL.rows("change_segment", SegmentRow)
_DELETE = _SQL.command("delete_segment")
_NAMED = _SQL.command("named_segment")
_AWAITED = _SQL.command("segment_awaited")


async def create(
    pool: asyncpg.Pool, account: UUID, *, name: str, filter_: object, description: str | None = None, actor: str
) -> SegmentRow:
    """Create a segment.

    Raises the 400 for a wrong filter, the 404 for an unknown list in it, the 409 for a name in use.
    """
    named, described = rules.checked_list_name(name), rules.checked_description(description)
    parsed = segment_rules.parse(filter_)
    async with pool.acquire() as connection, connection.transaction():
        totals = await store.lock_totals(connection, account)
        await _refuse_name(connection, account, named)
        await lists_store.check_known(connection, account, segment_rules.lists_of(parsed))
        if totals.segments >= MAX_SEGMENTS:
            raise limit_reached("segments", "segments", MAX_SEGMENTS, totals.segments)
        at = await new_time(connection)
        text = msgspec.json.encode(filter_).decode()
        row = await _INSERT.first(
            connection, account, ids.uuid7_at(at), named, search.folded(named), described, text, at
        )
        assert row is not None
        await store.ADD_TO_TOTALS.execute(connection, account, 0, 0, 1)
        await _record(connection, account, AccountEvent.SEGMENT_CREATED, row, actor)
    return row


async def change(
    pool: asyncpg.Pool,
    account: UUID,
    segment: UUID,
    *,
    name: str | UnsetType = UNSET,
    description: str | UnsetType | None = UNSET,
    filter_: object = UNSET,
    actor: str,
) -> SegmentRow:
    """Change the values that are given and return the segment; raise the 404 for an unknown one, else as `create`."""
    parsed = None if filter_ is UNSET else segment_rules.parse(filter_)
    async with pool.acquire() as connection, connection.transaction():
        await store.lock_totals(connection, account)
        row = await read(connection, account, segment)
        named = row.name if isinstance(name, UnsetType) else rules.checked_list_name(name)
        described = row.description if isinstance(description, UnsetType) else rules.checked_description(description)
        if parsed is None and (named, described) == (row.name, row.description):
            return row
        await _refuse_name(connection, account, named, other_than=segment)
        if parsed is not None:
            await lists_store.check_known(connection, account, segment_rules.lists_of(parsed))
        text = row.filter if parsed is None else msgspec.json.encode(filter_).decode()
        at = await new_time(connection)
        after = await _CHANGE.first(connection, account, segment, named, search.folded(named), described, text, at)
        assert after is not None
        await _record(connection, account, AccountEvent.SEGMENT_UPDATED, after, actor)
    return after


async def delete(pool: asyncpg.Pool, account: UUID, segment: UUID, *, actor: str) -> None:
    """Delete a segment; raise the 404 for an unknown one, the 409 while a broadcast waits for it."""
    async with pool.acquire() as connection, connection.transaction():
        await store.lock_totals(connection, account)
        row = await read(connection, account, segment)
        if (await _AWAITED.records(connection, account, segment))[0]["awaited"]:
            raise Refusal(
                ErrorType.INVALID_STATE,
                f"A broadcast that is scheduled or in review uses the segment {row.name!r}. Cancel it, then delete "
                "the segment.",
                state="in_use",
            )
        await _DELETE.execute(connection, account, segment)
        await store.ADD_TO_TOTALS.execute(connection, account, 0, 0, -1)
        await _record(connection, account, AccountEvent.SEGMENT_DELETED, row, actor)


async def read(source: Source, account: UUID, segment: UUID) -> SegmentRow:
    """Return a segment; raise the 404 for an unknown one."""
    row = await READ.first(source, account, segment)
    if row is None:
        raise not_found(WHAT)
    return row


def filter_of(row: SegmentRow) -> SegmentFilter:
    """Return the parsed filter of a stored segment."""
    filter_: Any = msgspec.json.decode(row.filter)
    return segment_rules.parse(filter_)


async def count(source: Source, account: UUID, row: SegmentRow) -> int | None:
    """Count the contacts of a segment now; None if that takes longer than store.COUNT_TIMEOUT_S, or if other searches
    leave no place: an error would look as if a create or change had failed.
    """
    return await _count(source, account, filter_of(row))


async def count_matching(pool: asyncpg.Pool, account: UUID, filter_: object) -> int | None:
    """Count the contacts that a filter selects now, as `count` does; refuse a filter as `create` does."""
    parsed = segment_rules.parse(filter_)
    await lists_store.check_known(pool, account, segment_rules.lists_of(parsed))
    return await _count(pool, account, parsed)


async def _count(source: Source, account: UUID, filter_: SegmentFilter) -> int | None:
    audience = store.audience_of_segment(account, filter_)
    try:
        async with SEARCHES.of(account):
            return await store.count_audience(source, audience)
    except (TimeoutError, Refusal):
        return None


async def deleted_lists(source: Source, account: UUID, rows: Sequence[SegmentRow]) -> dict[UUID, list[UUID]]:
    """Return by segment the lists that its filter names and that no longer exist."""
    named = {row.id: segment_rules.lists_of(filter_of(row)) for row in rows}
    known = await lists_store.known(source, account, set().union(*named.values()))
    return {segment: sorted(lists - known) for segment, lists in named.items()}


async def _refuse_name(connection: Conn, account: UUID, name: str, *, other_than: UUID | None = None) -> None:
    for found in await _NAMED.records(connection, account, search.folded(name)):
        if found["id"] != other_than:
            raise Refusal(
                ErrorType.CONFLICT,
                f"You already have a segment named {name!r} (upper and lower case are the same). Choose another name.",
                id=ids.format_id(ids.Kind.SEGMENT, found["id"]),
            )


async def _record(connection: Conn, account: UUID, kind: AccountEvent, row: SegmentRow, actor: str) -> None:
    named = {"id": ids.format_id(ids.Kind.SEGMENT, row.id), "name": row.name}
    await record_event(connection, account, kind, named, actor=actor)
