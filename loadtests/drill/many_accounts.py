"""Open many sending accounts at once, each with an owner, an API key and a verified domain.

All domains share one DKIM key pair: creating one takes 0.1 s of CPU, which drills do not measure.
"""

from collections.abc import Sequence
from typing import Final

import asyncpg

from engine.base import clock, ids
from engine.base.plans import Plan
from engine.base.scopes import SCOPES
from engine.base.secrets import Pepper
from engine.people.api_keys.service import create_api_key
from engine.people.open_account import open_account
from engine.sending.domains import store as domains
from engine.sending.domains.service import make_pair
from engine.sending.domains.store import FreshKey
from engine.store import caches
from loadtests.drill.send_client import ApiAccess
from loadtests.drill.service import Service
from ops import admin

_DAILY_CAP: Final = 1_000_000
_CHECK_LATER: Final = "UPDATE domains SET check_at = check_at + interval '6 hours' WHERE name = ANY ($1)"


async def open_accounts(service: Service, name: str, count: int) -> list[ApiAccess]:
    """Open `count` accounts on a running service; `name` is part of their domain names."""
    settings = service.settings
    pepper = settings.pepper
    keys = await make_pair(name, "wb1")
    async with admin.opened(settings) as pool:
        made = [await _open(pool, f"{name}-{number}.test", keys, pepper) for number in range(count)]
        async with pool.acquire() as connection, connection.transaction():
            # Otherwise all new domains would be checked during the drill.
            await connection.execute(_CHECK_LATER, [f"{name}-{number}.test" for number in range(count)])
            await caches.bump(connection, "domains")
    return made


async def _open(pool: asyncpg.Pool, domain: str, keys: Sequence[FreshKey], pepper: Pepper) -> ApiAccess:
    account = await open_account(
        pool, name=domain, email=f"owner@{domain}", password_hash="", plan=Plan.SCALE,
        daily_cap=_DAILY_CAP, verified_at=clock.now(),
    )  # fmt: skip
    key = await create_api_key(pool, account.id, name="drill", scopes=sorted(SCOPES), pepper=pepper)
    place = ids.uuid7()
    async with pool.acquire() as connection, connection.transaction():
        await domains.insert(connection, place, account.id, domain, pepper=pepper, keys=keys)
        await domains.VOUCH.execute(connection, place)
    return ApiAccess(account.public_id, key.token, f"drill@{domain}")
