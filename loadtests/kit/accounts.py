"""Accounts that drills, benches and tests send from."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.base.plans import Plan
from engine.base.scopes import SCOPES
from engine.base.secrets import Pepper
from engine.base.settings import Settings
from engine.people.api_keys.service import create_api_key
from engine.people.open_account import open_account
from engine.sending.domains import store as domains
from engine.sending.domains.service import make_pair
from engine.sending.domains.store import FreshKey
from engine.store import caches
from loadtests.kit.service import Service
from ops import admin

DAILY_CAP: Final = 1_000_000
_CHECK_LATER: Final = "UPDATE domains SET check_at = check_at + interval '6 hours' WHERE name = ANY ($1)"


class ApiAccess(Struct, frozen=True):
    """An account to send from: id, API key and sender address."""

    account: str  # acc_…
    key: str
    sender: str

    @property
    def account_id(self) -> UUID:
        """Return the account's UUID."""
        return ids.parse_id(ids.Kind.ACCOUNT, self.account)


def first_access(service: Service) -> ApiAccess:
    """Return the account that the service created at its first start."""
    made = service.first_run
    return ApiAccess(made["accountId"], made["apiKey"], f"drill@{made['domain']}")


async def new_access(
    settings: Settings, name: str, *, plan: Plan = Plan.SCALE, daily_cap: int | None = DAILY_CAP
) -> ApiAccess:
    """Create an account with an API key and a verified domain, both named after `name`, on a running service."""
    async with admin.opened(settings) as pool:
        made = await admin.create_account(pool, name=name, email=f"{name}@drill.test", plan=plan, daily_cap=daily_cap)
        key = await admin.create_key(pool, settings, account=made["accountId"], name="drill", scopes=["all"])
        await admin.add_domain(pool, settings, account=made["accountId"], name=f"{name}.test", verified=True)
    return ApiAccess(made["accountId"], key["apiKey"], f"drill@{name}.test")


async def open_accounts(
    settings: Settings, name: str, count: int, *, plan: Plan = Plan.SCALE, daily_cap: int = DAILY_CAP
) -> list[ApiAccess]:
    """Open `count` accounts on a running service; `name` is part of their domain names.

    All domains share one DKIM key pair: creating one takes 0.1 s of CPU.
    """
    keys = await make_pair(name, "wb1")
    names = [f"{name}-{number}.test" for number in range(count)]
    async with admin.opened(settings) as pool:
        made = [await _open(pool, domain, keys, settings.pepper, plan, daily_cap) for domain in names]
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(_CHECK_LATER, names)  # otherwise all new domains would be checked meanwhile
            await caches.bump(connection, "domains")
    return made


async def _open(
    pool: asyncpg.Pool, domain: str, keys: Sequence[FreshKey], pepper: Pepper, plan: Plan, daily_cap: int
) -> ApiAccess:
    account = await open_account(
        pool, name=domain, email=f"owner@{domain}", password_hash="", plan=plan,
        daily_cap=daily_cap, monthly_cap=31 * daily_cap, verified_at=clock.now(),
    )  # fmt: skip
    key = await create_api_key(pool, account.id, name="drill", scopes=sorted(SCOPES), pepper=pepper)
    place = ids.uuid7()
    async with pool.acquire() as connection, connection.transaction():
        await domains.insert(connection, place, account.id, domain, pepper=pepper, keys=keys)
        await domains.VOUCH.execute(connection, place)
    return ApiAccess(account.public_id, key.token, f"drill@{domain}")
