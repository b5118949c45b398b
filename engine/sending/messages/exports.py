"""Export messages, newest first, page by page without holding a connection while the reader waits."""

from collections.abc import AsyncGenerator, Iterable
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import structs

from engine.base import clock, csv_files, ids
from engine.base.events import SEALED_SOURCES
from engine.sending.messages import rules, store
from engine.sending.messages.types import MessageFilters, MessageRow, MessageRows, RecipientRow

PAGE_ROWS: Final = 500
PAGE_TIMEOUT_S: Final = 60.0  # a filter that few messages match reads far for a page
WAIT_S: Final = 60.0  # for other lists of the account that read far
CSV_COLUMNS: Final = (
    "id", "createdAt", "status", "source", "from", "to", "cc", "bcc", "replyTo", "subject", "stream", "template",
    "templateVersion", "tags", "metadata", "sizeBytes", "scheduledAt", "deliveredAt", "resentFrom", "lastResponse",
)  # fmt: skip


async def first_page(pool: asyncpg.Pool, account: UUID, wanted: MessageFilters) -> MessageRows:
    """Return the first page, before the answer begins: errors of the filters then have their own status."""
    return await store.page(pool, account, wanted, limit=PAGE_ROWS)


async def pages(
    pool: asyncpg.Pool, account: UUID, wanted: MessageFilters, page: MessageRows
) -> AsyncGenerator[list[MessageRow], None]:
    """Yield the rows of `page` and of all that follow it; messages accepted meanwhile are left out."""
    while page.rows:
        yield page.rows
        if not page.has_more:
            return
        wanted = structs.replace(wanted, high=page.rows[-1].id)
        page = await store.page(pool, account, wanted, limit=PAGE_ROWS, timeout_s=PAGE_TIMEOUT_S, wait_s=WAIT_S)


def csv_header() -> bytes:
    """Return the header line of a CSV."""
    return csv_files.csv_lines([CSV_COLUMNS])


def csv_rows(rows: Iterable[MessageRow]) -> bytes:
    """Return messages as lines of a CSV, with cells that a spreadsheet would take for a formula defused."""
    return csv_files.csv_lines([csv_files.defused(cell) for cell in _cells(row)] for row in rows)


def _cells(row: MessageRow) -> tuple[str, ...]:
    recipients = [RecipientRow(*fields) for fields in row.recipients]
    shown = [] if row.source in SEALED_SOURCES else recipients
    to, cc, bcc = (
        ", ".join(rules.written(one.name, one.address) for one in shown if one.kind == kind)
        for kind in ("to", "cc", "bcc")
    )
    return (
        ids.format_id(ids.Kind.MESSAGE, row.id), clock.iso(rules.made_at(row.id)), row.status, row.source, row.sender,
        to, cc, bcc, row.reply_to or "", row.subject, row.stream, row.template or "",
        "" if row.template_version is None else str(row.template_version), row.tags or "", row.metadata or "",
        str(row.size_bytes), "" if row.scheduled_at is None else clock.iso(row.scheduled_at),
        "" if row.delivered_at is None else clock.iso(row.delivered_at),
        "" if row.resent_from is None else ids.format_id(ids.Kind.MESSAGE, row.resent_from),
        next((one.last_response for one in recipients if one.last_response), ""),
    )  # fmt: skip
