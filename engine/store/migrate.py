"""Apply migrations: numbered SQL files, each applied once, in order, in a transaction of its own, never undone.

They run while mail is sent. A statement that needs an exclusive table lock waits for current users of the table, and
all later statements wait behind it: so each attempt waits for its locks only briefly, lets the others pass and tries
again. Used by `ops migrate`, `ops up` and by processes, which require a current schema at their start.
"""

import asyncio
import hashlib
import random
import re
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import asyncpg
from msgspec import Struct

from engine.base import clock
from engine.base.version import COMMAND
from engine.store import partitions
from engine.store.database_errors import Deadlock, LockUnavailable, SchemaMismatch
from engine.store.own_schema import LOCK_SCHEMA
from engine.store.postgres import ACQUIRE_TIMEOUT_S, close_pool, connect, open_pool, refuse_pooler

FOLDER = Path(__file__).parent / "migrations"
LOCK_TIMEOUT_S = 1.0  # maximum time that other statements wait behind a migration that waits for its lock
RETRY_PAUSE_S = (0.5, 2.0)  # random pause between two attempts, in which waiting statements run
MAX_WAIT_S = 600.0  # for all attempts of one file, and for another migration in progress
_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_LOCK = 0x57617962  # "Wayb": one migration at a time on a database
_POLL_S = 0.25

# Digests of earlier texts with the same effect, by number: `STORAGE` inside CREATE TABLE needed PostgreSQL 16.
FORMER: dict[int, str] = {
    1: "1dc8c766673ed6a8b0923d4a364e1b15684263743481e341b10f24c3d4500727",
    25: "298e3966ba260650452fb9a73bdb3021ca7d729b21c02da7ba296de9f8229b05",
    27: "6ebc41c132a1be95d1969f00d43dbee3b9753a977124e5eafad5abc326990b10",
    37: "b01a2f872014218657dec441ca2f10dd7c039cab82881801d019272133d39c7a",
}

_MIGRATIONS_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    digest     text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""

_HAS_MIGRATIONS = """
SELECT EXISTS (
    SELECT FROM pg_class WHERE relname = 'schema_migrations' AND relnamespace = current_schema()::regnamespace
)
"""

_RIGHTS = """
SELECT current_user AS name, current_database() AS database, current_schema() AS schema,
       has_schema_privilege(current_schema(), 'CREATE') AS may_create,
       has_database_privilege(current_database(), 'TEMPORARY') AS may_make_temporary
"""

# Sessions that may block a migration: those with long transactions, longest first.
_HOLDERS = """
SELECT pid, application_name, extract(epoch FROM now() - xact_start)::float8 AS open_s
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start < now() - interval '1 second'
ORDER BY xact_start LIMIT 5
"""


class MigrationError(RuntimeError):
    """The database does not match the files, or can't be changed now; the text says why and what to do."""


class MigrationFile(Struct, frozen=True):
    """A migration file."""

    number: int
    name: str
    text: str
    digest: str  # SHA-256, hex


def _ignore(_: str) -> None:
    """Ignore a progress report."""


async def migrate(
    database_url: str,
    folder: Path = FOLDER,
    *,
    only: Collection[int] | None = None,
    report: Callable[[str], None] = _ignore,
    max_wait_s: float = MAX_WAIT_S,
) -> list[str]:
    """Apply the missing migrations (of the numbers `only`, if given) and create partitions; return the file names.

    Several hosts may call it at the same time: one applies the files, the others wait and find nothing to do. Each file
    is applied completely or not at all. Raises MigrationError if an applied file has changed since, if the database is
    newer than these files, if the user lacks a right, or if a lock is not granted within `max_wait_s`; BehindPooler
    or UnsupportedServer before any change.
    """
    await refuse_pooler(database_url)
    connection = await connect(database_url, name="migrate", timeout_s=30)
    try:
        await _require_rights(connection)
        await _acquire_lock(connection, report, max_wait_s)
        await connection.execute(_MIGRATIONS_TABLE)
        files = [one for one in read(folder) if only is None or one.number in only]
        applied = await _apply_missing(connection, files, report, max_wait_s)
        await partitions.ensure(connection, clock.now())
        await partitions.ensure_days(connection, clock.now())
        return applied
    finally:
        await connection.close()


async def pending(database_url: str, folder: Path = FOLDER) -> list[str]:
    """Return the names of the files that `migrate` would apply."""
    connection = await connect(database_url, name="migrate", timeout_s=30)
    try:
        exists = await connection.fetchval(_HAS_MIGRATIONS)
        done = await connection.fetch("SELECT number FROM schema_migrations") if exists else []
        numbers = {row["number"] for row in done}
        return [one.name for one in read(folder) if one.number not in numbers]
    finally:
        await connection.close()


async def open_current(database_url: str, **options: Any) -> asyncpg.Pool:
    """Open a pool for a process of the service. Raises MigrationError if the database lacks a migration."""
    pool = await open_pool(database_url, **options)
    try:
        await require(pool)
    except BaseException:
        await close_pool(pool)  # others may share it
        raise
    return pool


async def require_at(database_url: str) -> None:
    """Check the database of a URL as `require` does, over a session of its own."""
    connection = await connect(database_url, name="schema", command_timeout_s=ACQUIRE_TIMEOUT_S)
    try:
        await require(connection)
    finally:
        await connection.close()


