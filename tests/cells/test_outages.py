"""A front while a cell or the directory is down."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import pytest

from engine.base.settings import Settings
from engine.cells.directory import Cell, Directory
from loadtests.ports import reserve_port
from tests.cells.conftest import TestCells, front_settings
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account
from tests.harness.api import Api, refused, serving
from tests.harness.patience import PATIENCE_S
from tests.harness.people import PASSWORD


@pytest.fixture
async def other_directory(cells: TestCells, new_directory: NewDatabase) -> AsyncIterator[tuple[Directory, str]]:
    """Yield a directory in which the first cell runs and the cell `gone` does not answer."""
    url = await new_directory()
    directory = await Directory.open(url)
    await directory.put_cell(Cell("one", cells.one.api.base_url, None, None, "open", 1))
    await directory.put_cell(Cell("gone", f"http://127.0.0.1:{reserve_port()}", None, None, "open", 0))
    yield directory, url
    await directory.close()


async def test_a_cell_that_is_down_concerns_its_accounts_only(
    cells: TestCells,
    settings: Settings,
    other_directory: tuple[Directory, str],
    http: aiohttp.ClientSession,
    api_log: Path,
) -> None:
    directory, url = other_directory
    here, gone = await make_account(cells.one.pool), await make_account(cells.one.pool)
    await directory.place(here.id, "one")
    await directory.place(gone.id, "gone")  # its key is found in the first cell
    with serving(front_settings(settings, url), api_log, "create_front") as base:
        front = Api(base, http)
        assert (await front.get("/v1/me", here.token)).status == 200
        answer = await front.get("/v1/me", gone.token)
        assert refused(answer) == (503, "unavailable")
        assert answer.headers["retry-after"] == "2"
        for _ in range(5):
            assert (await front.get("/v1/openapi.json")).status == 200
            assert (await front.get("/v1/me", here.token)).status == 200
        signed = await front.post("/v1/auth/signup", json={"email": f"a{here.domain}@p.test", "password": PASSWORD})
        assert refused(signed) == (503, "unavailable")  # the invitation could be in the cell that is down


async def test_while_the_directory_is_down_known_accounts_work_and_sign_up_refuses(
    cells: TestCells,
    settings: Settings,
    other_directory: tuple[Directory, str],
    http: aiohttp.ClientSession,
    api_log: Path,
) -> None:
    directory, url = other_directory
    known, unknown = await make_account(cells.one.pool), await make_account(cells.one.pool)
    for account in (known, unknown):
        await directory.place(account.id, "one")
    with serving(front_settings(settings, url), api_log, "create_front") as base:
        front = Api(base, http)
        assert (await front.get("/v1/me", known.token)).status == 200
        async with out_of_reach(url):
            for _ in range(3):
                assert (await front.get("/v1/me", known.token)).status == 200
            assert (await front.get("/docs")).status == 200
            signed = await front.post("/v1/auth/signup", json={"email": "ann@new.test", "password": PASSWORD})
            assert refused(signed) == (503, "unavailable")
            assert refused(await front.get("/v1/me", unknown.token)) == (503, "unavailable")
        async with asyncio.timeout(PATIENCE_S):
            while (await front.get("/v1/me", unknown.token)).status != 200:
                await asyncio.sleep(0.1)


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
