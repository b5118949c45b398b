"""Read and write layouts and their versions, and publish the templates that use one."""

from datetime import datetime
from uuid import UUID

from engine.sending.templates import rules
from engine.sending.templates.types import LayoutContent, LayoutListRow, LayoutRow, LayoutRows, TemplateSlug
from engine.store.queries import Conn, Queries, Source

_SQL = Queries.beside(__file__, "layouts.sql")
READ_SLUG = _SQL.rows("read_layout_slug", TemplateSlug)
READ = _SQL.rows("read_layout", LayoutRow)
_LIST = _SQL.rows("list_layouts", LayoutListRow)
_USERS = _SQL.command("list_layout_users")
_COUNT = _SQL.command("count_layouts")
_INSERT = _SQL.command("insert_layout")
_INSERT_VERSION = _SQL.command("insert_layout_version")
UPDATE = _SQL.command("update_layout")
_PUBLISH_USERS = _SQL.command("publish_users")
DELETE = _SQL.command("delete_layout")


async def page(source: Source, account: UUID, *, limit: int, before: str | None) -> LayoutRows:
    """Return at most `limit` layouts, newest first, older than the one with slug `before`."""
    rows = await _LIST.fetch(source, account, limit + 1, before)
    return LayoutRows(rows[:limit], len(rows) > limit)


async def users(source: Source, account: UUID, slug: str) -> list[str]:
    """Return the ids of the templates whose latest version uses the layout, in order; at most MAX_LAYOUT_USES."""
    return [row["slug"] for row in await _USERS.records(source, account, slug)]


async def count(connection: Conn, account: UUID) -> int:
    """Count the layouts of the account that are not deleted."""
    return int((await _COUNT.records(connection, account))[0]["used"])


async def insert(connection: Conn, account: UUID, slug: str, name: str | None, at: datetime) -> int:
    """Insert a layout, or reuse the slug of a deleted one; return the number of the version to publish."""
    return int((await _INSERT.records(connection, account, slug, name, at))[0]["version"])


async def insert_version(
    connection: Conn, account: UUID, slug: str, version: int, content: LayoutContent, at: datetime
) -> None:
    """Insert one version."""
    variables = rules.variables_text(content.variables)
    await _INSERT_VERSION.execute(connection, account, slug, version, content.html, content.text, variables, at)


async def publish_users(connection: Conn, account: UUID, slug: str, version: int, at: datetime) -> list[str]:
    """Publish the next version of each template that uses the layout; return their ids, in order."""
    return sorted(row["slug"] for row in await _PUBLISH_USERS.records(connection, account, slug, version, at))
