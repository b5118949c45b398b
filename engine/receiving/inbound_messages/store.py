"""Read received messages, and change or delete them under the lock of their account's head."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from uuid import UUID

from asyncpg import Record

from engine.base import clock, ids
from engine.receiving.inbound_messages import rules
from engine.receiving.inbound_messages.types import (
    ReceivedBytesRow,
    ReceivedFilters,
    ReceivedPage,
    ReceivedRow,
    Routed,
    ThreadReceivedRow,
    ThreadSentRow,
)
from engine.store.concurrency_limiter import SEARCHES
from engine.store.queries import Conn, Queries, RowQuery, Source
from engine.store.row_sets import selected

LIST_TIMEOUT_S = 5.0  # a search may read every message of an account
MAX_MERGED = 20  # addresses whose pages are merged; for more the whole mailbox is read
_SHARING = timedelta(hours=1)  # messages that share bytes are stored within seconds

_SQL = Queries.beside(__file__, received_columns=selected(ReceivedRow, "m"))
_LIST = _SQL.rows("list_received", ReceivedRow)
_LIST_UNREAD = _SQL.rows("list_unread", ReceivedRow)
_LIST_SPAM = _SQL.rows("list_spam", ReceivedRow)
_LIST_OF_ADDRESSES = _SQL.rows("list_of_addresses", ReceivedRow)
_LIST_SEARCHED = _SQL.rows("list_searched", ReceivedRow)
_LIST_FROM_SENDER = _SQL.rows("list_from_sender", ReceivedRow)
_LIST_REPLIES = _SQL.rows("list_replies", ReceivedRow)
_COUNT_BETWEEN = _SQL.command("count_between")
_COUNT_DAYS = _SQL.command("count_days")
_COUNT_REPLIES = _SQL.command("count_replies")
_COUNT_TEXTS = _SQL.command("count_texts")
_COUNT_FROM_SENDER = _SQL.command("count_from_sender")
_KEPT_COUNT = _SQL.command("kept_count")
_ADDRESSES_OF = _SQL.command("addresses_of")
_READ = _SQL.rows("read_received", ReceivedRow)
_READ_ROWS = _SQL.rows("read_rows", ReceivedRow)
_BYTES = _SQL.rows("read_bytes", ReceivedBytesRow)
_MARK_READ = _SQL.command("mark_read")
_MARK_SPAM = _SQL.command("mark_spam")
_KEEP_UNFORWARDED = _SQL.command("keep_unforwarded")
_MARK_FORWARDED = _SQL.command("mark_forwarded")
_LOCK_BYTES = _SQL.command("lock_bytes")
_DELETE = _SQL.command("delete_received")
_ERASE_CONTENT = _SQL.command("erase_content")
_THREAD_RECEIVED = _SQL.rows("thread_received", ThreadReceivedRow)
_THREAD_SENT = _SQL.rows("thread_sent", ThreadSentRow)


async def page(source: Source, account: UUID, wanted: ReceivedFilters, *, limit: int) -> ReceivedPage:
    """Return at most `limit` messages, newest first; raise TimeoutError after LIST_TIMEOUT_S."""
    addresses = await _addresses(source, account, wanted)
    if addresses == []:
        return ReceivedPage([], has_more=False)
    flags = (account, wanted.low, wanted.high, limit + 1, *_flags(wanted), addresses)
    texts = (wanted.sender, wanted.replies_to, wanted.search, wanted.body)
    permit = nullcontext() if wanted.text is None else SEARCHES.of(account)
    async with permit, asyncio.timeout(LIST_TIMEOUT_S):
        if wanted.replies_to is not None:
            rows = await _LIST_REPLIES.fetch(source, *flags, *texts)
        elif wanted.sender is not None:
            rows = await _LIST_FROM_SENDER.fetch(source, *flags, *texts)
        elif wanted.text is not None:
            rows = await _LIST_SEARCHED.fetch(source, *flags, *texts)
        else:
            rows = await _by_flags(wanted, addresses).fetch(source, *flags)
    return ReceivedPage(rows[:limit], has_more=len(rows) > limit)


def _by_flags(wanted: ReceivedFilters, addresses: Sequence[UUID] | None) -> RowQuery[ReceivedRow]:
    """Choose the index along which few messages are skipped."""
    if addresses is not None and len(addresses) <= MAX_MERGED:
        return _LIST_OF_ADDRESSES
    if wanted.read is False:
        return _LIST_UNREAD
    return _LIST_SPAM if wanted.spam else _LIST


async def count(source: Source, account: UUID, wanted: ReceivedFilters) -> int:
    """Return the exact number of messages that match; raise TimeoutError after LIST_TIMEOUT_S."""
    addresses = await _addresses(source, account, wanted)
    if addresses == []:
        return 0
    async with asyncio.timeout(LIST_TIMEOUT_S):
        if wanted.sender is None and wanted.text is None and wanted.replies_to is None:
            rows = await _count_flags(source, account, wanted, addresses)
        else:
            rows = await _count_texts(source, account, wanted, addresses)
    return int(rows[0]["found"])


async def _count_flags(
    source: Source, account: UUID, wanted: ReceivedFilters, addresses: Sequence[UUID] | None
) -> list[Record]:
    """Count by kept counts; only messages of the days on which the period begins and ends are counted themselves."""
    arguments = (account, wanted.low, wanted.high, *_flags(wanted), addresses)
    if wanted.all_time:
        return await _KEPT_COUNT.records(source, *arguments)
    first, end = rules.whole_days(wanted.low, wanted.high, clock.now())
    if first >= end:
        return await _COUNT_BETWEEN.records(source, *arguments)
    return await _COUNT_DAYS.records(source, *arguments, first, end, rules.first_id_of(first), rules.first_id_of(end))


async def _count_texts(
    source: Source, account: UUID, wanted: ReceivedFilters, addresses: Sequence[UUID] | None
) -> list[Record]:
    query = _COUNT_FROM_SENDER if wanted.sender is not None else _COUNT_TEXTS
    query = _COUNT_REPLIES if wanted.replies_to is not None else query
    arguments = (account, wanted.low, wanted.high, 0, *_flags(wanted), addresses)
    permit = nullcontext() if wanted.text is None else SEARCHES.of(account)
    async with permit:
        return await query.records(source, *arguments, wanted.sender, wanted.replies_to, wanted.search, wanted.body)


async def read(source: Source, account: UUID, message: UUID, *, domains: Collection[str] | None) -> ReceivedRow | None:
    """Return a message, or None if the account has no such message at one of the domains."""
    return await _READ.first(source, account, message, _listed(domains))


async def read_rows(
    source: Source, account: UUID, wanted: Collection[UUID], *, domains: Collection[str] | None
) -> list[ReceivedRow]:
    """Return those of the messages that the account has at one of the domains, newest first."""
    if not wanted:
        return []
    return await _READ_ROWS.fetch(source, account, list(wanted), _listed(domains), min(wanted), max(wanted))


async def raw(source: Source, raw_id: UUID) -> bytes | None:
    """Return the bytes of a message as they came; None if they are gone."""
    row = await _BYTES.first(source, raw_id)
    return None if row is None else row.bytes


async def mark_read(
    connection: Conn, account: UUID, wanted: Collection[UUID], at: datetime, *, read: bool
) -> set[UUID]:
    """Mark messages read or unread; return those that changed. The account's head is locked."""
    found = await _MARK_READ.records(connection, account, list(wanted), read, at, min(wanted), max(wanted))
    return {row["id"] for row in found}


