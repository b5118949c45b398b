"""The connection pool of one process."""

import asyncio

import asyncpg

# Bounded waits: a lock held by somebody else must become an answer, not a pile of waiting requests.
LOCK_TIMEOUT_S = 10
STATEMENT_TIMEOUT_S = 30
IDLE_TIMEOUT_S = 5  # a process that stands still in a transaction keeps an account's head locked: no longer than this
ACQUIRE_TIMEOUT_S = 5
CLOSE_TIMEOUT_S = 3

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
    asyncpg.exceptions.LockNotAvailableError,
    asyncpg.exceptions.DeadlockDetectedError,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.exceptions.PostgresSystemError,
    asyncpg.exceptions.InternalServerError,
    asyncpg.exceptions.ReadOnlySQLTransactionError,
)


# What no retry can mend: a value that Postgres, or asyncpg before it, can't take.
BAD_DATA = (asyncpg.DataError, asyncpg.exceptions._base.DataError)  # noqa: SLF001 - the client's own is not exported


class Session(asyncpg.Connection):
    """A connection that is not reset between uses: nothing here sets session state, and a reset is a round trip."""

    def get_reset_query(self) -> str:
        """Nothing to undo."""
        return ""


async def open_pool(
    database_url: str, *, name: str, smallest: int = 1, largest: int = 8, generic: bool = False
) -> asyncpg.Pool:
    """A pool whose sessions carry `name` and the time-outs above.

    `generic` sessions plan a statement once and not again with the arrays at hand, which costs 0.3 ms a time: for
    statements whose every look-up is fenced (LATERAL … OFFSET 0), as a plan made for an empty table must hold for a
    full one.
    """
    return await asyncpg.create_pool(
        database_url,
        min_size=smallest,
        max_size=largest,
        connection_class=Session,
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
