"""Read and write message streams."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from engine.store.queries import Queries, Source

_SQL = Queries.beside(__file__)

TRANSACTIONAL = "transactional"  # created with every account, never deleted


class StreamRow(Struct):
    """A stream; its slug is its public id."""

    slug: str
    name: str
    content_hours: int | None  # default of its messages, see `Prepared.content_hours`
    created_at: datetime


class StreamSlug(Struct, frozen=True):
    """The slug of a stream that exists or was deleted."""

    slug: str
    deleted_at: datetime | None


class StreamRows(Struct, frozen=True):
    """A page of streams, newest first; `has_more` is True if older ones exist."""

    rows: list[StreamRow]
    has_more: bool


LIST = _SQL.rows("list_streams", StreamRow)
READ_SLUG = _SQL.rows("read_stream_slug", StreamSlug)
READ = _SQL.rows("read_stream", StreamRow)
SET_CONTENT_HOURS = _SQL.command("set_content_hours")
INSERT = _SQL.command("insert_stream")
DELETE = _SQL.command("delete_stream")
_PAGE = _SQL.rows("page_of_streams", StreamRow)
_COUNT = _SQL.command("count_streams")


async def page(
    source: Source, account: UUID, *, limit: int, before: str | None, slugs: list[str] | None = None
) -> StreamRows:
    """Return at most `limit` streams, newest first, older than the one with slug `before`; with `slugs`, of those."""
    rows = await _PAGE.fetch(source, account, limit + 1, before, slugs)
    return StreamRows(rows[:limit], len(rows) > limit)


async def count(connection: Source, account: UUID) -> int:
    """Count the streams that are not deleted, including the transactional one."""
    return int((await _COUNT.records(connection, account))[0]["used"])
