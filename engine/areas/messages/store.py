"""Stored messages read: pages of an account's list, one message with its waybill, its octets."""

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

LIST_TIMEOUT_S = 5.0  # a filter without an index may go through every message of an account
_SKEW = timedelta(days=1)  # how far the clock of a host that settles may lag behind the one that accepted

_SQL = Queries.beside(__file__)
_LIST = _SQL.rows("list_messages", MessageRow)
_LIST_TO = _SQL.rows("list_messages_to", MessageRow)
_READ = _SQL.rows("read_message", MessageWithWaybill)
_FILES = _SQL.rows("read_files", FilesRow)
_BODY = _SQL.rows("read_body", BodyRow)


async def page(
    source: Source, account: UUID, wanted: MessageFilters, *, limit: int, timeout_s: float = LIST_TIMEOUT_S
) -> MessageRows:
    """At most `limit` messages, newest first; raises TimeoutError when the read takes longer than `timeout_s`."""
    arguments = (
        account, wanted.low, wanted.high, limit + 1, wanted.status, wanted.domain, wanted.stream, wanted.tags,
        wanted.metadata, wanted.search,
    )  # fmt: skip
    turns = SEARCHES if wanted.unindexed else FILTERS if wanted.scans else None
    turn = nullcontext() if turns is None else turns.of(account)
    async with turn, asyncio.timeout(timeout_s):
        if wanted.to is None:
            rows = await _LIST.fetch(source, *arguments)
        else:
            rows = await _LIST_TO.fetch(source, *arguments, wanted.to)
    return MessageRows(rows[:limit], len(rows) > limit)


async def read(source: Source, account: UUID, message: UUID) -> MessageWithWaybill | None:
    """One message with its recipients and its waybill, or None when the account has no such message."""
    first_event = ids.floor_of(clock.milliseconds(rules.made_at(message) - _SKEW))
    return await _READ.first(source, account, message, first_event)


async def files(source: Source, account: UUID, message: UUID) -> tuple[list[StoredFile], int] | None:
    """The attachments of a message and the octets of the whole, or None."""
    row = await _FILES.first(source, account, message)
    return None if row is None else (rules.files_of(row.attachments), row.size_bytes)


async def body(source: Source, account: UUID, message: UUID) -> bytes | None:
    """The composed octets, as signed and sent but for the signature; None when they are not kept (any more)."""
    row = await _BODY.first(source, account, message)
    return None if row is None else row.mime