async def mark_spam(connection: Conn, account: UUID, wanted: Collection[UUID], *, spam: bool | None) -> set[UUID]:
    """Override the spam score of messages, or return the decision to it; return those that changed. The account's head
    is locked.
    """
    found = await _MARK_SPAM.records(connection, account, list(wanted), spam, min(wanted), max(wanted))
    return {row["id"] for row in found}


async def keep_unforwarded(connection: Conn, account: UUID, message: UUID, reason: str) -> bool:
    """Show a message in the mailbox that was not forwarded; return False if it is gone. The account's head is
    locked.
    """
    return bool(await _KEEP_UNFORWARDED.records(connection, account, message, reason))


async def mark_forwarded(connection: Conn, account: UUID, message: UUID, sent: UUID) -> bool:
    """Name the sent message that forwards a received one; return False if that is gone."""
    return bool(await _MARK_FORWARDED.records(connection, account, message, sent))


async def delete(connection: Conn, account: UUID, wanted: Collection[UUID]) -> set[UUID]:
    """Delete messages, and their bytes once no other message has them; return those that existed. The account's head
    is locked.
    """
    low, high = _around(min(wanted), -_SHARING), _around(max(wanted), _SHARING)
    # Lock the bytes first: of two accounts that delete their messages with the same bytes at the same time, the second
    # one then sees that the first one's is gone.
    locked = [row["id"] for row in await _LOCK_BYTES.records(connection, account, list(wanted), low, high)]
    found = await _DELETE.records(connection, account, list(wanted), locked, low, high)
    return {row["id"] for row in found}


