"""Open the connection pool of a process, and single sessions, on the server that accepts writes.

The only module that calls the driver: sessions and pools raise `engine.store.database_errors`, never asyncpg's errors.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

import asyncpg
import structlog
from asyncpg.transaction import Transaction

from engine.base import clock
from engine.store import array_arguments, partitions
from engine.store.database_errors import DRIVER_ERRORS, BehindPooler, DatabaseError, MissingPartition, translated
from engine.store.own_schema import search_path
from engine.store.postgres_hosts import Hosts
from engine.store.queries import Queries

# A lock that another session holds must become an error, not a growing number of waiting requests.
LOCK_TIMEOUT_S = 10
STATEMENT_TIMEOUT_S = 30
IDLE_TIMEOUT_S = 5  # a process that hangs in a transaction keeps an account head locked: at most this long
ACQUIRE_TIMEOUT_S = 5
CLOSE_TIMEOUT_S = 3
IDLE_S = 300.0  # a session that was not used for this long is closed
MAKE_PARTITIONS_TIMEOUT_S = 4  # less than IDLE_TIMEOUT_S: the writer's transaction stays open meanwhile


_KEPT = Queries.beside(__file__, "postgres.sql").command("session_settings")

_log = structlog.get_logger("postgres")

array_arguments.use_concrete_types()


class DatabaseTransaction(Transaction):
    """A transaction whose block raises our exceptions if its session is closed meanwhile."""

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
    """A database connection that raises the exceptions of `engine.store.database_errors`.

    It is not reset between uses: the service sets no session state, and a reset costs a round trip.
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
        """Run `query` as asyncpg does; transactions send BEGIN, COMMIT and ROLLBACK through it too."""
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
        """Run a fetching statement, in any form.

        If the partition of a week is missing, create it and run the statement again, except inside a transaction: that
        has failed, and MissingPartition tells the caller to repeat it.
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
            ours = await self._translated(error)
            if isinstance(ours, MissingPartition) and self.make_partitions is not None:
                await self.make_partitions()  # the caller repeats its transaction: what was copied may be used up
            raise ours from error

    async def _copy_out(self, *args: Any, **options: Any) -> Any:
        try:
            return await super()._copy_out(*args, **options)  # type: ignore[misc]
        except DRIVER_ERRORS as error:
            raise await self._translated(error) from error

    def _check_open(self) -> None:
        """Raise if the session is closed; asyncpg calls it before every statement and transaction."""
        try:
            super()._check_open()  # type: ignore[misc]
        except asyncpg.InterfaceError as error:
            raise translated(error) from error

    async def _translated(self, error: Exception) -> DatabaseError:
        """Return our exception. Retire the sessions of the pool first if their server no longer accepts writes."""
        if isinstance(error, asyncpg.exceptions.ReadOnlySQLTransactionError) and self.on_read_only is not None:
            await self.on_read_only()
        ours = translated(error)
        if isinstance(error, asyncpg.exceptions.CheckViolationError) and partitions.is_missing(error):
            return MissingPartition(str(ours))
        return ours


class SessionPool(asyncpg.Pool):
    """A pool that lends its sessions directly, without asyncpg's proxy.

    A session that the server closes during use then raises DatabaseUnavailable like every other failure, and statements
    do not pay for the proxy.
    """

    hosts: Hosts | None = None  # of a pool that follows the primary

    def acquire(self, *, timeout: float | None = None) -> "_Loan":  # type: ignore[override]
        """Return a context manager that borrows a session. Entering it raises DatabaseUnavailable if none is free or
        the server does not respond.
        """
        return _Loan(self, timeout)


class _Loan:
    """A session borrowed from the pool, for one `async with` block."""

    __slots__ = ("_lent", "_pool", "_timeout")

    def __init__(self, pool: SessionPool, timeout: float | None) -> None:
        self._pool: Any = pool
        self._timeout = timeout

    async def __aenter__(self) -> DatabaseSession:
        try:
            hosts = self._pool.hosts
            if hosts is not None and hosts.has_moved():
                await self._pool.expire_connections()
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
    """Creates this week's partitions for the sessions of one pool; concurrent requests share one attempt."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self._lock = asyncio.Lock()
        self._tried_at = 0.0  # monotonic
        self._made = False  # by the last try

    async def make(self) -> bool:
        """Create the missing partitions in a session of its own; return False if that failed, after logging it."""
        asked_at = time.monotonic()
        try:
            async with asyncio.timeout(MAKE_PARTITIONS_TIMEOUT_S), self._lock:
                if self._tried_at <= asked_at:
                    await self._try()
        except (DatabaseError, TimeoutError) as error:
            _log.error("partitions not created", error=repr(error))
            return False
        return self._made

    async def _try(self) -> None:
        self._made = False
        try:
            connection = await connect(self._url, name="partitions")
            try:
                made = await partitions.ensure(connection, clock.now(), ahead=1)
                made += await partitions.ensure_days(connection, clock.now())
            finally:
                connection.terminate()
            self._made = True
            _log.warning("missing partitions created; check that the worker runs", made=made)
        finally:
            self._tried_at = time.monotonic()


class _SharedPools:
    """The pools of a process whose parts share them: one of each kind, open while a part uses it."""

    def __init__(self, largest: int, idle_s: float) -> None:
        self.largest = largest
        self.idle_s = idle_s
        self._pools: dict[tuple[str, bool], asyncpg.Pool] = {}
        self._users: Counter[asyncpg.Pool] = Counter()
        self._opening = asyncio.Lock()

    async def take(self, database_url: str, *, generic: bool) -> asyncpg.Pool:
        """Return the pool of this kind, opened at its first use."""
        async with self._opening:
            pool = self._pools.get((database_url, generic))
            if pool is None:
                pool = self._pools[database_url, generic] = await _opened(
                    database_url, "host", 1, self.largest, generic, self.idle_s
                )
            self._users[pool] += 1
            return pool

    def is_in_use(self, pool: asyncpg.Pool) -> bool:
        """Count one user less; return True if others use the pool."""
        self._users[pool] -= 1
        self._pools = {key: one for key, one in self._pools.items() if self._users[one] > 0}
        return self._users[pool] > 0


