"""Counting ahead: what the account logs tell is added to the figures, so that reading them stays cheap.

The figures are exact without it: a reader counts for itself whatever has not been counted yet.
"""

import time
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "jobs.sql")
_OPEN = _SQL.command("open_records")
_COUNT = _SQL.command("count_log")

# A reader counts up to this many events itself, at the cost of milliseconds. An account that writes more is counted
# every minute and not more often, since its busiest quarters are counted as a whole each time.
MANY_EVENTS = 1_000
BUSY_EVERY = timedelta(minutes=1)
QUIET_EVERY = timedelta(minutes=10)
MAX_ACCOUNTS = 200  # in one transaction
# Of one account, and of all, in one transaction. Each step counts its quarters as a whole, which for a million messages
# in one takes a second: a busy minute must not take many steps.
MAX_OF_ONE, MAX_EVENTS = 200_000, 200_000
BUDGET_S = 20.0


class StaleAccount(Struct):
    """An account whose figures are behind its log."""

    account_id: UUID
    after: int
    tip: int

    @property
    def upto(self) -> int:
        """How far the next step goes."""
        return min(self.tip, self.after + MAX_OF_ONE)


_DUE = _SQL.rows("take_due", StaleAccount)
_ONE = _SQL.rows("take_one", StaleAccount)


async def count_ahead(pool: asyncpg.Pool, *, everything: bool = False, budget_s: float = BUDGET_S) -> bool:
    """Count what is due, in steps; several workers may. False when the budget ended before the work.

    `everything` counts every account to the end of its log, however little it lacks.
    """
    await _OPEN.execute(pool)
    ends = time.monotonic() + budget_s
    while await _step(pool, clock.now(), everything=everything):
        if time.monotonic() > ends:
            return False
    return True


async def count_rest(connection: Conn, account: UUID) -> None:
    """Count one account to the end of its log within the caller's transaction, which holds its record from then on."""
    row = await _ONE.first(connection, account)
    if row is not None and row.tip > row.after:
        await _COUNT.execute(connection, [account], [row.after], [row.tip], [True])


async def _step(pool: asyncpg.Pool, at: datetime, *, everything: bool) -> bool:
    """One transaction; False when nothing is due."""
    quiet, busy = (at + timedelta(days=1),) * 2 if everything else (at - QUIET_EVERY, at - BUSY_EVERY)
    async with pool.acquire() as connection, connection.transaction():
        due = _within_bounds(await _DUE.fetch(connection, quiet, MANY_EVENTS, busy, MAX_ACCOUNTS))
        if not due:
            return False
        await _COUNT.execute(
            connection,
            [one.account_id for one in due],
            [one.after for one in due],
            [one.upto for one in due],
            [one.upto == one.tip for one in due],
        )
    return True


def _within_bounds(due: list[StaleAccount]) -> list[StaleAccount]:
    events = 0
    for count, one in enumerate(due):
        events += one.upto - one.after
        if events >= MAX_EVENTS:
            return due[: count + 1]
    return due
