"""Fill the bench's database with delivered messages of other accounts from the last weeks.

Written by bulk SQL into the real tables and partitions. Bodies are one line long: the cost of a send may depend on row
counts and index depth, not on bytes that are never read.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

import asyncpg

from engine.base import clock
from engine.store import partitions
from engine.store.queries import Queries

WEEKS: Final = 4
OTHERS: Final = tuple(UUID(int=number) for number in range(50))  # accounts that exist nowhere else
CHUNK: Final = 10_000  # messages a statement: well below the sessions' time-out
WRITERS: Final = 2
_VACUUM_S: Final = 900.0
_SQL = Queries.beside(__file__, "stored.sql")
_STORE = _SQL.command("store_history")
_VACUUM = _SQL.command("vacuum")
_CHECKPOINT = _SQL.command("checkpoint")


async def store(pool: asyncpg.Pool, count: int, say: Callable[[str], None], accounts: Sequence[UUID] = OTHERS) -> None:
    """Store `count` messages of the accounts in turn, each with recipient, body and events; vacuum and checkpoint."""
    at = clock.now()
    async with pool.acquire() as connection:
        await partitions.ensure(connection, at - timedelta(weeks=WEEKS), ahead=WEEKS)
    first, last = clock.milliseconds(at - timedelta(weeks=WEEKS)), clock.milliseconds(at - timedelta(minutes=1))
    starts = list(range(0, count, CHUNK))[::-1]
    done = 0

    async def write() -> None:
        nonlocal done
        while starts:
            start = starts.pop()
            end = min(start + CHUNK, count)
            await _STORE.execute(pool, start, end - 1, first, last, list(accounts), str(first))
            done += end - start
            if done % 100_000 < CHUNK:
                say(f"Stored {done:,} of {count:,} messages")

    async with asyncio.TaskGroup() as writers:
        for _ in range(WRITERS):
            writers.create_task(write())
    await vacuum(pool, say)


async def vacuum(pool: asyncpg.Pool, say: Callable[[str], None]) -> None:
    """Vacuum and write a checkpoint, so that neither runs during a measurement."""
    say("Vacuuming")
    async with pool.acquire() as connection:
        await connection.execute("SET statement_timeout = 0")
        await connection.execute(_VACUUM.sql, timeout=_VACUUM_S)
        await connection.execute(_CHECKPOINT.sql, timeout=_VACUUM_S)
        await connection.execute("RESET statement_timeout")
