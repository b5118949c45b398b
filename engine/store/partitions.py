"""Create and drop the weekly partitions of the large tables, and the daily ones of the request log.

All are partitioned by a UUIDv7, so a week is a range of ids (engine.base.ids.floor_of). The worker creates them weeks
ahead; if it has been down for that long, the first session that misses one creates it (engine.store.postgres).
"""

from datetime import UTC, date, datetime, timedelta

import asyncpg
import structlog

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.store import metrics
from engine.store.jobs import Job
from engine.store.own_schema import LOCK_SCHEMA
from engine.store.queries import Conn

_log = structlog.get_logger("partitions")

TABLES = (
    "messages", "message_bodies", "recipients", "events", "webhook_attempts", "inbound_messages", "inbound_bytes",
)  # fmt: skip
DAY_TABLES = ("api_requests",)
DAYS_AHEAD = 7
DEFAULT_WEEKS_AHEAD = 5  # weeks: a month without a worker still finds its partition
MIN_WEEKS_AHEAD = 4  # fewer means that the worker, which creates them hourly, has not run for over a week
WEEK = timedelta(days=7)
DAY = timedelta(days=1)
_LOCK = 0x57617957  # "WayW": lock for creating partitions

# Rows of messages and recipients are updated once or twice soon after their insert, a page in one transaction: with
# these fill factors 98% of the updates stay on their page, with 85 and 80 only two thirds (decision 0081).
# A received message changes at most a few times in its life, mostly when somebody reads it.
# The automatic vacuum looks every 10 s. While a broadcast filled a young partition, it found a quarter more rows each
# time, and vacuumed and analysed all of these tables, while other mail waited for a processor (decision 0085).
# Two messages of up to 4 KB share a page. Kept apart (TOAST), each would be three more rows and index entries.
_FEWER_VACUUMS = "autovacuum_analyze_threshold = 20000, autovacuum_vacuum_insert_threshold = 50000"
_PARAMETERS = {
    "messages": f"fillfactor = 60, {_FEWER_VACUUMS}", "message_bodies": f"toast_tuple_target = 4064, {_FEWER_VACUUMS}",
    "recipients": f"fillfactor = 55, {_FEWER_VACUUMS}", "events": _FEWER_VACUUMS,
    "inbound_messages": "fillfactor = 90",
}  # fmt: skip


async def ensure(connection: Conn, at: datetime, *, ahead: int = DEFAULT_WEEKS_AHEAD) -> list[str]:
    """Create the partitions from the week before `at` to `ahead` weeks after it; return the names of the new ones."""
    made = []
    existing = {row["name"] for row in await connection.fetch(_EXISTING, list(TABLES))}
    known = {row["name"] for row in await connection.fetch(_PARTITIONED)}  # an older schema lacks some
    for step in range(-1, ahead + 1):
        monday = week_of(at) + step * WEEK
        for table in (one for one in TABLES if one in known):
            name = partition_name(table, monday)
            if name in existing:
                continue
            await _make(connection, table, monday)
            made.append(name)
    return made


async def ensure_days(connection: Conn, at: datetime) -> list[str]:
    """Create the daily partitions from the day before `at` to `DAYS_AHEAD` after it; return their names."""
    made = []
    existing = {row["name"] for row in await connection.fetch(_EXISTING, list(DAY_TABLES))}
    known = {row["name"] for row in await connection.fetch(_PARTITIONED)}  # an older schema lacks them
    today = at.astimezone(UTC).date()
    for day in (today + step * DAY for step in range(-1, DAYS_AHEAD + 1)):
        for table in (one for one in DAY_TABLES if one in known):
            if (name := partition_name(table, day)) not in existing:
                await _make(connection, table, day, width=DAY)
                made.append(name)
    return made


async def make_ahead(pool: asyncpg.Pool, _: Settings) -> None:
    """Create the partitions of the next weeks and days that are missing."""
    async with pool.acquire() as connection:
        now = clock.now()
        made = await ensure(connection, now) + await ensure_days(connection, now)
        metrics.PARTITIONS_UNTIL.set(end_of(now, await weeks_ahead(connection, now)).timestamp())
    if made:
        _log.info("partitions made", names=made)


JOB = Job("partitions", every_s=3600, run=make_ahead)


