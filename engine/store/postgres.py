"""Open the connection pool of a process, and single sessions, on the server that takes writes.

This is the only border to the driver: sessions and pools raise `engine.store.database_errors` and never asyncpg's own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

import asyncpg
import structlog
from asyncpg.transaction import Transaction

from engine.base import clock
from engine.store import partitions
from engine.store.database_errors import DRIVER_ERRORS, DatabaseError, MissingPartition, translated
from engine.store.postgres_hosts import Hosts
from engine.store.queries import Queries

# Bounded waits: a lock held by somebody else must become an answer, not a pile of waiting requests.
LOCK_TIMEOUT_S = 10
STATEMENT_TIMEOUT_S = 30
IDLE_TIMEOUT_S = 5  # a process that stands still in a transaction keeps an account's head locked: no longer than this
ACQUIRE_TIMEOUT_S = 5
CLOSE_TIMEOUT_S = 3
MAKE_PARTITIONS_TIMEOUT_S = 4  # less than IDLE_TIMEOUT_S: the writer's transaction stays open meanwhile


_KEPT = Queries.beside(__file__, "postgres.sql").command("session_settings")

_log = structlog.get_logger("postgres")


class SettingsDropped(RuntimeError):  # noqa: N818 - named for what happened
    """Something between us and the server takes sessions' settings away."""


class DatabaseTransaction(Transaction):
    """A transaction whose block ends with our exceptions too where its session was closed meanwhile."""

    async def __aenter__(self) -> None:
        try:
            await super().__aenter__()
        except DRIVER_ERRORS as error:
            raise translated(error) from error

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        except DRIVER_ERRORS as failed:
            raise translated(failed) from failed


class DatabaseSession(asyncpg.Connection):
    """A connection whose failures are those of `engine.store.database_errors`.

    It is not reset between uses: nothing here sets session state, and a reset is a round trip.
    """

    on_read_only: Callable[[], Any] | None = None
    make_partitions: Callable[[], Awaitable[bool]] | None = None

    def get_reset_query(self) -> str:
        """Return no statement: there is nothing to reset."""
        return ""

    def transaction(
        self, *, isolation: Any = None, readonly: bool = False, deferrable: bool = False
    ) -> DatabaseTransaction:
        """Return a transaction for `async with`; a savepoint inside another one."""
        self._check_open()
        return DatabaseTransaction(self, isolation, readonly, deferrable)

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:
        """Run `query` as asyncpg does; BEGIN, COMMIT and ROLLBACK of transactions come this way too."""
        try:
            return await super().execute(query, *args, timeout=timeout)
        except DRIVER_ERRORS as error:
            raise await self._translated(error) from error

    async def close(self, *, timeout: float | None = None) -> None:
        """Close the connection gracefully."""
        try:
            await super().close(timeout=timeout)
        except DRIVER_ERRORS as error:
            raise translated(error) from error

    async def _execute(self, *args: Any, **options: Any) -> Any:
        """Run what every form of fetching goes through.

        Where the partition of a week is missing, make it and run the statement again, unless it belongs to a
        transaction: that one has failed, and MissingPartition tells its owner to repeat it.
        """
        try:
            return await self._run(*args, **options)
        except MissingPartition:
            made = self.make_partitions is not None and await self.make_partitions()
            if not made or self.is_in_transaction():
                raise
        return await self._run(*args, **options)

    async def _run(self, *args: Any, **options: Any) -> Any:
        try:
            return await super()._execute(*args, **options)  # type: ignore[misc]
        except DRIVER_ERRORS as error:
            raise await self._translated(error) from error

    async def _executemany(self, *args: Any, **options: Any) -> Any:
        try:
            return await super()._executemany(*args, **options)  # type: ignore[misc]
        except DRIVER_ERRORS as error:
            raise await self._translated(error) from error

    async def _copy_in(self, *args: Any, **options: Any) -> Any:
        try:
            return await super()._copy_in(*args, **options)  # type: ignore[misc]
        except DRIVER_ERRORS as error:
            raise await self._translated(error) from error

    async def _copy_out(self, *args: Any, **options: Any) -> Any:
        try:
            return await super()._copy_out(*args, **options)  # type: ignore[misc]
        except DRIVER_ERRORS as error:
            raise await self._translated(error) from error

    def _check_open(self) -> None:
        """Refuse work on a closed session; asyncpg asks before every statement and transaction."""
        try:
            super()._check_open()  # type: ignore[misc]
        except asyncpg.InterfaceError as error:
            raise translated(error) from error

    async def _translated(self, error: Exception) -> DatabaseError:
        """Return our exception. Retire the pool's sessions first where their server no longer takes writes."""
        if isinstance(error, asyncpg.exceptions.ReadOnlySQLTransactionError) and self.on_read_only is not None:
            await self.on_read_only()
        ours = translated(error)
        if isinstance(error, asyncpg.exceptions.CheckViolationError) and partitions.is_missing(error):
            return MissingPartition(str(ours))
        return ours


