"""`ops purge`: delete records past their retention."""

from typing import Any

import asyncpg
import click
from msgspec import structs

from engine.base import clock
from engine.retention import purge as purging
from ops.commands.base import as_json, in_database, reported, show

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


@click.command()
@click.option("--dry-run", is_flag=True, help="Only count what would be deleted.")
@as_json
@reported
def purge(*, dry_run: bool, as_json: bool) -> None:
    """Delete records past their retention; the worker does this every hour."""
    show(in_database(delete_expired, dry_run=dry_run), as_json=as_json)


async def delete_expired(pool: asyncpg.Pool, *, dry_run: bool) -> dict[str, Any]:
    """Delete expired records of all accounts, or with `dry_run` count them; raises RuntimeError if a worker does so."""
    at = clock.now()
    found = await (purging.outlook(pool, at) if dry_run else purging.purge(pool, at, everyone=True))
    if found is None:
        raise RuntimeError("Another process is deleting expired records now. Try again in a minute.")
    return {_NAMES[name]: value for name, value in structs.asdict(found).items()}
