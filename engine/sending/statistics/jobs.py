"""Add new events of the account logs to the stored counts, so that reading statistics stays cheap.

Statistics are exact without this job: readers count events that are not counted yet themselves.
"""

import time
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock
from engine.store.jobs import Job
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "jobs.sql")
_OPEN = _SQL.command("open_records")
_COUNT = _SQL.command("count_log")

# A reader counts up to this many events itself, in milliseconds. Accounts with more are counted at most once a minute,
# because each count reads all messages of the quarter hours concerned.
MANY_EVENTS = 1_000
BUSY_EVERY = timedelta(minutes=1)
QUIET_EVERY = timedelta(minutes=10)
MAX_ACCOUNTS = 200  # in one transaction
# Limits per transaction, of one account and of all. Each step counts whole quarter hours (a second for a million
# messages), so a busy minute must not need many steps.
MAX_OF_ONE, MAX_EVENTS = 200_000, 200_000
BUDGET_S = 20.0


class StaleAccount(Struct):
    """An account whose counts are behind its log."""

    account_id: UUID
    after: int
    tip: int

    @property
    def upto(self) -> int:
        """Return the seq at which the next step ends."""
        return min(self.tip, self.after + MAX_OF_ONE)


_DUE = _SQL.rows("take_due", StaleAccount)
_ONE = _SQL.rows("take_one", StaleAccount)


async def count_ahead(pool: asyncpg.Pool, *, everything: bool = False, budget_s: float = BUDGET_S) -> bool:
    """Count what is due, in steps; several processes may run it. Return False if `budget_s` was used up.

    `everything` counts every account to the end of its log.
    """
    await _OPEN.execute(pool)
    ends = time.monotonic() + budget_s
    while await _step(pool, clock.now(), everything=everything):
        if time.monotonic() > ends:
            return False
    return True


JOB = Job("figures", every_s=15, run=lambda pool, _: count_ahead(pool))


async def count_rest(connection: Conn, account: UUID) -> None:
    """Count one account to the end of its log in the caller's transaction, which locks its record."""
    row = await _ONE.first(connection, account)
    if row is not None and row.tip > row.after:
        await _COUNT.execute(connection, [account], [row.after], [row.tip], [True])


async def _step(pool: asyncpg.Pool, at: datetime, *, everything: bool) -> bool:
    """Count in one transaction; return False if nothing is due."""
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