async def require(source: asyncpg.Pool | asyncpg.Connection, folder: Path = FOLDER) -> None:
    """Raise MigrationError unless the database has every migration of these files; one query.

    It may have more: while hosts are upgraded one by one, the old version runs with the schema of the new one.
    """
    try:
        done = {row["number"] for row in await source.fetch("SELECT number FROM schema_migrations")}
    except SchemaMismatch:
        done = set()
    missing = [name for name in _names(folder) if int(name[:4]) not in done]
    if missing:
        raise MigrationError(
            f"the database lacks migrations of this version of Waybill ({missing[0]} is the first of {len(missing)}):"
            f" run `{COMMAND} migrate` first"
        )


def read(folder: Path = FOLDER) -> list[MigrationFile]:
    """Read the migration files in the order of their numbers. Raises MigrationError for a wrong or duplicate number."""
    files: dict[int, MigrationFile] = {}
    for path in sorted(folder.glob("*.sql")):
        match = _NAME.fullmatch(path.name)
        if match is None or int(match[1]) in files:
            raise MigrationError(
                f"{path.name} is not a valid migration name (0001_name.sql), or its number is used twice"
            )
        text = path.read_text("utf-8")
        files[int(match[1])] = MigrationFile(int(match[1]), path.name, text, hashlib.sha256(text.encode()).hexdigest())
    return list(files.values())


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.sql"))


async def _require_rights(connection: asyncpg.Connection) -> None:
    """Raise MigrationError if the user lacks a right that the service needs; it then changes nothing."""
    [row] = await connection.fetch(_RIGHTS)
    if row["schema"] is None:
        path = await connection.fetchval("SELECT current_setting('search_path')")
        raise MigrationError(
            f"no schema of the search path ({path}) exists that user {row['name']} may use. Create it:"
            f" CREATE SCHEMA … AUTHORIZATION {row['name']}"
        )
    if not row["may_create"]:
        raise MigrationError(
            f"user {row['name']} may not create tables in schema {row['schema']}. Make the user its owner:"
            f" ALTER SCHEMA {row['schema']} OWNER TO {row['name']}"
        )
    if not row["may_make_temporary"]:
        raise MigrationError(
            f"user {row['name']} may not make temporary functions, which every session needs. Allow it:"
            f" GRANT TEMPORARY ON DATABASE {row['database']} TO {row['name']}"
        )


async def _acquire_lock(connection: asyncpg.Connection, report: Callable[[str], None], max_wait_s: float) -> None:
    """Wait until this session alone may migrate the database. The lock is released with the session."""
    ends = time.monotonic() + max_wait_s
    reported = False
    while not await connection.fetchval(f"SELECT pg_try_advisory_lock($1::bigint # {LOCK_SCHEMA})", _LOCK):
        if time.monotonic() > ends:
            raise MigrationError(f"another migration of this database has been in progress for over {max_wait_s:.0f} s")
        if not reported:
            report("another migration is in progress: waiting for it")
            reported = True
        await asyncio.sleep(_POLL_S)


async def _apply_missing(
    connection: asyncpg.Connection, files: list[MigrationFile], report: Callable[[str], None], max_wait_s: float
) -> list[str]:
    rows = await connection.fetch("SELECT number, name, digest FROM schema_migrations ORDER BY number")
    done = {row["number"]: row for row in rows}
    unknown = sorted(set(done) - {file.number for file in files})
    if unknown:
        name = done[unknown[0]]["name"]
        raise MigrationError(
            f"the database is newer than this version of Waybill: it has migration {name}, which this version does not"
            " know. Install the version that applied it, or a later one; migrations can't be undone."
        )
    applied = []
    for file in files:
        if file.number not in done:
            await _apply(connection, file, report, max_wait_s)
            applied.append(file.name)
        elif done[file.number]["digest"] not in {file.digest, FORMER.get(file.number)}:
            raise MigrationError(
                f"migration {file.name} was changed after it had been applied; restore the original file"
            )
    return applied


async def _apply(
    connection: asyncpg.Connection, file: MigrationFile, report: Callable[[str], None], max_wait_s: float
) -> None:
    """Apply one file in a transaction; try again while others hold locks that it needs."""
    report(f"applying {file.name}")
    ends = time.monotonic() + max_wait_s
    while True:
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = '{round(LOCK_TIMEOUT_S * 1000)}ms'")
                await connection.execute("SET LOCAL statement_timeout = 0")
                await connection.execute(file.text)
                await connection.execute(
                    "INSERT INTO schema_migrations (number, name, digest) VALUES ($1, $2, $3)",
                    file.number,
                    file.name,
                    file.digest,
                )
        except (LockUnavailable, Deadlock) as error:
            holders = await _holders(connection)
            if time.monotonic() > ends:
                raise MigrationError(
                    f"{file.name} could not get its locks within {max_wait_s:.0f} s; nothing of it was applied."
                    f" Open transactions: {holders}. End them, and migrate again."
                ) from error
            report(f"{file.name} did not get its locks and tries again; open transactions: {holders}")
            await asyncio.sleep(random.uniform(*RETRY_PAUSE_S))
        else:
            return


async def _holders(connection: asyncpg.Connection) -> str:
    rows = await connection.fetch(_HOLDERS)
    shown = (f"{row['application_name'] or 'unnamed'} (process {row['pid']}, {row['open_s']:.0f} s)" for row in rows)
    return ", ".join(shown) or "none"
