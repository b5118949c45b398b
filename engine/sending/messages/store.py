"""Read messages: list pages, one message with its waybill, attachments and raw content."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Final
from uuid import UUID

from engine.base import clock, ids
from engine.base.errors import not_found
from engine.base.list_filters import FIRST_ID, LAST_ID
from engine.base.secrets import Pepper
from engine.sending.forget_content import opened
from engine.sending.messages import rules
from engine.sending.messages.types import (
    BodyRow,
    FilesRow,
    MessageFilters,
    MessageIndex,
    MessageOwner,
    MessageRow,
    MessageRows,
    MessageWithWaybill,
    StoredFile,
)
from engine.store.concurrency_limiter import FILTERS, SEARCHES, WAIT_S
from engine.store.queries import Queries, Source

ENTRIES: Final = 500  # that a statement reads of an index, as a constant: see decision 0086
LIST_TIMEOUT_S = 5.0  # a filter without an index may scan every message of an account
_SKEW = timedelta(days=1)  # max. clock difference between the accepting and the settling host

_SQL = Queries.beside(__file__)
_LIST = _SQL.rows("list_messages", MessageRow)
_LIST_TO = _SQL.rows("list_messages_to", MessageRow)
_LIST_AMONG = _SQL.rows("list_messages_among", MessageRow)
_ENTRIES: Final = {
    MessageIndex.RECIPIENT_DOMAIN: _SQL.command("entries_to_domain"),
    MessageIndex.TEMPLATE: _SQL.command("entries_of_template"),
    MessageIndex.SOURCE: _SQL.command("entries_from_source"),
    MessageIndex.BROADCAST: _SQL.command("entries_of_broadcast"),
    MessageIndex.SCOPE: _SQL.command("entries_bounced"),
    MessageIndex.OUTCOME: _SQL.command("entries_of_outcomes"),
    MessageIndex.SCHEDULED: _SQL.command("entries_scheduled"),
}
_OWNS_BROADCAST = _SQL.command("owns_broadcast")
OWNER: Final = _SQL.rows("read_owner", MessageOwner)
ADDRESSES: Final = _SQL.command("addresses_of")
_READ = _SQL.rows("read_message", MessageWithWaybill)
_FILES = _SQL.rows("read_files", FilesRow)
_BODY = _SQL.rows("read_body", BodyRow)


async def page(
    source: Source, account: UUID, wanted: MessageFilters, *, limit: int, timeout_s: float = LIST_TIMEOUT_S,
    wait_s: float = WAIT_S,
) -> MessageRows:  # fmt: skip
    """Return at most `limit` messages, newest first; raise TimeoutError after `timeout_s`.

    A list that may read many messages first waits up to `wait_s` for others of its account to end.
    """
    limiter = SEARCHES if wanted.unindexed else FILTERS if wanted.scans else None
    permit = nullcontext() if limiter is None else limiter.of(account, wait_s=wait_s)
    async with permit, asyncio.timeout(timeout_s):
        if wanted.broadcast is not None and not await _OWNS_BROADCAST.records(source, account, wanted.broadcast):
            raise not_found("broadcast")
        rows = await _matching(source, account, wanted, limit + 1)
    return MessageRows(rows[:limit], len(rows) > limit)


async def _matching(source: Source, account: UUID, wanted: MessageFilters, count: int) -> list[MessageRow]:
    if wanted.index is MessageIndex.TIME:
        return await _LIST.fetch(source, *_arguments(account, wanted, count))
    if wanted.index is MessageIndex.ADDRESS:
        return await _LIST_TO.fetch(source, *_arguments(account, wanted, count), wanted.to)
    return await _by_entries(source, account, wanted, count)


async def _by_entries(source: Source, account: UUID, wanted: MessageFilters, count: int) -> list[MessageRow]:
    """Return the newest matching messages: read the entries of an index in order, then the messages that they name.

    In one statement the planner would often rather sort all entries, or read another index.
    """
    entries, found, high = _ENTRIES[wanted.index], list[MessageRow](), wanted.high
    while len(found) < count:
        rows = await entries.records(source, account, wanted.low, high, wanted.indexed)
        messages = list(dict.fromkeys(row["message_id"] for row in rows))
        for some in (messages[:count], messages[count:]):  # without other filters the first are enough
            if some and len(found) < count:
                found += await _LIST_AMONG.fetch(source, *_arguments(account, wanted, count - len(found)), some)
        if len(rows) < ENTRIES:
            break
        high = messages[-1]
    return found


def _arguments(account: UUID, wanted: MessageFilters, count: int) -> tuple[object, ...]:
    broadcast = None if wanted.broadcast is None else str(wanted.broadcast)
    others = [wanted.source, wanted.template, wanted.recipient_domain, broadcast, wanted.scope]
    return (
        account, wanted.low, wanted.high, count, wanted.status, wanted.domains, wanted.streams, wanted.tags,
        wanted.metadata, wanted.search, others,
    )  # fmt: skip


async def read(source: Source, account: UUID, message: UUID) -> MessageWithWaybill | None:
    """Return a message with its recipients and waybill, or None if the account has no such message."""
    first_event = ids.floor_of(clock.milliseconds(rules.made_at(message) - _SKEW))
    return await _READ.first(source, account, message, first_event)


async def read_many(source: Source, account: UUID, messages: Sequence[UUID]) -> dict[UUID, MessageRow]:
    """Return those of the messages that the account has, by id."""
    wanted = MessageFilters(low=FIRST_ID, high=LAST_ID)
    found = await _LIST_AMONG.fetch(source, *_arguments(account, wanted, len(messages)), list(messages))
    return {row.id: row for row in found}


async def files(source: Source, account: UUID, message: UUID) -> tuple[list[StoredFile], int, bool] | None:
    """Return the attachments of a message, its size in bytes, and True if it forgets its content.

    Returns None if the account has no such message.
    """
    row = await _FILES.first(source, account, message)
    return None if row is None else (rules.files_of(row.attachments), row.size_bytes, row.forgets)


async def body(source: Source, account: UUID, message: UUID, *, pepper: Pepper) -> bytes | None:
    """Return the composed message without its DKIM signature, or None if it is not stored (any more)."""
    row = await _BODY.first(source, account, message)
    if row is None:
        return None
    return await opened(message, row.mime, forgets=row.forgets, sealed_key=row.sealed_key, pepper=pepper)
