"""Write batches of requests, and read pages of them."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final
from uuid import UUID

import asyncpg

from engine.accounts.request_log import rules
from engine.accounts.request_log.types import RequestFilters, RequestRow
from engine.base import clock
from engine.base.settings import Settings
from engine.store import partitions
from engine.store.concurrency_limiter import FILTERS
from engine.store.jobs import Job
from engine.store.queries import Queries, Source, columns

LIST_TIMEOUT_S: Final = 5.0  # a filter without an index may read every request of an account
_WIDTH: Final = 11

_SQL = Queries.beside(__file__)
_INSERT = _SQL.command("insert_requests")
_LIST = _SQL.rows("list_requests", RequestRow)
_LIST_FAILED = _SQL.rows("list_failed", RequestRow)


async def insert(source: Source, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows with the columns of `insert_requests`."""
    await _INSERT.execute(source, *columns(rows, _WIDTH))


async def _drop_old(pool: asyncpg.Pool, _: Settings) -> None:
    """Drop the days that are over."""
    async with pool.acquire() as connection:
        await partitions.drop_before(connection, "api_requests", clock.now() - rules.KEPT)


JOB = Job("request log", every_s=3600, run=_drop_old)


async def page(source: Source, account: UUID, wanted: RequestFilters, *, limit: int) -> list[RequestRow]:
    """Return at most `limit` requests, newest first; raise TimeoutError after LIST_TIMEOUT_S."""
    query = _LIST_FAILED if wanted.only_failed else _LIST
    permit = nullcontext() if wanted.scans is None else FILTERS.of(account)
    async with permit, asyncio.timeout(LIST_TIMEOUT_S):
        return await query.fetch(
            source, account, wanted.low, wanted.high, limit, wanted.first_status, wanted.last_status, wanted.key,
            wanted.method, wanted.path, wanted.error_type, wanted.by_key, wanted.by_agent,
        )  # fmt: skip
