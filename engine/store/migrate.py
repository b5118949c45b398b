"""Forward-only migrations: numbered SQL files, each applied once, in order, in a transaction of its own.

They run while mail is sent. A statement that wants a table for itself queues up behind whoever reads it, and everybody
else queues up behind the statement: so each try waits a moment only, lets the others pass, and comes again.
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
from engine.store import partitions
from engine.store.database_errors import Deadlock, LockUnavailable, SchemaMismatch
from engine.store.postgres import ACQUIRE_TIMEOUT_S, connect, open_pool

FOLDER = Path(__file__).parent / "migrations"
TRY_S = 1.0  # how long everybody may have to wait behind a statement that waits for its lock
PAUSE_S = (0.5, 2.0)  # between two tries, drawn evenly: what has piled up goes through
PATIENCE_S = 600.0  # for all tries of one file, and for another migration under way
_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_LOCK = 0x57617962  # "Wayb": one migration at a time on a database
_TURN_S = 0.25

_LEDGER = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    digest     text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""

# Who keeps others waiting: sessions with a transaction that has lasted, longest first.
_HOLDERS = """
SELECT pid, application_name, extract(epoch FROM now() - xact_start)::float8 AS open_s
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start < now() - interval '1 second'
ORDER BY xact_start LIMIT 5
"""


class MigrationError(RuntimeError):
    """The database and the files disagree, or it can't be changed now; the text says how and what to do."""


class MigrationFile(Struct, frozen=True):
    """One migration as it lies in the folder."""

    number: int
    name: str
    text: str
    digest: str  # SHA-256, hex


def _nobody(_: str) -> None:
    """Who listens when nobody does."""


async def migrate(
    database_url: str,
    folder: Path = FOLDER,
    *,
    only: Collection[int] | None = None,
    say: Callable[[str], None] = _nobody,
    patience_s: float = PATIENCE_S,
) -> list[str]:
    """Apply what is missing (of the numbers `only`, where given) and make the partitions ahead; the files' names.

    Safe to call from several hosts at once: one applies, the others wait for it and find nothing left. Each file is
    applied whole or not at all. Raises MigrationError when an applied file has changed since, when the database is
    ahead of these files, or when a lock could not be had within `patience_s`.
    """
    connection = await connect(database_url, name="migrate", timeout_s=30)
    try:
        await _turn(connection, say, patience_s)
        await connection.execute(_LEDGER)
        files = [one for one in read(folder) if only is None or one.number in only]
        applied = await _apply_missing(connection, files, say, patience_s)
        await partitions.ensure(connection, clock.now())
        return applied
    finally:
        await connection.close()


async def pending(database_url: str, folder: Path = FOLDER) -> list[str]:
    """Names of the files that `migrate` would apply."""
    connection = await connect(database_url, name="migrate", timeout_s=30)
    try:
        exists = await connection.fetchval("SELECT to_regclass('schema_migrations') IS NOT NULL")
        done = await connection.fetch("SELECT number FROM schema_migrations") if exists else []
        numbers = {row["number"] for row in done}
        return [one.name for one in read(folder) if one.number not in numbers]
    finally:
        await connection.close()


async def open_current(database_url: str, **options: Any) -> asyncpg.Pool:
    """`open_pool` for a process of the service; raises MigrationError on a database that lacks a migration of ours."""
    pool = await open_pool(database_url, **options)
    try:
        await require(pool)
    except MigrationError:
        pool.terminate()
        raise
    return pool


async def require_at(database_url: str) -> None:
    """`require` for who has no connection."""
    connection = await connect(database_url, name="schema", command_timeout_s=ACQUIRE_TIMEOUT_S)
    try:
        await require(connection)
    finally:
        await connection.close()


async def require(source: asyncpg.Pool | asyncpg.Connection, folder: Path = FOLDER) -> None:
    """Raises MigrationError unless the database has every migration of these files: one query.

    It may have more: while hosts are upgraded one by one, the version before goes on with the schema of the next.
    """
    try:
        done = {row["number"] for row in await source.fetch("SELECT number FROM schema_migrations")}
    except SchemaMismatch:
        done = set()
    missing = [name for name in _names(folder) if int(name[:4]) not in done]
    if missing:
        raise MigrationError(
            f"the database lacks migrations of this version of Waybill ({missing[0]} is the first of {len(missing)}):"
            " run `python3 -m ops migrate` first"
        )


def read(folder: Path = FOLDER) -> list[MigrationFile]:
    """The files, in order of their numbers; raises MigrationError for a wrong name or a number that is taken."""
    files: dict[int, MigrationFile] = {}
    for path in sorted(folder.glob("*.sql")):
        match = _NAME.fullmatch(path.name)
        if match is None or int(match[1]) in files:
            raise MigrationError(f"{path.name} is not a migration name, or its number is taken")
        text = path.read_text("utf-8")
        files[int(match[1])] = MigrationFile(int(match[1]), path.name, text, hashlib.sha256(text.encode()).hexdigest())
    return list(files.values())


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.sql"))


async def _turn(connection: asyncpg.Connection, say: Callable[[str], None], patience_s: float) -> None:
    """Be the only one who migrates this database. The session's end gives the turn back."""
    ends = time.monotonic() + patience_s
    told = False
    while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
        if time.monotonic() > ends:
            raise MigrationError(f"another migration of this database has been under way for over {patience_s:.0f} s")
        if not told:
            say("another migration is under way: waiting for it")
            told = True
        await asyncio.sleep(_TURN_S)


async def _apply_missing(
    connection: asyncpg.Connection, files: list[MigrationFile], say: Callable[[str], None], patience_s: float
) -> list[str]:
    rows = await connection.fetch("SELECT number, name, digest FROM schema_migrations ORDER BY number")
    done = {row["number"]: row for row in rows}
    unknown = sorted(set(done) - {file.number for file in files})
    if unknown:
        name = done[unknown[0]]["name"]
        raise MigrationError(
            f"the database is newer than this version of Waybill: it holds migration {name}, which this version does"
            " not know. Install the version that made it, or a later one; a database never goes back."
        )
    applied = []
    for file in files:
        if file.number not in done:
            await _apply(connection, file, say, patience_s)
            applied.append(file.name)
        elif done[file.number]["digest"] != file.digest:
            raise MigrationError(f"migration {file.name} was changed after it had been applied")
    return applied


async def _apply(
    connection: asyncpg.Connection, file: MigrationFile, say: Callable[[str], None], patience_s: float
) -> None:
    """One file, whole: tried again while somebody holds what it needs."""
    say(f"applying {file.name}")
    ends = time.monotonic() + patience_s
    while True:
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = '{round(TRY_S * 1000)}ms'")
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
                    f"{file.name} could not get its locks within {patience_s:.0f} s; nothing of it was applied."
                    f" Open transactions: {holders}. End them, and migrate again."
                ) from error
            say(f"{file.name} waits for its locks and lets the others pass; open transactions: {holders}")
            await asyncio.sleep(random.uniform(*PAUSE_S))
        else:
            return


async def _holders(connection: asyncpg.Connection) -> str:
    rows = await connection.fetch(_HOLDERS)
    told = (f"{row['application_name'] or 'unnamed'} (process {row['pid']}, {row['open_s']:.0f} s)" for row in rows)
    return ", ".join(told) or "none that lasts"
