"""Two cells with a directory and a front, all real: each cell has a database, a Valkey namespace and an API process."""

import contextlib
from collections.abc import AsyncIterator
from ipaddress import ip_network
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import pytest
from msgspec import Struct, structs

from engine.base.settings import Settings
from engine.cells.directory import Cell, Directory
from engine.store.postgres import close_pool, open_pool
from tests.conftest import NewDatabase
from tests.harness.api import Api, serving
from tests.harness.operators import ADDRESS
from tests.harness.provider import TestProvider, providing, with_provider

NAMES = ("one", "two")


class TestCell(Struct):
    """A running cell: its API without the front, and its database."""

    __test__ = False  # pytest takes the name for a test class

    name: str
    settings: Settings
    api: Api
    pool: asyncpg.Pool


class TestCells(Struct):
    """The cells by name, their directory and the front before them."""

    __test__ = False

    directory: Directory
    directory_url: str
    cells: dict[str, TestCell]
    front: Api

    @property
    def one(self) -> TestCell:
        """The first cell."""
        return self.cells["one"]

    @property
    def two(self) -> TestCell:
        """The second cell."""
        return self.cells["two"]


def front_settings(settings: Settings, directory_url: str) -> Settings:
    """Settings of a front."""
    return structs.replace(
        settings,
        processes=("front",),
        database_url=None,
        redis_url=None,
        directory_url=directory_url,
        cell=None,
        http_proxy_networks=(ip_network("127.0.0.0/8"),),
    )


@contextlib.asynccontextmanager
async def out_of_reach(url: str) -> AsyncIterator[None]:
    """Make the directory unreachable: nobody may log in, and open sessions end."""
    name = urlsplit(url).path[1:]
    server = await asyncpg.connect(urlsplit(url)._replace(path="/postgres").geturl())
    try:
        await server.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
        await server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
        yield
        await server.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")
    finally:
        await server.close()


@pytest.fixture(scope="module")
async def provider() -> AsyncIterator[TestProvider]:
    """Run the identity provider of all cells."""
    async with providing() as running:
        yield running


@pytest.fixture(scope="module")
async def cells(
    settings: Settings,
    provider: TestProvider,
    lasting_database: NewDatabase,
    new_directory: NewDatabase,
    http: aiohttp.ClientSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[TestCells]:
    """Run two cells and a front until the module ends."""
    url = await new_directory()
    logs = tmp_path_factory.mktemp("cells")
    directory = await Directory.open(url)
    async with contextlib.AsyncExitStack() as started:
        made = {}
        for number, name in enumerate(NAMES):
            own = structs.replace(
                with_provider(settings, provider.issuer),
                database_url=await lasting_database(),
                redis_url=_namespace(settings.redis_url, number + 1),
                directory_url=url,
                cell=name,
                operators=(ADDRESS,),
                http_proxy_networks=(ip_network("127.0.0.0/8"),),
            )
            base = started.enter_context(serving(own, logs / f"{name}.log"))
            pool = await open_pool(own.database_url or "", name=name, largest=4)
            started.push_async_callback(close_pool, pool)
            await directory.put_cell(Cell(name, base, None, None, "open", 100))
            made[name] = TestCell(name, own, Api(base, http), pool)
        front = started.enter_context(serving(front_settings(settings, url), logs / "front.log", "create_front"))
        yield TestCells(directory, url, made, Api(front, http))
    await directory.close()


def _namespace(url: str | None, number: int) -> str:
    """Return the URL of another database of the same Valkey."""
    assert url is not None
    if url.startswith("unix:"):
        return f"{url}?db={number}"
    return urlsplit(url)._replace(path=f"/{number}").geturl()
