"""Writing a backup: one snapshot, one compressed file per table, the manifest last.

While the snapshot is open, dead rows can't be vacuumed, and a migration that locks a table exclusively waits.
"""

import gzip
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import ids
from engine.base.secrets import Pepper
from engine.base.version import version
from engine.store import clock_schema
from engine.store.queries import Queries
from ops.backup import manifest
from ops.backup.manifest import (
    FIRST_RUN,
    HEADS,
    IN_FLIGHT,
    PEPPER,
    PREVIOUS_PEPPER,
    BackupError,
    BackupPart,
    InFlight,
    Manifest,
)
from ops.backup.rows import RowSum
from ops.backup.tables import MIGRATIONS, Table, connected, quoted, tables
from ops.host.state import sync_folder, write_private

UNFINISHED: Final = "unfinished"  # marker file, until the manifest is written
_LEVEL: Final = 1  # of gzip: higher ones cost three times the CPU for a tenth less on disk
_AT_ONCE: Final = 2_000  # rows of a listing in memory

Say = Callable[[str, int], None]  # table, octets written since the last call

_SQL = Queries.beside(__file__, "dump.sql")


class SnapshotRow(Struct, frozen=True):
    """Time of the snapshot and version of the server."""

    made_at: str
    postgres: str


class LogHeadRow(Struct, frozen=True):
    """End of one account log."""

    account_id: UUID
    seq: int
    hash: bytes


class QueuedDeliveryRow(Struct, frozen=True):
    """A pending delivery."""

    message_id: UUID
    domain: str
    attempts: int


_SNAPSHOT = _SQL.rows("snapshot", SnapshotRow)
_IN_FLIGHT = _SQL.rows("in_flight", InFlight)
_HEADS = _SQL.rows("log_heads", LogHeadRow)
_QUEUED = _SQL.rows("queued", QueuedDeliveryRow)


async def dump(
    database_url: str, folder: Path, pepper: Pepper, *, keep_pepper: bool = True, first_run: str | None = None, say: Say
) -> Manifest:
    """Write all durable data into `folder`, which is new, empty, or has an unfinished backup; raises BackupError.

    Without `keep_pepper` the backup has only fingerprints of the present and the previous pepper.
    """
    began = time.monotonic()
    _begin(folder)
    async with connected(database_url, "waybill backup") as connection:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        snapshot = await _SNAPSHOT.first(connection)
        in_flight = await _IN_FLIGHT.first(connection)
        assert snapshot is not None
        assert in_flight is not None
        ahead_us = await clock_schema.ahead_us(connection)
        migrations = await MIGRATIONS.fetch(connection)
        found = await tables(connection)
        await _lock_schema(connection, found)
        parts = [await _copy(connection, table, folder, say) for table in found]
        files = {HEADS: _EMPTY_DIGEST, IN_FLIGHT: _EMPTY_DIGEST}
        accounts, events, files[HEADS] = await _list_heads(connection, folder)
        files[IN_FLIGHT] = await _list_queued(connection, folder)
        await connection.execute("ROLLBACK")
    files |= _put_secrets(folder, pepper.accepted if keep_pepper else (), first_run)
    made = Manifest(
        format=manifest.FORMAT,
        version=version(),
        postgres=snapshot.postgres,
        made_at=snapshot.made_at,
        took_s=round(time.monotonic() - began, 1),
        migrations=migrations,
        pepper=manifest.fingerprint(pepper),
        previous_pepper=None if pepper.previous is None else manifest.fingerprint(pepper.previous),
        parts=parts,
        files=files,
        accounts=accounts,
        events=events,
        in_flight=in_flight,
        ahead_s=ahead_us / 1_000_000,
    )
    sync_folder(folder)
    manifest.write(folder, made)
    (folder / UNFINISHED).unlink()
    sync_folder(folder)
    return made


_EMPTY_DIGEST = sha256().hexdigest()


def _put_secrets(folder: Path, peppers: Iterable[str], first_run: str | None) -> dict[str, str]:
    """Write the peppers and the first run's file; return their digests by name."""
    contents = {name: kept + "\n" for name, kept in zip((PEPPER, PREVIOUS_PEPPER), peppers, strict=False)}
    if first_run is not None:
        contents[FIRST_RUN] = first_run
    return {name: _put(folder, name, content) for name, content in contents.items()}


def _begin(folder: Path) -> None:
    """Prepare the folder with mode 0700, because it will contain mail; raises BackupError if it is in use."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = {path.name for path in folder.iterdir()}
    if manifest.FILE in names:
        raise BackupError(f"{folder} has a finished backup already. Name a new folder.")
    if names and UNFINISHED not in names:
        raise BackupError(f"{folder} is not empty and has no unfinished backup. Name a new folder.")
    for name in names - {UNFINISHED}:
        (folder / name).unlink()
    folder.chmod(0o700)
    (folder / UNFINISHED).touch(0o600)


async def _lock_schema(connection: asyncpg.Connection, found: list[Table]) -> None:
    """Lock the tables against changes of the schema; reads and writes continue."""
    names = ", ".join(f"ONLY {quoted(table.name)}" for table in found)
    try:
        await connection.execute(f"LOCK TABLE {names} IN ACCESS SHARE MODE")
    except (asyncpg.UndefinedTableError, asyncpg.LockNotAvailableError) as error:
        raise BackupError(f"A migration is changing the schema ({error}). Try again when it is done.") from error


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
    """Yield a new file of mode 0600, synced to disk at the end."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _put(folder: Path, name: str, text: str) -> str:
    write_private(folder / name, text)
    return manifest.sha256_of(folder / name)
