"""Writing a backup: one snapshot, one compressed file a table, the manifest last.

The snapshot costs sending nothing but dead rows that can't be vacuumed while it stands; a migration that wants a table
for itself waits for its end.
"""

import gzip
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import ids
from engine.store.queries import Queries
from ops.backup import manifest
from ops.backup.manifest import FIRST_RUN, HEADS, IN_FLIGHT, PEPPER, BackupError, BackupPart, InFlight, Manifest
from ops.backup.rows import RowSum
from ops.backup.tables import MIGRATIONS, Table, connected, quoted, tables
from ops.release import version
from ops.state import sync_folder, write_private

UNFINISHED: Final = "unfinished"  # stands in the folder until the manifest does
_LEVEL: Final = 1  # of gzip: higher ones cost three times the CPU for a tenth less on disk
_AT_ONCE: Final = 2_000  # rows of a listing in memory

Say = Callable[[str, int], None]  # table, octets written of it since the last time

_SQL = Queries.beside(__file__, "dump.sql")


class SnapshotRow(Struct, frozen=True):
    """The moment that a backup shows."""

    made_at: str
    postgres: str


class LogHeadRow(Struct, frozen=True):
    """Where an account's log ends."""

    account_id: UUID
    seq: int
    hash: bytes


class QueuedDeliveryRow(Struct, frozen=True):
    """A delivery that waits or is being made."""

    message_id: UUID
    domain: str
    attempts: int


_SNAPSHOT = _SQL.rows("snapshot", SnapshotRow)
_IN_FLIGHT = _SQL.rows("in_flight", InFlight)
_HEADS = _SQL.rows("log_heads", LogHeadRow)
_QUEUED = _SQL.rows("queued", QueuedDeliveryRow)


async def dump(
    database_url: str, folder: Path, pepper: str, *, keep_pepper: bool = True, first_run: str | None = None, say: Say
) -> Manifest:
    """Write everything durable into `folder`, which is new, empty, or holds a backup that was broken off.

    `keep_pepper` decides whether the pepper lies beside the rows or only its fingerprint. Raises BackupError.
    """
    began = time.monotonic()
    _begin(folder)
    async with connected(database_url, "waybill backup") as connection:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        snapshot = await _SNAPSHOT.first(connection)
        in_flight = await _IN_FLIGHT.first(connection)
        assert snapshot is not None
        assert in_flight is not None
        migrations = await MIGRATIONS.fetch(connection)
        found = await tables(connection)
        await _hold_still(connection, found)
        parts = [await _copy(connection, table, folder, say) for table in found]
        files = {HEADS: _NOTHING, IN_FLIGHT: _NOTHING}
        accounts, events, files[HEADS] = await _list_heads(connection, folder)
        files[IN_FLIGHT] = await _list_queued(connection, folder)
        await connection.execute("ROLLBACK")
    if keep_pepper:
        files[PEPPER] = _put(folder, PEPPER, pepper + "\n")
    if first_run is not None:
        files[FIRST_RUN] = _put(folder, FIRST_RUN, first_run)
    made = Manifest(
        format=manifest.FORMAT,
        version=version(),
        postgres=snapshot.postgres,
        made_at=snapshot.made_at,
        took_s=round(time.monotonic() - began, 1),
        migrations=migrations,
        pepper=manifest.fingerprint(pepper),
        parts=parts,
        files=files,
        accounts=accounts,
        events=events,
        in_flight=in_flight,
    )
    sync_folder(folder)
    manifest.write(folder, made)
    (folder / UNFINISHED).unlink()
    sync_folder(folder)
    return made


_NOTHING = sha256().hexdigest()


def _begin(folder: Path) -> None:
    """A folder of our own that nobody else can read: what lies in it is mail."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = {path.name for path in folder.iterdir()}
    if manifest.FILE in names:
        raise BackupError(f"{folder} holds a finished backup already; name a new folder")
    if names and UNFINISHED not in names:
        raise BackupError(f"{folder} is not empty and holds no backup that was broken off; name a new folder")
    for name in names - {UNFINISHED}:
        (folder / name).unlink()
    folder.chmod(0o700)
    (folder / UNFINISHED).touch(0o600)


async def _hold_still(connection: asyncpg.Connection, found: list[Table]) -> None:
    """Nobody drops or changes a table until its rows are out; reading and writing go on."""
    names = ", ".join(f"ONLY {quoted(table.name)}" for table in found)
    try:
        await connection.execute(f"LOCK TABLE {names} IN ACCESS SHARE MODE")
    except (asyncpg.UndefinedTableError, asyncpg.LockNotAvailableError) as error:
        raise BackupError(f"the schema is being changed ({error}); try again when that is over") from error


async def _copy(connection: asyncpg.Connection, table: Table, folder: Path, say: Say) -> BackupPart:
    name = f"{table.name}.copy.gz"
    rows = RowSum()
    with (
        _file(folder / name) as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_LEVEL, mtime=0) as packed,
    ):

        async def take(piece: bytes) -> None:
            rows.add(piece)
            packed.write(piece)
            say(table.name, len(piece))

        await connection.copy_from_table(table.name, columns=table.columns, output=take, format="text")
    return BackupPart(
        file=name,
        table=table.name,
        parent=table.parent,
        columns=table.columns,
        rows=rows.rows,
        digest=rows.digest,
        size_bytes=rows.size_bytes,
        sha256=manifest.sha256_of(folder / name),
    )


async def _list_heads(connection: asyncpg.Connection, folder: Path) -> tuple[int, int, str]:
    accounts = events = 0
    with _file(folder / HEADS) as file:
        file.write(b"account\tseq\thash\n")
        async for row in connection.cursor(_HEADS.sql, prefetch=_AT_ONCE):
            account = ids.format_id(ids.Kind.ACCOUNT, row["account_id"])
            file.write(f"{account}\t{row['seq']}\t{row['hash'].hex()}\n".encode())
            accounts += 1
            events += row["seq"]
    return accounts, events, manifest.sha256_of(folder / HEADS)


async def _list_queued(connection: asyncpg.Connection, folder: Path) -> str:
    with _file(folder / IN_FLIGHT) as file:
        file.write(b"message\tdomain\tattempts\n")
        async for row in connection.cursor(_QUEUED.sql, prefetch=_AT_ONCE):
            message = ids.format_id(ids.Kind.MESSAGE, row["message_id"])
            file.write(f"{message}\t{row['domain']}\t{row['attempts']}\n".encode())
    return manifest.sha256_of(folder / IN_FLIGHT)


@contextmanager
def _file(path: Path) -> Iterator[IO[bytes]]:
    """A new 0600 file that is on disk when it is closed."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _put(folder: Path, name: str, text: str) -> str:
    write_private(folder / name, text)
    return manifest.sha256_of(folder / name)
