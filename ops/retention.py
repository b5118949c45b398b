"""Implementation of `ops purge`."""

from typing import Any

import asyncpg
from msgspec import structs

from engine.base import clock
from engine.retention import purge as purging

_NAMES = {
    "accounts": "accounts",
    "messages": "messages",
    "received": "received",
    "events": "events",
    "idempotency_keys": "idempotencyKeys",
    "figures": "figures",
    "partitions": "partitions",
    "finished": "finished",
}


async def purge(pool: asyncpg.Pool, *, dry_run: bool) -> dict[str, Any]:
    """Delete expired records of all accounts, or with `dry_run` count them; raises RuntimeError if a worker does so."""
    at = clock.now()
    found = await (purging.outlook(pool, at) if dry_run else purging.purge(pool, at, everyone=True))
    if found is None:
        raise RuntimeError("Another process is deleting expired records now. Try again in a minute.")
    return {_NAMES[name]: value for name, value in structs.asdict(found).items()}
