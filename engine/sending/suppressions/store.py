"""Read and write suppressions."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime
from uuid import UUID

from engine.sending.suppressions import rules
from engine.sending.suppressions.types import Hit, Reason, SuppressionFilters, SuppressionRow, SuppressionRows
from engine.store.concurrency_limiter import SEARCHES
from engine.store.queries import Conn, Queries, Source

LIST_TIMEOUT_S = 5.0  # a search may scan every suppression of an account

_SQL = Queries.beside(__file__)
FIND = _SQL.rows("find_suppressed", Hit)
ADD = _SQL.rows("add_suppressions", Hit)
DELETE = _SQL.command("delete_suppression")
_KINDS = _SQL.command("kinds_of")
_LIST = _SQL.rows("list_suppressions", SuppressionRow)
_READ = _SQL.rows("read_suppressions", SuppressionRow)
_PUT = _SQL.command("put_suppressions")


async def find(connection: Source, accounts: list[UUID], addresses: list[str]) -> dict[tuple[UUID, str], str]:
    """Return the reasons of the suppressed ones among (account, canonical address) pairs."""
    hits = await FIND.fetch(connection, accounts, addresses)
    return {(hit.account_id, hit.address): hit.reason for hit in hits}


async def blocking(source: Source, wanted: Sequence[tuple[UUID, str, UUID]]) -> dict[tuple[UUID, str, UUID], str]:
    """Return the reasons of those (account, canonical address, message) that must not be sent.

    Reads streams and sources of messages only for reasons that do not block every message.
    """
    found = await find(source, [account for account, _, _ in wanted], [address for _, address, _ in wanted])
    if not found:
        return {}
    hits = {key: reason for key in wanted if (reason := found.get(key[:2])) is not None}
    partly = sorted({key[2] for key, reason in hits.items() if reason == Reason.UNSUBSCRIBE})
    kinds: dict[UUID, dict[str, str]] = {}
    if partly:
        rows = await _KINDS.records(source, partly, partly[0], partly[-1])
        kinds = {row["id"]: {"stream": row["stream"], "source": row["source"]} for row in rows}
    unknown = {"stream": "", "source": ""}  # a message that is gone is not sent
    return {key: reason for key, reason in hits.items() if rules.blocks(reason, **kinds.get(key[2], unknown))}


async def add(
    connection: Conn,
    accounts: list[object],
    addresses: list[object],
    reasons: list[object],
    messages: list[object],
    details: list[object],
) -> list[Hit]:
    """Suppress canonical addresses after bounces and complaints; return those that are new or had a weaker reason."""
    return await ADD.fetch(connection, accounts, addresses, reasons, messages, details)


async def page(
    source: Source, account: UUID, wanted: SuppressionFilters, *, limit: int, timeout_s: float = LIST_TIMEOUT_S
) -> SuppressionRows:
    """Return at most `limit` suppressions, newest first; raise TimeoutError after `timeout_s`."""
    before = wanted.before
    permit = nullcontext() if wanted.search is None else SEARCHES.of(account)
    async with permit, asyncio.timeout(timeout_s):
        rows = await _LIST.fetch(source, account, *before, limit + 1, wanted.reason, wanted.search)
    return SuppressionRows(rows[:limit], len(rows) > limit)


async def read(source: Source, account: UUID, addresses: Sequence[str]) -> dict[str, SuppressionRow]:
    """Return the suppressed ones of the canonical addresses."""
    return {row.address: row for row in await _READ.fetch(source, account, list(addresses))}


async def put(connection: Conn, account: UUID, wanted: Sequence[tuple[str, Reason]], at: datetime) -> None:
    """Suppress canonical addresses, without duplicates, for the given reasons, replacing stored reasons."""
    addresses = [address for address, _ in wanted]
    await _PUT.execute(connection, account, addresses, [reason.value for _, reason in wanted], at)
