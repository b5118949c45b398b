"""A PostgreSQL with a streaming replica that a test can delay, pause, kill and promote, and a Valkey."""

import asyncio
import contextlib
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
from msgspec import Struct, structs

from engine.base.settings import Settings
from engine.store.migrate import migrate
from engine.store.postgres import open_pool
from loadtests.drill.postgres_pair import PairedPostgres
from loadtests.kit.processes import signal_all
from ops.host import postgres_server
from ops.host.temporary_servers import Temporary, temporary_servers
from tests.harness.api import Api, serving
from tests.harness.patience import PATIENCE_S

OF_API = "application_name = 'waybill api replica'"


class Replicated(Struct):
    """A primary with the Valkey beside it, its replica, and a pool of the primary."""

    servers: Temporary
    replica: PairedPostgres
    pool: asyncpg.Pool
    settings: Settings

    async def on_replica(self, statement: str, *arguments: object) -> Any:
        """Return the first value of a statement on the replica."""
        connection = await asyncpg.connect(self.replica.url, timeout=PATIENCE_S)
        try:
            return await connection.fetchval(statement, *arguments)
        finally:
            connection.terminate()

    async def delay(self, milliseconds: int) -> None:
        """Let the replica show each commit only after this time."""
        await self.on_replica(f"ALTER SYSTEM SET recovery_min_apply_delay = {milliseconds}")
        await self.on_replica("SELECT pg_reload_conf()")

    async def caught_up(self) -> None:
        """Wait until the replica shows what has been committed."""
        place = await self.pool.fetchval("SELECT pg_current_wal_flush_lsn()::text")
        await self.until(f"SELECT pg_last_wal_replay_lsn() >= '{place}'::pg_lsn")

    async def until(self, statement: str) -> None:
        """Wait until a statement on the replica is true."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self.on_replica(statement):
                await asyncio.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the replica."""
        signal_all(postgres_server.working_in(self.replica.data), number)

    async def last_read(self) -> object:
        """Return when an API last used the replica for a read; it changes with each."""
        return await self.on_replica(f"SELECT max(state_change) FROM pg_stat_activity WHERE {OF_API}")


class Reader(Struct):
    """An API that reads from the replica, and its log."""

    api: Api
    url: str
    log: Path

    def said(self, words: str) -> int:
        """Return how often the log has these words."""
        return self.log.read_text("utf-8", "replace").count(words)

    async def uses_replica(self, *, after: int = 0) -> None:
        """Wait until the API has begun to use the replica more than `after` times."""
        await eventually(lambda: self.said("replica gets reads") > after)


async def eventually(true: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def replicated(settings: Settings) -> AsyncIterator[Replicated]:
    """Run the servers, with a migrated database. `settings` get their URLs."""
    with temporary_servers() as servers:  # no copy of other tests' servers: they would be one database system
        await migrate(servers.database_url)
        replica = PairedPostgres(servers.folder / "replica", servers.postgres, durable=False)
        try:
            await asyncio.to_thread(replica.start)
            pool = await open_pool(servers.database_url, name="tests", largest=8)
            own = structs.replace(
                settings,
                database_url=servers.database_url,
                database_read_url=replica.url,
                redis_url=servers.redis_url,
            )
            yield Replicated(servers, replica, pool, own)
            await pool.close()
        finally:
            replica.end()
            shutil.rmtree(replica.paths.base, ignore_errors=True)


@contextlib.asynccontextmanager
async def reading(settings: Settings, log: Path, http: aiohttp.ClientSession) -> AsyncIterator[Reader]:
    """Run an API, and wait until it uses the replica."""
    with serving(settings, log) as url:
        reader = Reader(Api(url, http), url, log)
        await reader.uses_replica()
        yield reader
