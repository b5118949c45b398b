"""An API with an operator, on a database of its own: the operator sees all accounts of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import asyncpg
import orjson
from msgspec import Struct, structs

from engine.base import clock, ids
from engine.base.settings import HostPort, Settings
from engine.people.people import store as people
from engine.store.postgres import open_pool
from loadtests.ports import reserve_port
from shards import lease
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api, serving
from tests.harness.people import TestPerson, make_person

ADDRESS = "ops@operators.test"
MEMBERS = ("north:/srv/one:mta-1", "south:/srv/two:mta-1")  # all shards are the first one's


class OperatorWorld(Struct):
    """The API, its operator, the platform account, and a customer's account with its owner."""

    api: Api
    pool: asyncpg.Pool
    settings: Settings
    operator: TestPerson
    platform: TestAccount
    customer: TestAccount
    owner: TestPerson

    @property
    def actor(self) -> str:
        """Return the operator as account logs name them."""
        return f"operator:{self.operator.public_id}"

    async def events(self, account: UUID, kind: str) -> list[dict[str, Any]]:
        """Return the details of an account's events of a type."""
        query = "SELECT payload FROM events WHERE account_id = $1 AND type = $2 ORDER BY seq"
        return [orjson.loads(row["payload"])["detail"] for row in await self.pool.fetch(query, account, kind)]

    async def last_change(self) -> dict[str, Any]:
        """Return the last change of the installation in the platform account's log."""
        return (await self.events(self.platform.id, "platform.changed"))[-1]


@asynccontextmanager
async def operating(
    settings: Settings, database_url: str, log: Path, http: aiohttp.ClientSession
) -> AsyncIterator[OperatorWorld]:
    """Run an API whose operator is `ADDRESS`; no name server answers it."""
    nowhere = HostPort("127.0.0.1", reserve_port())
    own = structs.replace(settings, database_url=database_url, operators=(ADDRESS,), dns_servers=(nowhere,))
    pool = await open_pool(database_url, name="tests", largest=4)
    platform, customer = await make_account(pool), await make_account(pool)
    await pool.execute("INSERT INTO platform (account_id) VALUES ($1)", platform.id)
    operator = await make_person(pool, platform.id, "member", email=ADDRESS)
    await people.SET_OPERATOR.execute(pool, operator.id, clock.now())
    owner = await make_person(pool, customer.id)
    await _place_shards(pool, own)
    with serving(own, log) as url:
        yield OperatorWorld(Api(url, http), pool, own, operator, platform, customer, owner)
    await pool.close()


async def _place_shards(pool: asyncpg.Pool, settings: Settings) -> None:
    """Give all shards to the first of two members, without any process."""
    members = [ids.uuid7() for _ in MEMBERS]
    for member, name in zip(members, MEMBERS, strict=True):
        await lease.JOIN.execute(pool, member, name, 1.0, 3_600.0)
    await lease.MAKE.execute(pool, settings.shards)
    await lease.TAKE.execute(pool, members[0], list(range(settings.shards)))
