"""The schema `clock` of a database in local mode: functions that give service time to the sessions that name it.

Its `now()`, `clock_timestamp()` and `statement_timestamp()` take the place of those of `pg_catalog` in a session whose
search_path names it before `pg_catalog` (engine.store.postgres). It is made when the clock is moved for the first time,
and no migration has it: sessions of live mode never name it. Its newest row is the truth about how far service time is
ahead; the clock file is a copy. The rows before it are for transactions that began earlier: as `now()` of PostgreSQL
does, that of service time stays the same until the end of a transaction.
"""

import asyncio
from typing import Final

import asyncpg

from engine.store.postgres import connect
from engine.store.queries import Source

SOON_S: Final = 0.001  # a commit that does not wait for the disk takes a tenth of it
_CREATE: Final = """
DO $$
BEGIN
    IF to_regclass('clock.shift') IS NOT NULL THEN
        RETURN;
    END IF;
    CREATE SCHEMA clock;
    CREATE TABLE clock.shift (since timestamptz PRIMARY KEY, ahead interval NOT NULL);
    INSERT INTO clock.shift VALUES ('-infinity', '0');
    CREATE FUNCTION clock.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
        AS 'SELECT pg_catalog.now() OPERATOR(pg_catalog.+) coalesce(
                (SELECT ahead FROM clock.shift WHERE since OPERATOR(pg_catalog.<=) pg_catalog.now()
                 ORDER BY since DESC LIMIT 1),
                (SELECT ahead FROM clock.shift ORDER BY since LIMIT 1))';
    CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
        AS 'SELECT pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+)
                (SELECT ahead FROM clock.shift ORDER BY since DESC LIMIT 1)';
    CREATE FUNCTION clock.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
        AS 'SELECT pg_catalog.statement_timestamp() OPERATOR(pg_catalog.+)
                (SELECT ahead FROM clock.shift ORDER BY since DESC LIMIT 1)';
END $$
"""
_EXISTS: Final = "SELECT to_regclass('clock.shift') IS NOT NULL"
_READ: Final = "SELECT (extract(epoch FROM ahead) * 1000000)::bigint FROM clock.shift ORDER BY since DESC LIMIT 1"
# The rows of the last minute are kept: in a longer transaction, `now()` does change. Rows of the future are left from
# before the machine's clock was set back.
_WRITE: Final = """
WITH forgotten AS (
    DELETE FROM clock.shift WHERE since > pg_catalog.clock_timestamp()
        OR since < (SELECT max(since) FROM clock.shift WHERE since < pg_catalog.now() - interval '1 minute')
)
INSERT INTO clock.shift
VALUES (pg_catalog.clock_timestamp() + make_interval(secs => $2), $1::bigint * interval '1 microsecond')
"""


async def ahead_us(source: Source) -> int:
    """Return by how many microseconds the service time of this installation is ahead; 0 if it was never moved."""
    if not await source.fetchval(_EXISTS):
        return 0
    found: int = await source.fetchval(_READ)
    return found


async def open_mover(database_url: str) -> asyncpg.Connection:
    """Open a session that moves the clock, and make the schema if it is missing.

    The session plans each statement once, and its commits do not wait for the disk: whatever is stored at the new time
    comes later in the write-ahead log, so it cannot be kept without the move.
    """
    connection = await connect(database_url, name="clock", service_time=True)
    await connection.execute(_CREATE)
    await connection.execute("SET plan_cache_mode = force_generic_plan; SET synchronous_commit = off")
    return connection


async def move(connection: asyncpg.Connection, us: int) -> None:
    """Set how far service time is ahead, in microseconds; return when new transactions have it.

    It holds for transactions that begin `SOON_S` later, so that none begins before the row can be read and ends after.
    """
    await connection.execute(_WRITE, us, SOON_S)
    await asyncio.sleep(SOON_S)
