"""Restore a backup into an empty database, in one transaction; every table is read back and compared first.

Deliveries that were pending in the backup are pending again, although they may have succeeded since. All mail is
therefore held until the operator releases it.
"""

import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.accounts.audit import store as audit
from engine.base import ids
from engine.delivery import holds
from engine.delivery.holds import HoldKind
from engine.sending import queue_admin
from engine.store import partitions
from engine.store.migrate import MigrationError, migrate, read
from engine.store.postgres import close_pool, open_pool
from engine.store.queries import Queries
from ops.backup.dump import Say
from ops.backup.manifest import BackupError, BackupPart, Manifest
from ops.backup.rows import RowSum
from ops.backup.tables import MIGRATIONS, SESSIONS, connected, every_table, quoted

OWN_NAME: Final = "waybill restore"
SEEDED: Final = frozenset({"schema_migrations", "stamps", "receiving_labels"})  # filled by migrations or triggers
_PIECE_BYTES: Final = 1 << 20
_CHAINS_AT_ONCE: Final = 500

_SQL = Queries.beside(__file__, "restore.sql")
_ACCOUNTS = _SQL.command("logged_accounts")


class Restored(Struct, frozen=True):
    """Result of a restore. `broken` lists the accounts whose log fails verification, with the position and problem."""

    tables: int
    rows: int
    chains: int
    broken: list[str]
    held: int | None  # deliveries put under the hold; None: no hold was asked for
    migrated: list[str]


class _Broken(Struct, frozen=True):
    account: str
    at: int
    problem: str


async def restore(
    database_url: str,
    folder: Path,
    manifest: Manifest,
    *,
    hold: bool,
    say: Say,
    stage: Callable[[str], None],
    committed: Callable[[], None],
) -> Restored:
    """Restore the backup in `folder`, whose files have been checked, into the empty database at `database_url`.

    `committed` is called as soon as the rows are in the database: from then on its keys need the backup's pepper. A
    failure before the commit leaves the tables but none of the backup's rows. Raises BackupError.
    """
    wanted = known_migrations(manifest)
    async with connected(database_url, OWN_NAME) as connection:
        await refuse_company(connection)
        await refuse_full(connection, wanted)
    stage("Making the tables")
    await _migrated(database_url, only=wanted)
    async with connected(database_url, OWN_NAME) as connection:
        async with connection.transaction():
            await refuse_full(connection, wanted)
            stage("Copying and reading back")
            for part in manifest.parts:
                await _fill(connection, folder, part, say)
            if hold:
                await holds.PUT.execute(
                    connection, ids.uuid7(), HoldKind.SITE.value, holds.EVERYWHERE, _why(manifest), None
                )
        committed()
        stage("Counting for the planner")
        await connection.execute("ANALYZE")
        stage("Replaying the accounts' logs")
        chains, broken = await _replay(connection)
    stage("Bringing the schema up to date")
    migrated = await _migrated(database_url)
    held = await _hold(database_url, _why(manifest)) if hold else None
    told = [f"{one.account} at {one.at}: {one.problem}" for one in broken]
    return Restored(len(manifest.parts), manifest.rows, chains, told, held, migrated)


def known_migrations(manifest: Manifest) -> frozenset[int]:
    """Return the migration numbers of the backup; raises BackupError if this version lacks one or changed it."""
    ours = {one.number: one for one in read()}
    for one in manifest.migrations:
        if one.number not in ours or ours[one.number].digest != one.digest:
            raise BackupError(
                f"this backup was made by another version of Waybill ({manifest.version}): this one does not know its"
                f" migration {one.name}. Restore it with that version, or a later one."
            )
    return frozenset(one.number for one in manifest.migrations)


async def refuse_company(connection: asyncpg.Connection) -> None:
    """Raise BackupError if processes of Waybill are connected to the database."""
    names = [one.name for one in await SESSIONS.fetch(connection, OWN_NAME)]
    if names:
        raise BackupError(f"processes of Waybill are connected to this database ({', '.join(names)}): stop them first")


