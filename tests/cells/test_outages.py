"""A front while a cell or the directory is down."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from engine.base import ids
from engine.base.settings import Settings
from engine.cells.directory import Cell, Directory
from loadtests.ports import reserve_port
from tests.cells.conftest import TestCells, front_settings, out_of_reach
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account, revoke_key
from tests.harness.api import Answer, Api, refused, serving
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


async def test_what_a_cell_no_longer_has_is_not_refused_while_the_directory_is_down(
    cells: TestCells,
    settings: Settings,
    other_directory: tuple[Directory, str],
    http: aiohttp.ClientSession,
    api_log: Path,
) -> None:
    """The account may have moved: its old cell has deleted it, and the front can't know."""
    directory, url = other_directory
    moved, present = await make_account(cells.one.pool), await make_account(cells.one.pool)
    for account in (moved, present):
        await directory.place(account.id, "one")
    with serving(front_settings(settings, url), api_log, "create_front") as base:
        front = Api(base, http)

        async def until(status: int) -> Answer:
            async with asyncio.timeout(PATIENCE_S):
                while (answer := await front.get("/v1/me", moved.token)).status != status:
                    await asyncio.sleep(0.1)
            return answer

        for account in (moved, present):
            assert (await front.get("/v1/me", account.token)).status == 200
        async with out_of_reach(url):
            await until_down(front)
            await revoke_key(cells.one.pool, moved.id, moved.token)
            assert refused(await until(503)) == (503, "unavailable")
            missing = await front.get(f"/v1/messages/{ids.format_id(ids.Kind.MESSAGE, ids.uuid7())}", present.token)
            assert refused(missing) == (404, "not_found")  # its account is there
        await until(401)


async def until_down(front: Api) -> None:
    """Wait until the front has noticed that the directory is down."""
    async with asyncio.timeout(PATIENCE_S):
        while (await front.get("/readyz")).json["checks"]["directory"]["ok"]:
            await asyncio.sleep(0.1)