_shared: _SharedPools | None = None


def share_pools(largest: int, idle_s: float) -> None:
    """Let all later `open_pool` of this process share pools of at most `largest` sessions, closed when idle."""
    global _shared  # noqa: PLW0603 - a property of the process, set before its event loop starts
    _shared = _SharedPools(largest, idle_s)


async def open_pool(
    database_url: str,
    *,
    name: str,
    smallest: int = 1,
    largest: int = 8,
    generic: bool = False,
    alone: bool = False,
) -> asyncpg.Pool:
    """Open a pool whose sessions have the application name `name` and the time limits above, on the server of the URL
    that accepts writes.

    `generic` sessions plan each statement once instead of for every execution, which would cost 0.3 ms each: for
    statements whose look-ups are all fenced (LATERAL … OFFSET 0), because a plan made for an empty table must work for
    a full one. `alone`: never shared (`share_pools`), so that no other part's queries delay these. Raises BehindPooler
    if a connection pooler refuses or drops the settings of the sessions.
    """
    if _shared is not None and not alone:
        return await _shared.take(database_url, generic=generic)
    idle_s = IDLE_S if _shared is None else _shared.idle_s
    return await _opened(database_url, name, smallest, largest, generic, idle_s)


async def _opened(
    database_url: str,
    name: str,
    smallest: int,
    largest: int,
    generic: bool,  # noqa: FBT001 - private
    idle_s: float,
) -> SessionPool:
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
        **pool_options(
            idle_s,
            session_settings(database_url, name) | ({"plan_cache_mode": "force_generic_plan"} if generic else {}),
        ),
    )
    pool.hosts = hosts
    try:
        await pool
    except DRIVER_ERRORS as error:
        raise translated(error) from error
    try:
        await _require_settings(pool)
    except BaseException:
        pool.terminate()
        raise
    return pool


def pool_options(idle_s: float, settings: dict[str, str]) -> dict[str, Any]:
    """Return the arguments that all pools have in common."""
    return {
        "max_queries": 50_000,
        "loop": None,
        "connection_class": DatabaseSession,
        "record_class": asyncpg.Record,
        "timeout": ACQUIRE_TIMEOUT_S,
        "command_timeout": STATEMENT_TIMEOUT_S + 5,
        "max_inactive_connection_lifetime": idle_s,
        "server_settings": settings,
    }


async def refuse_pooler(database_url: str) -> None:
    """Raise BehindPooler unless the URL leads to a server itself; called before the first change of a database."""
    connection = await _connected(
        database_url, session_settings(database_url, "direct"), ACQUIRE_TIMEOUT_S, ACQUIRE_TIMEOUT_S
    )
    try:
        await _require_settings(connection)
    finally:
        connection.terminate()


def session_settings(database_url: str, name: str) -> dict[str, str]:
    """Return the settings of the sessions of a pool with this name."""
    return {
        "application_name": f"waybill {name}",
        "timezone": "UTC",
        **clock_settings(database_url),
        "lock_timeout": f"{LOCK_TIMEOUT_S}s",
        "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
        "idle_in_transaction_session_timeout": f"{IDLE_TIMEOUT_S}s",
        "synchronous_commit": "on",  # a 202 means that the message is on disk, whatever the server's default is
        "jit": "off",
    }


def clock_settings(database_url: str) -> dict[str, str]:
    """Return the setting with which a session has service time where that can move, in local mode: there `now()` is the
    function of the schema `clock`, if that exists. `pg_catalog` must be named, or it would come first.
    """
    return {"search_path": f"{search_path(database_url)}, clock, pg_catalog"} if clock.can_move() else {}


async def _require_settings(source: asyncpg.Pool | asyncpg.Connection) -> None:
    [record] = await _KEPT.records(source)
    if tuple(record) != (f"{LOCK_TIMEOUT_S}s", "on"):
        raise BehindPooler(f"it drops the settings of sessions: lock_timeout is {record[0]}")


async def connect(
    database_url: str,
    *,
    name: str,
    timeout_s: float = ACQUIRE_TIMEOUT_S,
    command_timeout_s: float | None = None,
    service_time: bool = False,
) -> asyncpg.Connection:
    """Open one session without the pool's time limits, on the server of the URL that accepts writes.

    It has machine time, as migrations need, unless `service_time` is set.

    Raises DatabaseUnavailable, DatabaseLoginRefused or DatabaseMissing.
    """
    settings = {"application_name": f"waybill {name}", "timezone": "UTC"} | (
        clock_settings(database_url) if service_time else {}
    )
    return await _connected(database_url, settings, timeout_s, command_timeout_s)


async def _connected(
    database_url: str, settings: dict[str, str], timeout_s: float, command_timeout_s: float | None
) -> asyncpg.Connection:
    try:
        return await Hosts(database_url).connect(
            timeout=timeout_s,
            command_timeout=command_timeout_s,
            connection_class=DatabaseSession,
            server_settings=settings,
        )
    except DRIVER_ERRORS as error:
        raise translated(error) from error


async def close_pool(pool: asyncpg.Pool) -> None:
    """Close the pool within a few seconds, even if a cancelled task never returns its session; a shared one when its
    last user closes it.
    """
    if _shared is not None and _shared.is_in_use(pool):
        return
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await pool.close()
    except TimeoutError:
        pool.terminate()
