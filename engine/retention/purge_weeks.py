"""Drop whole weeks of partitions, once no account keeps them or when they are empty.

A drop needs an exclusive lock on the table. It waits only briefly for the lock, because all other transactions wait
behind it, and tries again later.
"""

import asyncio
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

import structlog
from msgspec import Struct

from engine.base import clock, ids
from engine.ledger import heads
from engine.sending.statistics.rules import quarter_of
from engine.store import partitions
from engine.store.database_errors import Deadlock, LockUnavailable, StatementCanceled
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "purge_weeks.sql")
MAIL = ("messages", "message_bodies", "recipients")
RECEIVED = ("inbound_messages", "inbound_bytes")  # emptied row by row, so that the kept counts stay exact
LOG = "events"
LOCK_WAIT_MS = 300
TRIES, PAUSE_S = 5, 1.0
SKEW = timedelta(days=1)  # the largest difference between the clocks of hosts that write one log

_log = structlog.get_logger("purge")


class WeekLogEnd(Struct):
    """The last event of an account's log within a week."""

    account_id: UUID
    seq: int
    hash: bytes
    counted_seq: int


_UNSENT = _SQL.command("unsent_below")
_UNFINISHED = _SQL.command("unfinished")
_ENDS = _SQL.rows("log_ends", WeekLogEnd)
_MOVE = _SQL.command("move_beginnings")


def last_end(cutoff: datetime) -> datetime:
    """Return the end of the last week that can be dropped if no record older than `cutoff` is kept."""
    return datetime.combine(partitions.week_of(cutoff - SKEW), time(), UTC)


async def drop(connection: Conn, at: datetime, *, longest: timedelta, shortest: timedelta) -> list[str]:
    """Drop the partitions due at `at`; return their names. `longest` and `shortest` are the retentions of all
    accounts.
    """
    dropped = []
    for table in (*MAIL, *RECEIVED, LOG):
        for monday in await partitions.weeks(connection, table):
            if _end_of(monday) > last_end(at - shortest):
                break
            name = partitions.partition_name(table, monday)
            whole = table not in RECEIVED and _end_of(monday) <= last_end(at - longest)
            if not (await _may_go(connection, table, monday) if whole else await _is_empty(connection, name)):
                continue
            if not await _drop(connection, table, monday, whole=whole):
                break
            dropped.append(name)
    return dropped


async def expired(connection: Conn, at: datetime, *, longest: timedelta) -> list[str]:
    """Return the partitions that no account keeps at `at`; they are dropped once they are counted."""
    return [
        partitions.partition_name(table, monday)
        for table in (*MAIL, *RECEIVED, LOG)
        for monday in await partitions.weeks(connection, table)
        if _end_of(monday) <= last_end(at - longest) and not await _unsent(connection, monday)
    ]


async def _may_go(connection: Conn, table: str, monday: date) -> bool:
    """Return True if an expired week holds no unsent mail and no uncounted figures."""
    return not await _unsent(connection, monday) and await _is_counted(connection, table, monday)


async def _unsent(connection: Conn, monday: date) -> bool:
    (row,) = await _UNSENT.records(connection, _ids_of(monday)[1])
    return bool(row["unsent"])


async def _is_counted(connection: Conn, table: str, monday: date) -> bool:
    if table == LOG:
        return all(end.seq <= end.counted_seq for end in await _ENDS.fetch(connection, *_ids_of(monday)))
    (row,) = await _UNFINISHED.records(connection, _end_of(monday), quarter_of(_end_of(monday)))
    return not row["unfinished"]


async def _is_empty(connection: Conn, name: str) -> bool:
    """Return True if a partition has no rows; False if that takes long to find out, as with many dead rows."""
    try:
        return not await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {name})")  # noqa: S608 - a name of ours
    except StatementCanceled:
        return False


async def _drop(connection: Conn, table: str, monday: date, *, whole: bool) -> bool:
    """Drop one partition in a transaction; return False if its lock could not be taken within the tries."""
    for last in (False,) * (TRIES - 1) + (True,):
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
                return await _dropped(connection, table, monday, whole=whole)
        except (LockUnavailable, Deadlock):
            if not last:
                await asyncio.sleep(PAUSE_S)
    _log.info("partition not dropped: its table is in use", partition=partitions.partition_name(table, monday))
    return False


async def _dropped(connection: Conn, table: str, monday: date, *, whole: bool) -> bool:
    """Drop a partition; locks heads before tables, the order of all transactions."""
    low, high = _ids_of(monday)
    name = partitions.partition_name(table, monday)
    ends = await _ENDS.fetch(connection, low, high) if whole and table == LOG else []
    if ends:
        locked = await heads.lock(connection, [end.account_id for end in ends])
        known = [end for end in ends if end.account_id in locked]
        await _MOVE.execute(
            connection,
            [end.account_id for end in known],
            [end.seq for end in known],
            [end.hash for end in known],
            high,
            _floor(_end_of(monday) + SKEW),
        )
    await connection.execute(f"LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE")
    await connection.execute(f"SET LOCAL statement_timeout = {LOCK_WAIT_MS}")
    if not whole and not await _is_empty(connection, name):
        return False
    await connection.execute(f"DROP TABLE {name}")
    return True


def _ids_of(monday: date) -> tuple[UUID, UUID]:
    low, high = partitions.bounds(monday)
    return UUID(low), UUID(high)


def _end_of(monday: date) -> datetime:
    return datetime.combine(monday, time(), UTC) + partitions.WEEK


def _floor(at: datetime) -> UUID:
    return ids.floor_of(clock.milliseconds(at))
