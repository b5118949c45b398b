"""Erasures of recipients in any account: `ops erasure`."""

from typing import Any

import asyncpg
import orjson

from engine.base import clock, ids
from engine.base.list_filters import LAST_ID
from engine.retention.erasures import rules, service, store
from engine.retention.erasures.types import ErasureRow
from ops.stored_messages import find_account


async def request(pool: asyncpg.Pool, account: str, address: str) -> dict[str, Any]:
    """Queue the erasure of an address in an account (id or name); return its receipt.

    Raises the refusals of `POST /v1/erasures`.
    """
    owner = await find_account(pool, account)
    return _shown(await service.request(pool, owner, rules.address_of(address), actor="operator"))


async def listed(pool: asyncpg.Pool, account: str, *, limit: int) -> list[dict[str, Any]]:
    """Return the receipts of an account (id or name), newest first."""
    return [_shown(row) for row in await store.LIST.fetch(pool, await find_account(pool, account), LAST_ID, limit)]


def _shown(row: ErasureRow) -> dict[str, Any]:
    """Return a receipt without the address, which it forgets when it is completed."""
    counts = orjson.loads(row.counts)
    return {
        "id": ids.format_id(ids.Kind.ERASURE, row.id),
        "state": row.state,
        "requestedAt": clock.iso(row.requested_at),
        "finishedAt": None if row.finished_at is None else clock.iso(row.finished_at),
        "erased": sum(counts.values()),
        "counts": counts,
    }
