"""Implementation of `ops purge` and `ops account retention`."""

from typing import Any

import asyncpg
from msgspec import structs

from engine.areas.account import rules, store
from engine.base import clock, ids
from engine.base.errors import not_found
from engine.base.events import AccountEvent
from engine.base.plans import Plan
from engine.flows.retention import purge as purging
from engine.ledger.events import record_event

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


async def agree(pool: asyncpg.Pool, *, account: str, days: int | None) -> dict[str, Any]:
    """Keep an account's records for at least `days`; None returns to the plan's retention. Raises Refusal (404)."""
    account_id = ids.parse_id(ids.Kind.ACCOUNT, account)
    async with pool.acquire() as connection, connection.transaction():
        rows = await store.AGREE_RETENTION.records(connection, account_id, days)
        if not rows:
            raise not_found("account")
        kept = rules.retention_days(Plan(rows[0]["plan"]), days)
        detail = {"agreed_days": days, "retention_days": kept}
        await record_event(connection, account_id, AccountEvent.ACCOUNT_RETENTION_AGREED, detail, actor="operator")
    return {"accountId": account, "agreedDays": days, "retentionDays": kept}
