"""An exception that nothing expects is a bare 500, without the error envelope."""

from collections.abc import Iterator
from pathlib import Path

import aiohttp
import asyncpg
import pytest
from msgspec import structs

from engine.base.settings import Settings
from engine.store.postgres import open_pool
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account
from tests.harness.api import Api, serving


@pytest.fixture
async def own(settings: Settings, lasting_database: NewDatabase) -> Settings:
    """A database without one of our tables: a fault of ours, not an outage of PostgreSQL."""
    url = await lasting_database()
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("ALTER TABLE contact_segments RENAME TO lost")
    finally:
        await connection.close()
    return structs.replace(settings, database_url=url)


@pytest.fixture
def own_url(own: Settings, tmp_path: Path) -> Iterator[str]:
    with serving(own, tmp_path / "api.log") as url:
        yield url


async def test_a_bug_is_a_bare_500_and_the_next_request_is_answered(
    own: Settings, own_url: str, http: aiohttp.ClientSession
) -> None:
    assert own.database_url is not None
    api = Api(own_url, http)
    pool = await open_pool(own.database_url, name="tests", largest=2)
    try:
        account = await make_account(pool)
    finally:
        await pool.close()

    answer = await api.get("/v1/segments", account.token)

    assert answer.status == 500
    assert answer.json == {"title": "500 Internal Server Error"}
    assert (await api.get("/v1/webhooks", account.token)).status == 200
