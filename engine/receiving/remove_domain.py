"""Remove a sending domain with what was set up to receive mail under it."""

from uuid import UUID

import asyncpg

from engine.ledger.plan_limits import locked_caps
from engine.sending.domains import service
from engine.store import caches
from engine.store.queries import Queries

_SQL = Queries.beside(__file__, "remove_domain.sql")
_REMOVE_CLAIMS = _SQL.command("remove_claims")
_STAMPS = ("domains", "inbound")


async def remove_domain(pool: asyncpg.Pool, account: UUID, domain: UUID, *, actor: str | None = None) -> None:
    """Remove a domain with its inbound addresses, routes and MTA-STS policy; received mail stays.

    New mail from it is refused; accepted mail is still signed and delivered. Raises the 404 for an unknown domain.
    """
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        (gone,) = await _REMOVE_CLAIMS.records(connection, account, domain)
        taken_along = {name: count for name, count in gone.items() if count}
        await service.remove_domain(connection, account, domain, taken_along=taken_along, actor=actor)
        for stamp in _STAMPS:
            await caches.bump(connection, stamp, account)
    for stamp in _STAMPS:
        caches.clear_here(stamp, account)
