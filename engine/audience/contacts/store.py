"""Read and write contacts, and find the audience of a broadcast."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Final
from uuid import UUID

from asyncpg import Record
from msgspec import Struct

from engine.audience.contacts import search, segment_rules
from engine.audience.contacts.files import FieldColumn
from engine.audience.contacts.segment_rules import SegmentFilter
from engine.audience.contacts.types import ContactFilters, ContactRow, ContactRows, ContactTotals, StoredContactRow
from engine.base.errors import not_found
from engine.store.concurrency_limiter import SEARCHES
from engine.store.queries import Conn, Queries, RowQuery, Source

LIST_TIMEOUT_S: Final = 5.0  # a search for less than three characters may read all contacts of an account
COUNT_TIMEOUT_S: Final = 5.0
NEWEST: Final = 2_000  # contacts that a search reads before it uses the index: 2 ms
LAST_ID: Final = UUID(int=2**128 - 1)

_SQL = Queries.beside(__file__)
READ = _SQL.rows("read_contact", ContactRow)
FIND = _SQL.rows("find_contacts", StoredContactRow)
FIELD_COLUMNS = _SQL.rows("field_columns", FieldColumn)
_LIST = _SQL.rows("list_contacts", ContactRow)
_WITH_ADDRESS = _SQL.rows("list_contact_with_address", ContactRow)
_MEMBERS = _SQL.rows("list_members", ContactRow)
_SEARCH_NEWEST = _SQL.rows("search_newest", ContactRow)
_SEARCH_INDEXED = _SQL.rows("search_indexed", ContactRow)
_LOCK_TOTALS = _SQL.rows("lock_totals", ContactTotals)
_START_TOTALS = _SQL.command("start_totals")
ADD_TO_TOTALS = _SQL.command("add_to_totals")
INSERT = _SQL.command("insert_contacts")
CHANGE = _SQL.command("change_contacts")
DELETE = _SQL.command("delete_contact")
_SUPPRESSED = _SQL.command("count_suppressed")


class Audience(Struct, frozen=True):
    """A query of the columns `contact_id` and `address`, without an order, and its arguments."""

    sql: str
    arguments: list[object]


async def lock_totals(connection: Conn, account: UUID) -> ContactTotals:
    """Lock the account's kept counts until the transaction ends; raise the 404 if the account was erased.

    Every change of contacts, lists and segments takes this lock before any other.
    """
    row = await _LOCK_TOTALS.first(connection, account)
    if row is None:
        await _START_TOTALS.execute(connection, account)
        row = await _LOCK_TOTALS.first(connection, account)
    if row is None:
        raise not_found("account")
    return row


async def page(
    source: Source, account: UUID, wanted: ContactFilters, *, limit: int, timeout_s: float = LIST_TIMEOUT_S
) -> ContactRows:
    """Return at most `limit` contacts, newest first; raise TimeoutError after `timeout_s`."""
    permit = nullcontext() if wanted.search is None else SEARCHES.of(account)
    async with permit, asyncio.timeout(timeout_s):
        rows = await _page(source, account, wanted, limit + 1)
    return ContactRows(rows[:limit], has_more=len(rows) > limit)


async def count_suppressed(source: Source, account: UUID, addresses: Sequence[str]) -> int:
    """Count the suppressed ones of the canonical addresses."""
    return int((await _SUPPRESSED.records(source, account, list(addresses)))[0]["suppressed"])


async def insert(
    connection: Conn, account: UUID, rows: Sequence[Sequence[object]], *, consent: str, by: str, confirmed: bool
) -> None:
    """Insert contacts: id, address, email, name, fields, text to search, trigrams, time."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    await INSERT.execute(connection, account, *columns, consent, by, confirmed)


async def change(connection: Conn, account: UUID, rows: Sequence[Sequence[object]], *, at: datetime, by: str) -> None:
    """Change contacts: id, name, fields, consent, text to search, trigrams (None: unchanged)."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    await CHANGE.execute(connection, account, *columns, at, by)


def audience_of_list(account: UUID, list_id: UUID, *, first: int = 1) -> Audience:
    """Return the query of a list's members; its arguments are numbered from `first`."""
    sql = (
        "SELECT c.id AS contact_id, c.address FROM contact_list_members m JOIN contacts c ON c.id = m.contact_id"  # noqa: S608 - numbers alone are inserted
        f" WHERE m.account_id = ${first}::uuid AND m.list_id = ${first + 1}::uuid"
    )
    return Audience(sql, [account, list_id])


def audience_of_segment(account: UUID, filter_: SegmentFilter, *, first: int = 1) -> Audience:
    """Return the query of the contacts that match a filter; its arguments are numbered from `first`."""
    condition = segment_rules.compiled(filter_, first=first + 1)
    sql = (
        "SELECT c.id AS contact_id, c.address FROM contacts c"  # noqa: S608 - values are arguments
        f" WHERE c.account_id = ${first}::uuid AND {condition.sql}"
    )
    return Audience(sql, [account, *condition.arguments])


async def count_audience(source: Source, audience: Audience, *, timeout_s: float = COUNT_TIMEOUT_S) -> int:
    """Count an audience; raise TimeoutError after `timeout_s`."""
    async with asyncio.timeout(timeout_s):
        sql = f"SELECT count(*) AS found FROM ({audience.sql}) a"  # noqa: S608 - as above
        rows: list[Record] = await source.fetch(sql, *audience.arguments)
    return int(rows[0]["found"])


async def _page(source: Source, account: UUID, wanted: ContactFilters, limit: int) -> list[ContactRow]:
    before = wanted.before or LAST_ID
    if wanted.address is not None:
        pattern = None if wanted.search is None else search.like_pattern(wanted.search)
        return await _WITH_ADDRESS.fetch(source, account, before, limit, wanted.address, wanted.list_id, pattern)
    if wanted.search is not None:
        return await _found(source, account, wanted, wanted.search, before, limit)
    if wanted.list_id is not None:
        return await _MEMBERS.fetch(source, account, before, limit, wanted.list_id)
    return await _LIST.fetch(source, account, before, limit)


async def _found(
    source: Source, account: UUID, wanted: ContactFilters, text: str, before: UUID, limit: int
) -> list[ContactRow]:
    """Search the newest contacts, which suffices for a frequent text, then all along the index of trigrams."""
    pattern, trigrams = search.like_pattern(text), search.wanted_trigrams(account, text)
    query: RowQuery[ContactRow] = _SEARCH_NEWEST
    newest = NEWEST if trigrams else 2**62  # too short for the index: read all
    rows = await query.fetch(source, account, before, limit, pattern, wanted.list_id, newest)
    if len(rows) == limit or not trigrams:
        return rows
    return await _SEARCH_INDEXED.fetch(source, account, before, limit, pattern, wanted.list_id, trigrams)