async def make(connection: Conn, table: str, first: date) -> None:
    """Create the partition of the week, or of the day of a daily table, that begins at `first`, if it is missing."""
    if not await connection.fetchval(_EXISTS, partition_name(table, first)):
        await _make(connection, table, first, width=DAY if table in DAY_TABLES else WEEK)


async def drop_before(connection: Conn, table: str, before: datetime) -> list[str]:
    """Drop the partitions of `table` whose last id is older than `before`; return their names.

    Waits at most one second for users of the table; the next hourly run repeats a failed drop.
    """
    is_daily = table in DAY_TABLES
    last = partition_name(table, before.astimezone(UTC).date() - DAY if is_daily else week_of(before) - WEEK)
    existing = sorted(row["name"] for row in await connection.fetch(_EXISTING, [table]))
    dropped = [name for name in existing if name <= last]
    for name in dropped:
        async with connection.transaction():
            await connection.execute("SET LOCAL lock_timeout = '1s'")
            await connection.execute(f"DROP TABLE {name}")
    return dropped


async def weeks(connection: Conn, table: str) -> list[date]:
    """Return the Mondays of the weeks that have a partition of `table`, oldest first."""
    existing = [row["name"] for row in await connection.fetch(_EXISTING, [table])]
    return sorted(datetime.strptime(name.rpartition("_")[2], "%Y%m%d").date() for name in existing)  # noqa: DTZ007 - a day has no zone


async def weeks_ahead(connection: Conn, at: datetime) -> int:
    """Return how many weeks after the present one have partitions in every table; -1 if the present one lacks one."""
    existing = {row["name"] for row in await connection.fetch(_EXISTING, list(TABLES))}
    ahead = -1
    while all(partition_name(table, week_of(at) + (ahead + 1) * WEEK) in existing for table in TABLES):
        ahead += 1
    return ahead


def end_of(at: datetime, ahead: int) -> datetime:
    """Return the end of the week that lies `ahead` weeks after that of `at`."""
    return datetime.combine(week_of(at) + (ahead + 1) * WEEK, datetime.min.time(), UTC)


def is_missing(error: asyncpg.exceptions.CheckViolationError) -> bool:
    """Return True if PostgreSQL found no partition for a row: the error then names a table and no constraint."""
    return error.constraint_name is None and error.table_name in {*TABLES, *DAY_TABLES}


async def _make(connection: Conn, table: str, first: date, *, width: timedelta = WEEK) -> None:
    """Create a table and then attach it: this does not block readers and writers of the parent table, which `CREATE
    TABLE … PARTITION OF` would, with its exclusive lock.
    """
    name = partition_name(table, first)
    low, high = bounds(first, width)
    async with connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = '5s'")
        await connection.execute(f"SELECT pg_advisory_xact_lock($1::bigint # {LOCK_SCHEMA})", _LOCK)
        if await connection.fetchval(_EXISTS, name):  # another process was first
            return
        await connection.execute(
            f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE "
            "INCLUDING GENERATED)" + (f" WITH ({_PARAMETERS[table]})" if table in _PARAMETERS else "")
        )
        await connection.execute(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{low}') TO ('{high}')")


def week_of(at: datetime) -> date:
    """Return the Monday of the UTC week of `at`."""
    day = at.astimezone(UTC).date()
    return day - timedelta(days=day.weekday())


def partition_name(table: str, first: date) -> str:
    """Return the name of a partition by its first day, such as `messages_20261116`."""
    return f"{table}_{first:%Y%m%d}"


def bounds(first: date, width: timedelta = WEEK) -> tuple[str, str]:
    """Return the first id of the week or day that begins with `first`, and the first id of the next."""
    start = datetime.combine(first, datetime.min.time(), UTC)
    low, high = (ids.floor_of(clock.milliseconds(at)) for at in (start, start + width))
    return str(low), str(high)


_EXISTING = """
SELECT child.relname AS name
FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid JOIN pg_class parent ON parent.oid = inhparent
WHERE parent.relname = ANY($1) AND parent.relnamespace = current_schema()::regnamespace
"""
_EXISTS = "SELECT EXISTS (SELECT FROM pg_class WHERE relname = $1 AND relnamespace = current_schema()::regnamespace)"
_PARTITIONED = (
    "SELECT relname AS name FROM pg_class WHERE relkind = 'p' AND relnamespace = current_schema()::regnamespace"
)