class SessionPool(asyncpg.Pool):
    """A pool that lends its sessions themselves, without asyncpg's proxy around them.

    A session that the server closes while it is in use then fails as DatabaseUnavailable, as every other one, and no
    statement pays for the detour.
    """

    def acquire(self, *, timeout: float | None = None) -> "_Loan":  # type: ignore[override]
        """Return a context manager that borrows a session; entering it raises DatabaseUnavailable where none is free
        or the server does not answer."""
        return _Loan(self, timeout)


class _Loan:
    """One use of a pool's session."""

    __slots__ = ("_lent", "_pool", "_timeout")

    def __init__(self, pool: SessionPool, timeout: float | None) -> None:
        self._pool: Any = pool
        self._timeout = timeout

    async def __aenter__(self) -> DatabaseSession:
        try:
            self._lent = await self._pool._acquire(self._timeout)  # noqa: SLF001 - what asyncpg's own context calls
        except DRIVER_ERRORS as error:
            raise translated(error) from error
        session: DatabaseSession = self._lent._con  # noqa: SLF001 - the session behind the proxy
        return session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._pool.release(self._lent)
        except DRIVER_ERRORS as failed:
            raise translated(failed) from failed


class PartitionMaker:
    """Makes this week's partitions for the sessions of one pool; writers that miss them at once share one try."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self._lock = asyncio.Lock()
        self._tried_at = 0.0  # monotonic
        self._made = False  # by the last try

    async def make(self) -> bool:
        """Make what is missing, in a session of its own; False where that failed, which the log tells."""
        asked_at = time.monotonic()
        try:
            async with asyncio.timeout(MAKE_PARTITIONS_TIMEOUT_S), self._lock:
                if self._tried_at <= asked_at:
                    await self._try()
        except (DatabaseError, TimeoutError) as error:
            _log.error("partitions can't be made", error=repr(error))
            return False
        return self._made

    async def _try(self) -> None:
        self._made = False
        try:
            connection = await connect(self._url, name="partitions")
            try:
                made = await partitions.ensure(connection, clock.now(), ahead=1)
            finally:
                connection.terminate()
            self._made = True
            _log.warning("this week's partitions were missing: does the worker run?", made=made)
        finally:
            self._tried_at = time.monotonic()


async def open_pool(
    database_url: str, *, name: str, smallest: int = 1, largest: int = 8, generic: bool = False
) -> asyncpg.Pool:
    """A pool whose sessions carry `name` and the time-outs above, on whichever server of the URL takes writes.

    `generic` sessions plan a statement once and not again with the arrays at hand, which costs 0.3 ms a time: for
    statements whose every look-up is fenced (LATERAL … OFFSET 0), as a plan made for an empty table must hold for a
    full one. Raises SettingsDropped where a connection pooler would have sessions run without them.
    """
    hosts = Hosts(database_url)
    maker = PartitionMaker(database_url)

    async def session(*_: object, **options: Any) -> DatabaseSession:
        opened = await hosts.connect(**options)
        assert isinstance(opened, DatabaseSession)
        opened.on_read_only = pool.expire_connections
        opened.make_partitions = maker.make
        return opened

    pool = SessionPool(
        database_url,
        connect=session,
        min_size=smallest,
        max_size=largest,
        max_queries=50_000,
        loop=None,
        connection_class=DatabaseSession,
        record_class=asyncpg.Record,
        timeout=ACQUIRE_TIMEOUT_S,
        command_timeout=STATEMENT_TIMEOUT_S + 5,
        max_inactive_connection_lifetime=300,
        server_settings={
            "application_name": f"waybill {name}",
            "timezone": "UTC",
            "lock_timeout": f"{LOCK_TIMEOUT_S}s",
            "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
            "idle_in_transaction_session_timeout": f"{IDLE_TIMEOUT_S}s",
            "synchronous_commit": "on",  # a 202 means it is on disk, whatever the server's default is
            "jit": "off",
            **({"plan_cache_mode": "force_generic_plan"} if generic else {}),
        },
    )
    try:
        await pool
    except DRIVER_ERRORS as error:
        raise translated(error) from error
    [record] = await _KEPT.records(pool)
    if tuple(record) != (f"{LOCK_TIMEOUT_S}s", "on"):
        pool.terminate()
        raise SettingsDropped(
            "WAYBILL_DATABASE_URL leads to a connection pooler that drops settings of sessions (lock_timeout is "
            f"{record[0]}): connect to PostgreSQL itself, or let the pooler keep them"
        )
    return pool


async def connect(
    database_url: str,
    *,
    name: str,
    timeout_s: float = ACQUIRE_TIMEOUT_S,
    command_timeout_s: float | None = None,
) -> asyncpg.Connection:
    """Open one session without the pool's time-outs, on whichever server of the URL takes writes.

    Raises DatabaseUnavailable, DatabaseLoginRefused or DatabaseMissing.
    """
    try:
        return await Hosts(database_url).connect(
            timeout=timeout_s,
            command_timeout=command_timeout_s,
            connection_class=DatabaseSession,
            server_settings={"application_name": f"waybill {name}", "timezone": "UTC"},
        )
    except DRIVER_ERRORS as error:
        raise translated(error) from error


async def close_pool(pool: asyncpg.Pool) -> None:
    """Close the pool within a few seconds: a session whose user was cancelled half-way may never come back to it."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await pool.close()
    except TimeoutError:
        pool.terminate()
