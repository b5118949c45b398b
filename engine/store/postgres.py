"""The connection pool of one process, and single sessions: always on the server that takes writes."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import structlog

from engine.base import clock
from engine.store import partitions
from engine.store.postgres_hosts import Hosts
from engine.store.queries import Queries

# Bounded waits: a lock held by somebody else must become an answer, not a pile of waiting requests.
LOCK_TIMEOUT_S = 10
STATEMENT_TIMEOUT_S = 30
IDLE_TIMEOUT_S = 5  # a process that stands still in a transaction keeps an account's head locked: no longer than this
ACQUIRE_TIMEOUT_S = 5
CLOSE_TIMEOUT_S = 3
MAKE_PARTITIONS_TIMEOUT_S = 4  # less than IDLE_TIMEOUT_S: the writer's transaction stays open meanwhile


class MissingPartition(Exception):  # noqa: N818 - named for what is missing
    """A row's week has no partition. Nothing was written; the session has asked for the partition, so try again."""


# What a caller sees when Postgres is away, restarting, out of connections or waiting too long.
AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.exceptions.InternalClientError,  # a session used between the server's last word and its close
    asyncpg.exceptions.CannotConnectNowError,
    asyncpg.exceptions.AdminShutdownError,
    asyncpg.exceptions.CrashShutdownError,
    asyncpg.exceptions.TooManyConnectionsError,
    asyncpg.exceptions.QueryCanceledError,
    asyncpg.exceptions.ObjectNotInPrerequisiteStateError,  # a lock not to be had in time; a closed database
    asyncpg.exceptions.DeadlockDetectedError,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.exceptions.PostgresSystemError,
    asyncpg.exceptions.InternalServerError,
    asyncpg.exceptions.ReadOnlySQLTransactionError,
    MissingPartition,
)


# What no retry can mend: a value that Postgres, or asyncpg before it, can't take.
BAD_DATA = (asyncpg.DataError, asyncpg.exceptions._base.DataError)  # noqa: SLF001 - the client's own is not exported


_KEPT = Queries.beside(__file__, "postgres.sql").command("session_settings")

_log = structlog.get_logger("postgres")


class SettingsDropped(RuntimeError):  # noqa: N818 - named for what happened
    """Something between us and the server takes sessions' settings away."""


class DatabaseSession(asyncpg.Connection):
    """A connection that is not reset between uses: nothing here sets session state, and a reset is a round trip."""

    on_read_only: Callable[[], Any] | None = None
    make_partitions: Callable[[], Awaitable[bool]] | None = None

    def get_reset_query(self) -> str:
        """Nothing to undo."""
        return ""

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:
        """As asyncpg's."""
        try:
            return await super().execute(query, *args, timeout=timeout)
        except asyncpg.exceptions.ReadOnlySQLTransactionError:
            await self._leave()
            raise

    async def _execute(self, *args: Any, **options: Any) -> Any:
        """Run what all forms of fetching go through.

        Where the week's partition is missing it is made, and the statement runs again, unless it stands in a
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
        except asyncpg.exceptions.ReadOnlySQLTransactionError:
            await self._leave()
            raise
        except asyncpg.exceptions.CheckViolationError as error:
            if not partitions.is_missing(error):
                raise
            raise MissingPartition(str(error)) from error

    async def _leave(self) -> None:
        """The server takes no writes any more: neither this session nor the pool's others are used again."""
        if self.on_read_only is not None:
            await self.on_read_only()


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
        except (*AWAY, asyncpg.PostgresError) as error:
            heed_cancellation()
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

    pool = asyncpg.create_pool(
        database_url,
        connect=session,
        min_size=smallest,
        max_size=largest,
        connection_class=DatabaseSession,
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
    await pool
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
    """One session without the pool's time-outs, on whichever server of the URL takes writes."""
    return await Hosts(database_url).connect(
        timeout=timeout_s,
        command_timeout=command_timeout_s,
        server_settings={"application_name": f"waybill {name}", "timezone": "UTC"},
    )


async def close_pool(pool: asyncpg.Pool) -> None:
    """Close the pool within a few seconds: a session whose user was cancelled half-way may never come back to it."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await pool.close()
    except TimeoutError:
        pool.terminate()


def heed_cancellation() -> None:
    """Raise CancelledError where a driver has turned it into an error of its own: for loops that outlive errors."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
