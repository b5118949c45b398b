"""Read messages: list pages, one message with its waybill, attachments and raw content."""

import asyncio
from contextlib import nullcontext
from datetime import timedelta
from uuid import UUID

from engine.areas.messages import rules
from engine.areas.messages.types import (
    BodyRow,
    FilesRow,
    MessageFilters,
    MessageRow,
    MessageRows,
    MessageWithWaybill,
    StoredFile,
)
from engine.base import clock, ids
from engine.store.concurrency_limiter import FILTERS, SEARCHES
from engine.store.queries import Queries, Source

LIST_TIMEOUT_S = 5.0  # a filter without an index may scan every message of an account
_SKEW = timedelta(days=1)  # max. clock difference between the accepting and the settling host

_SQL = Queries.beside(__file__)
_LIST = _SQL.rows("list_messages", MessageRow)
_LIST_TO = _SQL.rows("list_messages_to", MessageRow)
_READ = _SQL.rows("read_message", MessageWithWaybill)
_FILES = _SQL.rows("read_files", FilesRow)
_BODY = _SQL.rows("read_body", BodyRow)


async def page(
    source: Source, account: UUID, wanted: MessageFilters, *, limit: int, timeout_s: float = LIST_TIMEOUT_S
) -> MessageRows:
    """Return at most `limit` messages, newest first; raise TimeoutError after `timeout_s`."""
    arguments = (
        account, wanted.low, wanted.high, limit + 1, wanted.status, wanted.domain, wanted.stream, wanted.tags,
        wanted.metadata, wanted.search,
    )  # fmt: skip
    limiter = SEARCHES if wanted.unindexed else FILTERS if wanted.scans else None
    permit = nullcontext() if limiter is None else limiter.of(account)
    async with permit, asyncio.timeout(timeout_s):
        if wanted.to is None:
            rows = await _LIST.fetch(source, *arguments)
        else:
            rows = await _LIST_TO.fetch(source, *arguments, wanted.to)
    return MessageRows(rows[:limit], len(rows) > limit)


async def read(source: Source, account: UUID, message: UUID) -> MessageWithWaybill | None:
    """Return a message with its recipients and waybill, or None if the account has no such message."""
    first_event = ids.floor_of(clock.milliseconds(rules.made_at(message) - _SKEW))
    return await _READ.first(source, account, message, first_event)


async def files(source: Source, account: UUID, message: UUID) -> tuple[list[StoredFile], int] | None:
    """Return the attachments of a message and its size in bytes, or None if the account has no such message."""
    row = await _FILES.first(source, account, message)
    return None if row is None else (rules.files_of(row.attachments), row.size_bytes)


async def body(source: Source, account: UUID, message: UUID) -> bytes | None:
    """Return the composed message without its DKIM signature, or None if it is not stored (any more)."""
    row = await _BODY.first(source, account, message)
    return None if row is None else row.mime
