"""Operations that tolerate lag read from a replica; their callers see what they have written, and no error."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from msgspec import structs

from api.routes import all_operations
from engine.base.settings import Settings
from tests.harness.accounts import add_key, make_account
from tests.harness.patience import PATIENCE_S
from tests.harness.replica import Reader, Replicated, reading, replicated

LAGGING = [operation for operation in all_operations() if operation.lagging]
PATIENT = 600.0  # seconds that the replica may lag: a paused one still gets reads


@pytest.fixture(scope="module")
async def here(settings: Settings) -> AsyncIterator[Replicated]:
    async with replicated(structs.replace(settings, read_lag_s=PATIENT)) as servers:
        yield servers


@pytest.fixture(scope="module")
async def reader(
    here: Replicated, http: aiohttp.ClientSession, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Reader]:
    async with reading(here.settings, tmp_path_factory.mktemp("reader") / "api.log", http) as started:
        yield started


@pytest.fixture
async def other(here: Replicated, http: aiohttp.ClientSession, tmp_path: Path) -> AsyncIterator[Reader]:
    """Another process of the same service."""
    async with reading(here.settings, tmp_path / "other.log", http) as started:
        yield started


async def streams(reader: Reader, token: str) -> set[str]:
    answer = await reader.api.get("/v1/streams", token)
    assert answer.status == 200
    return {one["id"] for one in answer.json["data"]}


async def settled(here: Replicated, reader: Reader, token: str) -> None:
    """Wait until the key reads from the replica: it is not new any more, and its writes are shown there."""
    async with asyncio.timeout(PATIENCE_S):
        before = await here.last_read()
        while True:
            assert (await reader.api.get("/v1/streams", token)).status == 200
            if (now := await here.last_read()) != before and now is not None:
                return
            await asyncio.sleep(0.2)


async def test_a_caller_sees_its_own_write_at_once_and_others_see_it_within_the_lag(
    here: Replicated, reader: Reader, other: Reader
) -> None:
    account = await make_account(here.pool)
    colleague = await add_key(here.pool, account.id)
    await settled(here, reader, account.token)
    await settled(here, other, account.token)
    await settled(here, reader, colleague)
    await here.on_replica("SELECT pg_wal_replay_pause()")
    try:
        made = await reader.api.post("/v1/streams", account.token, {"id": "fresh"})
        assert made.status == 201
        assert "fresh" in await streams(reader, account.token)
        assert "fresh" in await streams(other, account.token)  # another process knows of the write through Redis
        assert "fresh" not in await streams(reader, colleague)  # another key sees the replica, which is paused
    finally:
        await here.on_replica("SELECT pg_wal_replay_resume()")
    await here.caught_up()
    assert "fresh" in await streams(reader, colleague)
    await settled(here, other, account.token)
    assert "fresh" in await streams(other, account.token)
