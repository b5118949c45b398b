"""Delete billing records after ten years: invoices, checkouts, payments and billing histories, in short transactions.

Until then they outlive the account's erasure, for the operator alone. Histories lose events from the beginning only,
and their heads keep the hash of the last one, so that the rest of the chain can still be verified.
"""

import asyncio
import time
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from engine.accounts.billing.periods import add_months
from engine.base import clock, ids
from engine.store.jobs import Job
from engine.store.queries import Queries, Query

KEPT_YEARS: Final = 10
NOTICES_KEPT: Final = timedelta(days=30)  # only those of the present day are counted
MAX_ROWS: Final = 1_000  # per transaction
PAUSE_S: Final = 0.01  # between transactions, since this work is never urgent
BUDGET_S: Final = 60.0

_SQL = Queries.beside(__file__, "purge_billing.sql")
_BY_ID: Final = tuple(
    _SQL.command(name) for name in ("delete_old_invoices", "delete_old_checkouts", "delete_old_charges")
)
_PAYMENT_EVENTS = _SQL.command("delete_old_payment_events")
_NOTICES = _SQL.command("delete_old_notices")
_HISTORIES = _SQL.command("old_histories")
_SHORTEN = _SQL.command("shorten_history")
_FORGET = _SQL.command("forget_history")


async def purge(pool: asyncpg.Pool, at: datetime, *, budget_s: float = BUDGET_S) -> int:
    """Delete what is older than ten years at `at`; return the number of rows.

    The next call continues what exceeds the budget. Several workers may call it at once.
    """
    ends = time.monotonic() + budget_s
    before = add_months(at, -12 * KEPT_YEARS)
    oldest_kept = ids.floor_of(clock.milliseconds(before))
    gone = 0
    for query in _BY_ID:
        gone += await _empty(pool, query, oldest_kept, ends)
    gone += await _empty(pool, _PAYMENT_EVENTS, before, ends)
    gone += await _empty(pool, _NOTICES, (at - NOTICES_KEPT).date(), ends)
    return gone + await _shorten_histories(pool, before, ends)


JOB = Job("old billing", every_s=3600, run=lambda pool, _: purge(pool, clock.now()))


async def _empty(pool: asyncpg.Pool, query: Query, bound: object, ends: float) -> int:
    """Run a deletion of at most MAX_ROWS rows until nothing is left, or the budget ends."""
    gone = 0
    while time.monotonic() < ends:
        count = _count(await query.execute(pool, bound, MAX_ROWS))
        gone += count
        if count < MAX_ROWS:
            break
        await asyncio.sleep(PAUSE_S)
    return gone


async def _shorten_histories(pool: asyncpg.Pool, before: datetime, ends: float) -> int:
    gone, after = 0, UUID(int=0)
    while time.monotonic() < ends:
        found = [row["account_id"] for row in await _HISTORIES.records(pool, before, after, MAX_ROWS)]
        for account in found:
            gone += await _shorten(pool, account, before, ends)
        if len(found) < MAX_ROWS:
            break
        after = found[-1]
    return gone


async def _shorten(pool: asyncpg.Pool, account: UUID, before: datetime, ends: float) -> int:
    gone = 0
    while time.monotonic() < ends:
        count = _count(await _SHORTEN.execute(pool, account, before, MAX_ROWS))
        gone += count
        if count < MAX_ROWS:
            await _FORGET.execute(pool, account)
            break
        await asyncio.sleep(PAUSE_S)
    return gone


def _count(tag: str) -> int:
    """Return the number of rows from the command tag of a DELETE."""
    return int(tag.rpartition(" ")[2])