async def erase_content(connection: Conn, account: UUID, wanted: Collection[UUID]) -> None:
    """Delete the content of messages, and their bytes once no other message has them. The account's head is locked."""
    low, high = _around(min(wanted), -_SHARING), _around(max(wanted), _SHARING)
    # Lock the bytes first, as `delete` does.
    locked = [row["id"] for row in await _LOCK_BYTES.records(connection, account, list(wanted), low, high)]
    await _ERASE_CONTENT.execute(connection, account, list(wanted), locked, low, high)


async def thread_received(
    source: Source,
    account: UUID,
    keys: Collection[int],
    sent: Collection[UUID],
    answered: Collection[UUID],
    *,
    domains: Collection[str] | None,
    limit: int,
) -> list[ThreadReceivedRow]:
    """Return the newest received messages of conversations, that answer sent ones, or that sent ones answer."""
    arguments = (list(keys), list(sent), list(answered), _listed(domains), limit)
    return await _THREAD_RECEIVED.fetch(source, account, *arguments)


async def thread_sent(
    source: Source,
    account: UUID,
    sent: Collection[UUID],
    received: Collection[UUID],
    *,
    domains: Collection[str] | None,
    streams: Collection[str] | None,
    limit: int,
) -> list[ThreadSentRow]:
    """Return the newest sent messages of these, and of those that answer received ones."""
    return await _THREAD_SENT.fetch(
        source, account, list(sent), list(received), _listed(domains), limit, _listed(streams)
    )


async def _addresses(source: Source, account: UUID, wanted: ReceivedFilters) -> list[UUID] | None:
    """Return the ids of the addresses that the filters name; None for all of the account."""
    if wanted.address is None and wanted.domain is None and wanted.domains is None:
        return None
    found = await _ADDRESSES_OF.records(source, account, wanted.address, wanted.domain, _listed(wanted.domains))
    return [row["address_id"] for row in found]


def _flags(wanted: ReceivedFilters) -> tuple[bool | None, bool | None, bool | None]:
    """Return the wanted values of in_mailbox, is_spam and is_read; None for either."""
    kept = {Routed.MAILBOX: True, Routed.WEBHOOK: False, Routed.ALL: None}[wanted.routed]
    return kept, wanted.spam, wanted.read


def _listed(names: Collection[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


def _around(message: UUID, distance: timedelta) -> UUID:
    return ids.floor_of(ids.milliseconds_of(message) + distance // timedelta(milliseconds=1))
