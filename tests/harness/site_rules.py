"""Set and remove the operator's rules for sites."""

import asyncpg

from engine.delivery import sites_store
from engine.delivery.sites import SiteRule


async def set_rule(pool: asyncpg.Pool, name: str, fields: dict[str, object], why: str | None) -> SiteRule:
    """Set fields of a name's rule."""
    async with pool.acquire() as connection, connection.transaction():
        return await sites_store.change(connection, name, fields, why)


async def remove_rule(pool: asyncpg.Pool, name: str) -> bool:
    """Remove a name's rule; return False if there was none."""
    async with pool.acquire() as connection, connection.transaction():
        return await sites_store.reset(connection, name)
