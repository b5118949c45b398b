"""Read and write templates and their versions, and cache compiled versions for sends."""

import asyncio
from collections import OrderedDict
from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import structs

from engine.sending.images import in_mail
from engine.sending.templates import rules
from engine.sending.templates.types import (
    TemplateContent,
    TemplateListRow,
    TemplateRows,
    TemplateSlug,
    TemplateWithContent,
    Version,
    VersionListRow,
    VersionPage,
    VersionRow,
)
from engine.store.caches import Cache
from engine.store.queries import Conn, Queries, Source

MAX_INT = 2**31 - 1  # largest value of the column `version`
MAX_HELD = 64 * 1024 * 1024  # bytes of compiled templates that a process caches
PAGE_BYTES = 8 * 1024 * 1024  # of content in a page of versions

_SQL = Queries.beside(__file__)
_LOAD = _SQL.rows("load_version", VersionRow)
LOAD_PINNED = _SQL.rows("load_pinned", VersionRow)
_LIST = _SQL.rows("list_templates", TemplateListRow)
_LIST_VERSIONS = _SQL.rows("list_versions", VersionListRow)
_COUNT = _SQL.command("count_templates")
_INSERT = _SQL.command("insert_template")
_INSERT_VERSION = _SQL.command("insert_version")
READ_SLUG = _SQL.rows("read_template_slug", TemplateSlug)
READ = _SQL.rows("read_template", TemplateWithContent)
UPDATE = _SQL.command("update_template")
DELETE = _SQL.command("delete_template")

_Key = tuple[UUID, str, int]


class _UnknownTemplate(Exception):  # noqa: N818 - a result, not an error
    """Signal that a template does not exist; raised because the cache does not keep exceptions."""


async def load(source: Source, account_id: UUID, slug: str, version: int | None) -> Version | None:
    """Return a compiled version (None: the latest); None if it does not exist or the template is deleted."""
    row = await load_row(source, account_id, slug, version)
    if row is None:
        return None
    found = await asyncio.to_thread(rules.version_of, row) if rules.is_large(row) else rules.version_of(row)
    files = await in_mail.carried(source, account_id, row.blocks)
    return structs.replace(found, files=files) if files else found


async def load_row(source: Source, account_id: UUID, slug: str, version: int | None) -> VersionRow | None:
    """Return a version as stored, selected as by `load`."""
    if version is not None and version > MAX_INT:
        return None
    return await _LOAD.first(source, account_id, slug, version)


async def page(
    source: Source, account: UUID, *, limit: int, before: str | None, search: str | None = None
) -> TemplateRows:
    """Return at most `limit` templates with the text `search`, newest first, older than the one with slug `before`."""
    rows = await _LIST.fetch(source, account, limit + 1, before, search)
    return TemplateRows(rows[:limit], len(rows) > limit)


async def versions(source: Source, account: UUID, slug: str, *, limit: int, below: int | None) -> VersionPage:
    """Return at most `limit` versions, newest first, and at most about PAGE_BYTES of content, but at least one."""
    ceiling = MAX_INT if below is None else min(below, MAX_INT)
    rows = await _LIST_VERSIONS.fetch(source, account, slug, ceiling, limit, PAGE_BYTES)
    return VersionPage(rows, bool(rows) and rows[-1].version > 1)  # versions count from 1 without gaps


async def count(connection: Conn, account: UUID) -> int:
    """Count the templates of the account that are not deleted."""
    return int((await _COUNT.records(connection, account))[0]["used"])


async def insert(connection: Conn, account: UUID, slug: str, name: str | None, at: datetime) -> int:
    """Insert a template, or reuse the slug of a deleted one; return the number of the version to publish."""
    return int((await _INSERT.records(connection, account, slug, name, at))[0]["version"])


async def insert_version(
    connection: Conn,
    account: UUID,
    slug: str,
    version: int,
    content: TemplateContent,
    layout_version: int | None,
    at: datetime,
) -> None:
    """Insert one version; `layout_version` is that of the layout that the content names."""
    variables = rules.variables_text(content.variables)
    parts = (content.subject, content.html, content.text, variables, content.layout, layout_version)
    await _INSERT_VERSION.execute(connection, account, slug, version, *parts, at, content.blocks)


class TemplateCache:
    """Cache compiled versions for the sends of one process, bounded in bytes.

    Only the number of the latest version can change: register `latest` with `Stamps`, which clears it on every change.
    """

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.latest: Cache[tuple[UUID, str], int] = Cache("templates", self._load_latest, by_account=True)
        self._versions: OrderedDict[_Key, tuple[Version, int]] = OrderedDict()
        self.held_bytes = 0

    async def get(self, account: UUID, slug: str, version: int | None) -> Version | None:
        """Return the same as `load`. A missing template is not cached, so that a new one can be used at once."""
        try:
            latest = await self.latest.get((account, slug))
        except _UnknownTemplate:
            return None
        key = (account, slug, latest if version is None else version)
        held = self._versions.get(key)
        if held is not None:
            self._versions.move_to_end(key)
            return held[0]
        found = await load(self._pool, *key)
        if found is not None:
            self._keep(key, found)
        return found

    def _keep(self, key: _Key, version: Version) -> None:
        before = self._versions.pop(key, None)
        size = rules.bytes_of(version)
        self._versions[key] = (version, size)
        self.held_bytes += size - (before[1] if before else 0)
        while self.held_bytes > MAX_HELD and len(self._versions) > 1:
            _, (_, size_bytes) = self._versions.popitem(last=False)
            self.held_bytes -= size_bytes

    async def _load_latest(self, key: tuple[UUID, str]) -> int:
        known = await READ_SLUG.first(self._pool, *key)
        if known is None or known.deleted_at is not None:
            raise _UnknownTemplate
        return known.version
