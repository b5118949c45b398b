"""Checking a domain's DNS records, and what follows from what was found.

DNS that does not answer decides nothing: the domain keeps its standing.
"""

from collections.abc import Awaitable, Callable
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.areas.domains import records, store
from engine.areas.domains.records import Checked
from engine.base import ids
from engine.flows.open_account import record
from engine.store import caches

# The TXT records at a name, or None when DNS could not tell.
LookUp = Callable[[str], Awaitable[list[str] | None]]


class Verified(Struct, frozen=True):
    """A domain after a check."""

    name: str
    status: str
    records: list[Checked]


async def verify_domain(pool: asyncpg.Pool, domain: UUID, name: str, account: UUID, look_up: LookUp) -> Verified:
    """Look every record up, then write the standing of the domain and of its optional keys."""
    keys = await store.PUBLISHED.fetch(pool, domain)
    checks: list[Checked] = []
    unsure = False
    for wanted in records.key_records(name, keys):
        found = await look_up(wanted.host)
        unsure = unsure or found is None
        checks.append(records.checked(wanted, found or ()))
    before = await store.READ.first(pool, account, name)
    was = before.status if before is not None else "pending"
    if unsure:
        return Verified(name, was, checks)
    passed = all(check.status == "ok" for check in checks if check.wanted.required)
    status = "verified" if passed else ("failed" if was == "verified" else "pending")
    async with pool.acquire() as connection, connection.transaction():
        await store.MARK.execute(connection, domain, status)
        for key, check in zip(keys, checks, strict=True):
            if not check.wanted.required:
                await store.ACTIVATE.execute(connection, domain, key.selector, check.status == "ok")
        if status not in {was, "pending"}:
            await record(
                connection,
                account,
                f"domain.{status}",
                {"id": ids.format_id(ids.Kind.DOMAIN, domain), "name": name},
            )
        await caches.bump(connection, "domains")
    return Verified(name, status, checks)
