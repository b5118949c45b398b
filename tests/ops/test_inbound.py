"""`ops inbound`: claimed addresses and routes of any account."""

import asyncpg

from engine.base.settings import Settings
from engine.receiving.inbound_addresses import service
from engine.receiving.inbound_routes import service as routes
from engine.receiving.inbound_routes.types import RouteAction, RouteSettings
from ops.commands import inbound
from tests.harness.accounts import TestAccount, make_account


async def furnished(pool: asyncpg.Pool, settings: Settings) -> TestAccount:
    account = await make_account(pool)
    await service.claim(pool, account.id, f"support@{account.domain}", label="Help desk", mail_host=settings.mail_host)
    await routes.create(
        pool, account.id, address=None, domain=account.domain, settings=RouteSettings(action=RouteAction.BOTH)
    )
    return account


async def test_addresses_and_routes_are_listed_by_account_or_of_all(pool: asyncpg.Pool, settings: Settings) -> None:
    first, second = await furnished(pool, settings), await furnished(pool, settings)
    await pool.execute("UPDATE domains SET receives_since = NULL WHERE account_id = $1", first.id)

    [address] = await inbound.addresses(pool, account=first.public_id, limit=10)
    [route] = await inbound.routes(pool, account=f"Account {first.domain}", limit=10)
    everybody = await inbound.addresses(pool, account=None, limit=10_000)  # also of other tests, with ids of the future

    assert (address["address"], address["label"]) == (f"support@{first.domain}", "Help desk")
    assert (address["enabled"], address["receives"], address["lastReceivedAt"]) == (True, False, None)
    assert (route["target"], route["action"], route["webhookId"]) == (first.domain, "both", None)
    own = {first.public_id, second.public_id}
    assert [one["accountId"] for one in everybody if one["accountId"] in own] == [second.public_id, first.public_id]
    assert len(await inbound.addresses(pool, account=None, limit=2)) == 2
