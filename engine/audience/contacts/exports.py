"""Export contacts, newest first, page by page without holding a connection while the reader waits."""

from collections.abc import AsyncGenerator
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import structs

from engine.audience.contacts import files, store
from engine.audience.contacts.files import MAX_FIELD_COLUMNS, FieldColumn
from engine.audience.contacts.types import ContactFilters, ContactRow
from engine.base import csv_files
from engine.base.errors import invalid
from engine.store.concurrency_limiter import SEARCHES

PAGE_ROWS: Final = 1_000


async def pages(pool: asyncpg.Pool, account: UUID, wanted: ContactFilters) -> AsyncGenerator[list[ContactRow], None]:
    """Yield the matching contacts in pages; contacts that are created meanwhile may be left out."""
    while True:
        page = await store.page(pool, account, wanted, limit=PAGE_ROWS)
        if page.rows:
            yield page.rows
        if not page.has_more:
            return
        wanted = structs.replace(wanted, before=page.rows[-1].id)


async def field_columns(pool: asyncpg.Pool, account: UUID) -> list[FieldColumn]:
    """Read all contacts and return the columns of a CSV for their fields; raise the 400 for too many fields."""
    async with SEARCHES.of(account):
        columns = await store.FIELD_COLUMNS.fetch(pool, account, MAX_FIELD_COLUMNS + 1)
    if len(columns) > MAX_FIELD_COLUMNS:
        raise invalid(
            "format", f"The contacts have over {MAX_FIELD_COLUMNS} different fields. Export them as `ndjson`."
        )
    return columns


async def csv_pages(
    pool: asyncpg.Pool, account: UUID, wanted: ContactFilters, columns: list[FieldColumn]
) -> AsyncGenerator[bytes, None]:
    """Yield a CSV: its header, then the contacts in pages."""
    yield files.csv_header(columns)
    async for rows in pages(pool, account, wanted):
        yield csv_files.csv_lines(files.csv_row(row, columns) for row in rows)
