"""Implementation of `ops queue`: show pending deliveries; suspend, resume, flush and bounce them."""

from typing import Any

import asyncpg
import msgspec

from engine.base.settings import Settings
from engine.delivery import queue_depths
from engine.delivery.holds import HoldKind
from engine.delivery.mx_routes import opened_router
from engine.delivery.queue_depths import ActiveHold, PendingDeliveries, QueueView
from engine.sending.queue_commands import QueueCommands


async def depths(pool: asyncpg.Pool, settings: Settings, *, by: str, limit: int) -> dict[str, Any]:
    """Return pending deliveries by `domain`, `site`, `account` or `shard`, largest first, and the holds in force."""
    async with opened_router(settings) as router:
        found = await queue_depths.depths(pool, router, by=QueueView(by), limit=limit)
    return {
        "by": by,
        "rows": found.rows,
        "waiting": [_named(one, by) for one in found.waiting],
        "holds": [_hold(one) for one in found.holds],
    }


async def suspend(
    pool: asyncpg.Pool, settings: Settings, on: tuple[HoldKind, str], *, reason: str, for_s: float | None
) -> dict[str, Any]:
    """Hold a target's deliveries for `for_s` seconds, or until `resume`."""
    done = await QueueCommands(pool, settings).suspend(*on, reason=reason, for_s=for_s)
    return {"suspended": done.kind.value, "target": done.target, "until": done.until, "rowsHeld": done.rows}


async def resume(
    pool: asyncpg.Pool, settings: Settings, on: tuple[HoldKind, str], *, note: str | None
) -> dict[str, Any]:
    """End the hold on a target; raises Refusal (409) if there is none."""
    done = await QueueCommands(pool, settings).resume(*on, note=note)
    return {"resumed": done.kind.value, "target": done.target, "rowsBack": done.rows}


async def flush(
    pool: asyncpg.Pool, settings: Settings, on: tuple[HoldKind, str], *, note: str | None
) -> dict[str, Any]:
    """Make a target's pending deliveries due now."""
    done = await QueueCommands(pool, settings).flush(*on, note=note)
    return {"flushed": done.kind.value, "target": done.target, "rows": done.rows}


async def bounce(pool: asyncpg.Pool, settings: Settings, on: tuple[HoldKind, str], *, reason: str) -> dict[str, Any]:
    """Fail a target's pending deliveries."""
    done = await QueueCommands(pool, settings).bounce(*on, reason=reason)
    return {"bounced": done.kind.value, "target": done.target, "rows": done.rows}


def _named(one: PendingDeliveries, by: str) -> dict[str, Any]:
    """Return a group of deliveries with its name under the word that it is grouped by."""
    shown: dict[str, Any] = msgspec.to_builtins(one)
    return {by: shown.pop("name")} | shown


def _hold(one: ActiveHold) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(one)
    return {"suspended": shown.pop("kind")} | shown
