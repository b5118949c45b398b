"""While Postgres is away every operation says so, and nothing is accepted; afterwards all is as before."""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from engine.base.settings import Settings
from engine.store.migrate import migrate
from engine.store.postgres import open_pool
from ops.host.temporary_servers import Temporary, temporary_servers
from tests.conftest import ServeApi
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api
from tests.harness.patience import PATIENCE_S

ANSWER_S = 15 + 30  # acceptance gives up after 15; the machine may be busy
BACK_S = 60


@pytest.fixture(scope="module")
def own_servers() -> Iterator[Temporary]:
    with temporary_servers() as running:
        yield running


@pytest.fixture(scope="module")
async def two_accounts(own_servers: Temporary) -> tuple[TestAccount, TestAccount]:
    await migrate(own_servers.database_url)
    pool = await open_pool(own_servers.database_url, name="tests")
    accounts = (await make_account(pool), await make_account(pool))
    await pool.close()
    return accounts


@pytest.fixture(scope="module")
def own(
    own_servers: Temporary, two_accounts: tuple[TestAccount, TestAccount], settings: Settings, serve: ServeApi
) -> Api:
    """An API on servers that this test may kill, started once the database is migrated."""
    return serve(structs.replace(settings, database_url=own_servers.database_url, redis_url=own_servers.redis_url))


@pytest.mark.exhaustive
async def test_searches_that_take_long_leave_sessions_to_everybody_else(
    own_servers: Temporary, own: Api, two_accounts: tuple[TestAccount, TestAccount]
) -> None:
    api = own
    pool = await open_pool(own_servers.database_url, name="tests", largest=2)
    bystander = await make_account(pool)
    async with pool.acquire() as holder, holder.transaction():
        await holder.execute("LOCK TABLE messages IN ACCESS EXCLUSIVE MODE")
        searches = [asyncio.ensure_future(api.get("/v1/messages?search=x", two_accounts[0].token)) for _ in range(30)]
        while not await pool.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0.05)
        answer = await api.get("/v1/streams", bystander.token)
        waiting = [not one.done() for one in searches]
        while sum(one.done() for one in searches) < 20:
            await holder.execute("SELECT 1")  # a transaction that stands idle would be ended
            await asyncio.sleep(0.1)
    found = await asyncio.gather(*searches)
    await pool.close()

    assert answer.status == 200
    assert all(waiting), "whoever does not search is not behind those who do"
    said = Counter(one.status for one in found)
    assert said[503] == 0, "their own number is what they wait for"
    assert said[429] >= 20
    assert all(int(one.headers["retry-after"]) >= 1 for one in found if one.status == 429)


def children(servers: Temporary) -> list[Path]:
    """The processes of the server, by their folders in /proc."""
    parent = (servers.postgres.data / "postmaster.pid").read_text().split()[0]
    return [one for one in Path("/proc").glob("[0-9]*") if stat_of(one)[1:2] == [parent]]


def lives(process: Path) -> bool:
    return stat_of(process)[:1] not in ([], ["Z"])


def stat_of(process: Path) -> list[str]:
    """State, parent and so on; empty when it has gone."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


async def test_a_dead_postgres_is_a_503_everywhere_and_nothing_is_accepted(
    own_servers: Temporary, own: Api, two_accounts: tuple[TestAccount, TestAccount]
) -> None:
    api = own
    known, fresh = two_accounts  # the key of one is in the process's memory, the other's is not
    message = (await api.post("/v1/emails", known.token, known.email())).json["id"]
    backends = children(own_servers)
    own_servers.postgres.kill()
    async with asyncio.timeout(PATIENCE_S):
        while any(map(lives, backends)):  # each notices by itself; until then it serves the session that it has
            await asyncio.sleep(0.01)

    async def away(call: Coroutine[None, None, Answer]) -> None:
        began = time.monotonic()
        answer = await call
        assert (answer.status, answer.error["type"]) == (503, "unavailable"), answer
        assert int(answer.headers["retry-after"]) >= 1
        assert time.monotonic() - began < ANSWER_S

    try:
        for account in (known, fresh):
            await away(api.post("/v1/emails", account.token, account.email()))
            for path in ("/v1/messages", "/v1/messages?search=x", f"/v1/messages/{message}", "/v1/me"):
                await away(api.get(path, account.token))
        for method in ("GET", "HEAD"):
            assert (await api.request(method, "/healthz")).status == 200
            assert (await api.request(method, "/readyz")).status == 503
    finally:
        own_servers.postgres.start()

    began = time.monotonic()
    while (await api.post("/v1/emails", known.token, known.email())).status != 202:
        assert time.monotonic() - began < BACK_S
        await asyncio.sleep(0.1)
    assert len((await api.get("/v1/messages", known.token)).json["data"]) == 2
    assert (await api.get("/v1/messages", fresh.token)).json["data"] == []
