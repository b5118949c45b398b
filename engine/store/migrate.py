"""Forward-only migrations: numbered SQL files, each applied once, in order, in a transaction of its own."""

import hashlib
import re
from pathlib import Path

import asyncpg

from engine.base import clock
from engine.store import partitions
from engine.store.postgres import connect

FOLDER = Path(__file__).parent / "migrations"
_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_LOCK = 0x57617962  # "Wayb": one migration at a time on a database

_LEDGER = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    digest     text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


class MigrationError(RuntimeError):
    """The database and the files disagree; the text says how."""


async def migrate(database_url: str, folder: Path = FOLDER) -> list[str]:
    """Apply what is missing and make the partitions ahead; returns the names of the files applied.

    Safe to call from several hosts at once. Raises MigrationError when an applied file has changed since,
    or when the database is ahead of these files.
    """
    connection = await connect(database_url, name="migrate", timeout_s=30)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
        await connection.execute(_LEDGER)
        applied = await _apply_missing(connection, _read(folder))
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
        return [path.name for number, path in _read(folder).items() if number not in numbers]
    finally:
        await connection.close()


async def _apply_missing(connection: asyncpg.Connection, files: dict[int, Path]) -> list[str]:
    rows = await connection.fetch("SELECT number, name, digest FROM schema_migrations ORDER BY number")
    done = {row["number"]: row for row in rows}
    unknown = sorted(set(done) - set(files))
    if unknown:
        name = done[unknown[0]]["name"]
        raise MigrationError(f"the database holds migration {name}, which this version does not know: upgrade Waybill")
    applied = []
    for number, path in files.items():
        text = path.read_text("utf-8")
        digest = hashlib.sha256(text.encode()).hexdigest()
        if number in done:
            if done[number]["digest"] != digest:
                raise MigrationError(f"migration {path.name} was changed after it had been applied")
            continue
        async with connection.transaction():
            await connection.execute(text)
            await connection.execute(
                "INSERT INTO schema_migrations (number, name, digest) VALUES ($1, $2, $3)",
                number,
                path.name,
                digest,
            )
        applied.append(path.name)
    return applied


def _read(folder: Path) -> dict[int, Path]:
    files: dict[int, Path] = {}
    for path in sorted(folder.glob("*.sql")):
        match = _NAME.fullmatch(path.name)
        if match is None or int(match[1]) in files:
            raise MigrationError(f"{path.name} is not a migration name, or its number is taken")
        files[int(match[1])] = path
    return files
