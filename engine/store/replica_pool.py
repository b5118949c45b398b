"""Open sessions on a replica, and give each operation a source whose statements go to the primary once one fails."""

from contextlib import suppress
from datetime import datetime
from typing import Any

import asyncpg
import structlog
from msgspec import Struct

from engine.base.settings import Settings, variable
from engine.store import metrics
from engine.store.database_errors import DRIVER_ERRORS, DatabaseError, SessionLost, translated
from engine.store.postgres import (
    ACQUIRE_TIMEOUT_S,
    IDLE_S,
    DatabaseSession,
    SessionPool,
    connect,
    pool_options,
    session_settings,
)
from engine.store.postgres_hosts import Host, hosts_of, keep_alive, url_without_hosts
from engine.store.queries import Queries

MAX_SESSIONS = 10  # of one process on one replica, as on the primary
# Replaying a lock of the primary, such as that of a migration, makes reads of the table wait.
LOCK_TIMEOUT_S = 1

_log = structlog.get_logger("replica")

_SQL = Queries.beside(__file__, "replica_pool.sql")


class ServerIdentity(Struct, frozen=True):
    """The database system that a server belongs to, the time of its start, and where a session reads."""

    system: int
    started_at: datetime
    database: str
    schema: str | None

    def reads_as(self, primary: "ServerIdentity") -> bool:
        """Return True if a session here reads a copy of the tables that one on the primary reads."""
        return (self.system, self.database, self.schema) == (primary.system, primary.database, primary.schema)


IDENTITY = _SQL.rows("server_identity", ServerIdentity)


class NotAReplica(SessionLost):
    """The server accepts writes, or a name of the URL leads to another server than before."""


class StrangerReplica(DatabaseError):  # noqa: N818 - named for what it says
    """The server has other tables than the primary: those of another installation, or of another schema."""

    def __init__(self, host: Host, found: ServerIdentity, own: ServerIdentity) -> None:
        super().__init__(
            f"{':'.join(host)} of {variable('database_read_url')} {difference(found, own)}. Name a streaming replica "
            f"of {variable('database_url')}, with the same database and options."
        )


def difference(found: ServerIdentity, own: ServerIdentity) -> str:
    """Return in words where a server of the URL reads that does not read as the primary."""
    if found.system != own.system:
        return "belongs to another database system than the primary"
    return f"reads {found.database}.{found.schema}, not {own.database}.{own.schema}"


class LaggingSource:
    """The source of one operation's reads: a replica, and after the first failure the primary.

    It never returns to the replica, which may lack what the operation has seen on the primary: the account log would
    look incomplete. Errors inside `acquire()` are the caller's: `api.http.replica_reads` repeats the whole operation.
    """

    def __init__(self, replica: SessionPool, primary: asyncpg.Pool) -> None:
        self._pool: asyncpg.Pool = replica
        self._primary = primary

    def acquire(self, *, timeout: float | None = None) -> Any:
        """Return a context manager that borrows a session."""
        return self._pool.acquire(timeout=timeout)

    async def fetch(self, query: str, *args: Any, **options: Any) -> list[Any]:
        """Return all rows."""
        rows: list[Any] = await self._read("fetch", query, *args, **options)
        return rows

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        """Return the first row."""
        return await self._read("fetchrow", query, *args, **options)

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        """Return one value of the first row."""
        return await self._read("fetchval", query, *args, **options)

    async def _read(self, method: str, query: str, *args: Any, **options: Any) -> Any:
        if self._pool is not self._primary:
            try:
                return await getattr(self._pool, method)(query, *args, **options)
            except DatabaseError as error:
                self._pool = self._primary
                _log.info("read repeated on the primary", error=repr(error))
                metrics.TALLY.add(metrics.LAGGING_READS, "repeated")
        return await getattr(self._primary, method)(query, *args, **options)


async def open_session(database_url: str, host: Host, *, timeout_s: float) -> DatabaseSession:
    """Open a single session on the replica `host`. Raises DatabaseError."""
    opened = await open_any(database_url, host, timeout_s=timeout_s)
    try:
        _require_standby(opened, host)
    except NotAReplica:
        opened.terminate()
        raise
    return opened


async def open_any(database_url: str, host: Host, *, timeout_s: float) -> DatabaseSession:
    """Open a single session on a server of the URL, whether it is a replica or not. Raises DatabaseError."""
    try:
        return await _connect(
            database_url,
            host,
            timeout=timeout_s,
            command_timeout=timeout_s,
            connection_class=DatabaseSession,
            server_settings=_settings(database_url, "replica lag"),
        )
    except DRIVER_ERRORS as error:
        raise translated(error) from error


async def refuse_strangers(settings: Settings) -> None:
    """Raise StrangerReplica if a server of the settings has other tables than the primary.

    Servers that cannot be asked are left to the processes, which read from the primary meanwhile.
    """
    if settings.database_url is None or settings.database_read_url is None:
        return
    primary = await connect(settings.database_url, name="replicas")
    own = await _identity_of(primary)
    for host in hosts_of(settings.database_read_url):
        found = None
        with suppress(DatabaseError):
            found = await _identity_of(await open_any(settings.database_read_url, host, timeout_s=ACQUIRE_TIMEOUT_S))
        if found is not None and not found.reads_as(own):
            raise StrangerReplica(host, found, own)


async def _identity_of(session: asyncpg.Connection) -> ServerIdentity:
    try:
        identity = await IDENTITY.first(session)
    finally:
        session.terminate()
    assert identity is not None
    return identity


async def open_replica_pool(database_url: str, host: Host, server: ServerIdentity) -> SessionPool:
    """Return a pool without sessions yet, all of which will be on `server`: a name may lead to several servers, and
    only this one's lag is known.
    """

    async def session(*_: object, **options: Any) -> DatabaseSession:
        opened = await _connect(database_url, host, **options)
        try:
            _require_standby(opened, host)
            await _require_server(opened, host, server)
        except BaseException:
            opened.terminate()
            raise
        return opened

    pool = SessionPool(
        database_url,
        connect=session,
        min_size=0,
        max_size=MAX_SESSIONS,
        **pool_options(IDLE_S, _settings(database_url, "api replica")),
    )
    await pool
    return pool


def _settings(database_url: str, name: str) -> dict[str, str]:
    return session_settings(database_url, name) | {
        "lock_timeout": f"{LOCK_TIMEOUT_S}s",
        "default_transaction_read_only": "on",
    }


async def _connect(
    database_url: str, host: Host, *, timeout: float = ACQUIRE_TIMEOUT_S, **options: Any
) -> DatabaseSession:
    session = await asyncpg.connect(
        url_without_hosts(database_url),
        host=host[0],
        port=host[1],
        timeout=timeout,
        **options | {"target_session_attrs": "any"},
    )
    assert isinstance(session, DatabaseSession)
    keep_alive(session)
    return session


async def _require_server(session: DatabaseSession, host: Host, server: ServerIdentity) -> None:
    if await IDENTITY.first(session) != server:
        raise NotAReplica(f"{':'.join(host)} is another server than before")


def _require_standby(session: DatabaseSession, host: Host) -> None:
    if getattr(session.get_settings(), "in_hot_standby", "off") != "on":
        raise NotAReplica(f"{':'.join(host)} accepts writes: it is no replica")
