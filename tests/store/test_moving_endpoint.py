"""One name for a PostgreSQL that moves to another server, as managed services and Kubernetes offer it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from engine.store.database_errors import DatabaseUnavailable
from engine.store.postgres import open_pool
from loadtests.drill.postgres_pair import PostgresPair, postgres_pair
from tests.harness.patience import PATIENCE_S


class Endpoint:
    """An address that leads to the server whose sockets are in `target`; connections stay where they were opened."""

    def __init__(self, target: Path) -> None:
        self.target = target

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    @property
    def url(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"

    async def close(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_unix_connection(str(self.target / ".s.PGSQL.5432"))
        except OSError:
            writer.close()
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_copy(reader, back))
            tasks.create_task(_copy(there, writer))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
    target.close()


@pytest.fixture
def pair() -> Iterator[PostgresPair]:
    """A primary and a synchronous replica."""
    with postgres_pair() as servers:
        yield servers


@pytest.fixture
async def endpoint(pair: PostgresPair) -> AsyncIterator[Endpoint]:
    opened = Endpoint(pair.primary.sockets)
    await opened.open()
    yield opened
    await opened.close()


@pytest.mark.exhaustive
async def test_sessions_follow_a_name_that_moves_to_the_promoted_server(pair: PostgresPair, endpoint: Endpoint) -> None:
    pool = await open_pool(endpoint.url, name="tests", smallest=2, largest=2)
    try:
        await pool.execute("CREATE TABLE written (n int)")
        await asyncio.to_thread(pair.fail_over)
        # The name moves, and the old primary accepts no more writes: sessions that were opened before stay with it.
        endpoint.target = pair.primary.sockets
        await asyncio.to_thread(pair.replica.synchronous, wanted=False)
        await asyncio.to_thread(pair.replica.query, "ALTER SYSTEM SET default_transaction_read_only = on")
        await asyncio.to_thread(pair.replica.query, "SELECT pg_reload_conf()")

        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await pool.execute("INSERT INTO written VALUES (1)")
                except DatabaseUnavailable:
                    continue
                if await asyncio.to_thread(pair.primary.query, "SELECT count(*) FROM written"):
                    break
        found = {await pool.fetchval("SHOW data_directory") for _ in range(4)}
    finally:
        await pool.close()

    assert found == {str(pair.primary.data)}