async def refuse_full(connection: asyncpg.Connection, wanted: frozenset[int]) -> None:
    """Raise BackupError if the database has rows besides those of migrations, or has migrations not in `wanted`."""
    found = await every_table(connection)
    for table in found:
        if (table.parent or table.name) in SEEDED:
            continue
        if await connection.fetchval(f"SELECT EXISTS (SELECT FROM {quoted(table.name)})"):  # noqa: S608 - quoted
            raise BackupError(
                f"the database is not empty: {table.name} has rows. A backup can only be restored into an empty "
                "database. Create one, or choose another WAYBILL_STATE for an embedded one."
            )
    if any(table.name == "schema_migrations" for table in found):
        strange = [one.name for one in await MIGRATIONS.fetch(connection) if one.number not in wanted]
        if strange:
            raise BackupError(
                f"the empty database has a newer schema than the backup ({strange[0]}): restore into a new database"
            )


async def _migrated(database_url: str, only: frozenset[int] | None = None) -> list[str]:
    try:
        return await migrate(database_url, only=only)
    except MigrationError as error:
        raise BackupError(str(error)) from error


async def _fill(connection: asyncpg.Connection, folder: Path, part: BackupPart, say: Say) -> None:
    """Copy one table into the database and read it back; raises BackupError if either differs from the manifest."""
    if part.parent is not None:
        await partitions.make(connection, part.parent, _first_day(part))
    elif part.table in SEEDED:
        await connection.execute(f"DELETE FROM {quoted(part.table)}")  # noqa: S608 - quoted
    given, kept = RowSum(), RowSum()
    try:
        await connection.copy_to_table(
            part.table, columns=part.columns, source=_pieces(folder / part.file, given, part.table, say), format="text"
        )
    except (asyncpg.PostgresError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BackupError(f"{part.file} can't be copied into {part.table}: {error}") from error

    async def take(piece: bytes) -> None:
        kept.add(piece)

    await connection.copy_from_table(part.table, columns=part.columns, output=take, format="text")
    for words, found in (("the file holds", given), ("the database has", kept)):
        if (found.rows, found.digest) != (part.rows, part.digest):
            raise BackupError(
                f"{part.table} is not what was backed up: {words} {found.rows} rows ({found.digest}), the manifest says"
                f" {part.rows} ({part.digest})"
            )


async def _pieces(path: Path, rows: RowSum, name: str, say: Say) -> AsyncIterator[bytes]:
    with gzip.open(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            rows.add(piece)
            say(name, len(piece))
            yield piece


def _first_day(part: BackupPart) -> date:
    text = part.table.rpartition("_")[2]
    with suppress(ValueError):
        found = datetime.strptime(text, "%Y%m%d").date()  # noqa: DTZ007 - a day has no zone
        known = part.parent in {*partitions.TABLES, *partitions.DAY_TABLES}
        if known and part.parent is not None and part.table == partitions.partition_name(part.parent, found):
            return found
    raise BackupError(f"{part.table} is no partition of {part.parent}")


async def _replay(connection: asyncpg.Connection) -> tuple[int, list[_Broken]]:
    """Verify every account log against its head; return the number of logs and the broken ones."""
    chains, broken = 0, []
    after = UUID(int=0)
    while rows := await _ACCOUNTS.records(connection, after, _CHAINS_AT_ONCE):
        for row in rows:
            verdict = await audit.verify(connection, row["account_id"])
            chains += 1
            if verdict.broken is not None:
                account = ids.format_id(ids.Kind.ACCOUNT, row["account_id"])
                broken.append(_Broken(account, verdict.broken.at, verdict.broken.problem))
        after = rows[-1]["account_id"]
    return chains, broken


async def _hold(database_url: str, reason: str) -> int:
    """Hold all pending deliveries, with an event in the waybill of each message; return their number."""
    pool = await open_pool(database_url, name="restore", largest=2)
    try:
        return await queue_admin.suspend(pool, queue_admin.queue_target(HoldKind.SITE, holds.EVERYWHERE), reason=reason)
    finally:
        await close_pool(pool)


def _why(manifest: Manifest) -> str:
    return f"restored from the backup of {manifest.made_at}: what was under way then may have arrived already"
