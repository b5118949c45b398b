"""Tables to back up, ordered so that each comes after the tables that its foreign keys reference."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from graphlib import TopologicalSorter
from typing import Final

import asyncpg
from msgspec import Struct

from engine.store.queries import Conn, Queries

# Made anew by migrations and by processes.
LEFT_OUT: Final = frozenset({"schema_migrations", "shard_members", "replica_marks"})
CONNECT_S: Final = 30
CLOSE_S: Final = 5
# Text that reads the same whatever server, version and settings it comes from.
_SETTINGS: Final = {
    "timezone": "UTC", "datestyle": "ISO, YMD", "intervalstyle": "iso_8601", "extra_float_digits": "1",
    "bytea_output": "hex", "statement_timeout": "0", "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "0", "synchronize_seqscans": "off", "jit": "off",
    # A session, with its locks, ends some 25 s after its client was cut off.
    "tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
}  # fmt: skip

_SQL = Queries.beside(__file__, "tables.sql")


class Table(Struct, frozen=True):
    """A table, or one partition of `parent`."""

    name: str
    parent: str | None
    columns: list[str]
    size_bytes: int


class Reference(Struct, frozen=True):
    """`name` has a foreign key to `target`."""

    name: str
    target: str


class Migration(Struct, frozen=True):
    """An applied migration; `digest` is the SHA-256 of its file."""

    number: int
    name: str
    digest: str


class ConnectedProcessRow(Struct, frozen=True):
    """A process of Waybill that is connected to the database, by its application_name."""

    name: str


_TABLES = _SQL.rows("list_tables", Table)
REFERENCES = _SQL.rows("list_references", Reference)
MIGRATIONS = _SQL.rows("applied_migrations", Migration)
SESSIONS = _SQL.rows("own_sessions", ConnectedProcessRow)


@asynccontextmanager
async def connected(database_url: str, name: str) -> AsyncIterator[asyncpg.Connection]:
    """Open a connection with fixed text formats for COPY and without statement time-outs."""
    settings = _SETTINGS | {"application_name": name}
    connection = await asyncpg.connect(database_url, timeout=CONNECT_S, server_settings=settings)
    try:
        yield connection
    finally:
        if connection.is_in_transaction():
            connection.terminate()
        else:
            with suppress(OSError):  # a server that hangs
                await connection.close(timeout=CLOSE_S)


async def tables(connection: Conn) -> list[Table]:
    """Return the tables to back up, in order."""
    found = [one for one in await _TABLES.fetch(connection) if (one.parent or one.name) not in LEFT_OUT]
    return in_order(found, await REFERENCES.fetch(connection))


async def every_table(connection: Conn) -> list[Table]:
    """Return all tables, including those that a backup leaves out."""
    return await _TABLES.fetch(connection)


def in_order(found: Sequence[Table], references: Iterable[Reference]) -> list[Table]:
    """Sort tables after those that they reference, otherwise by name; raises graphlib.CycleError."""
    partitions: dict[str, list[Table]] = defaultdict(list)
    for one in found:
        partitions[one.parent or one.name].append(one)
    sorter: TopologicalSorter[str] = TopologicalSorter({name: set() for name in sorted(partitions)})
    for reference in references:
        if reference.name in partitions and reference.target in partitions:
            sorter.add(reference.name, reference.target)
    return [one for name in sorter.static_order() for one in partitions[name]]


def quoted(name: str) -> str:
    """Return a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
