"""Implementation of `ops queue`: show pending deliveries; suspend, resume, flush and bounce them."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.delivery.holds import EVERYWHERE, Hold, HoldKind
from engine.flows.sending import queue_admin
from engine.flows.sending.queue_admin import QueueTarget
from engine.store.database_clock import DatabaseClock
from engine.store.queries import Queries
from engine.store.resolver import Resolver
from mta.outbound.mx_routes import Router
from mta.outbound.routes import Route

VIEWS = ("domain", "site", "account", "shard")
MAX_ROUTED = 1_000  # domains (those with the most mail) whose site is looked up
AT_ONCE = 32  # concurrent look-ups
NOWHERE = "(no route)"  # shown as the site of a domain without a mail server

_SQL = Queries.beside(__file__, "queue.sql")


class Waiting(Struct, frozen=True):
    """Pending deliveries of one domain, site, account or shard."""

    name: str
    rows: int
    recipients: int
    due: int
    retrying: int
    held: int
    oldest_ms: int  # Unix milliseconds
    next_due: datetime
    total: int  # rows of the whole queue


_BY = {
    "domain": _SQL.rows("depths_by_domain", Waiting),
    "account": _SQL.rows("depths_by_account", Waiting),
    "shard": _SQL.rows("depths_by_shard", Waiting),
}
_DOMAINS = _SQL.command("waiting_domains")


async def depths(pool: asyncpg.Pool, settings: Settings, *, by: str, limit: int) -> dict[str, Any]:
    """Return pending deliveries by `domain`, `site`, `account` or `shard`, largest first, and the active holds.

    `rows` counts deliveries (a message to one domain); at the top level it counts the whole queue, whatever `limit`.
    `due` counts those due now, `ageS` is the age of the oldest message.
    """
    now = clock.now()
    if by == "site":
        found = await _by_site(pool, settings, now)
    else:
        found = await _BY[by].fetch(pool, limit, now)
    return {
        "by": by,
        "rows": found[0].total if found else 0,
        "waiting": [_shown(one, by, now) for one in found[:limit]],
        "holds": [_hold(one) for one in await queue_admin.holds_in_force(pool)],
    }


async def suspend(
    pool: asyncpg.Pool, settings: Settings, on: tuple[HoldKind, str], *, reason: str, for_s: float | None
) -> dict[str, Any]:
    """Hold a target's deliveries for `for_s` seconds, or until `resume`."""
    until = None if for_s is None else (await DatabaseClock.read(pool)).now() + timedelta(seconds=for_s)
    target = await _chosen(pool, settings, on)
    rows = await queue_admin.suspend(pool, target, reason=reason, until=until)
    end = None if until is None else clock.iso(until)
    return {"suspended": target.kind.value, "target": target.target, "until": end, "rowsHeld": rows}


async def resume(
    pool: asyncpg.Pool, settings: Settings, on: tuple[HoldKind, str], *, note: str | None
) -> dict[str, Any]:
    """End the hold on a target; raises ValueError if there is none."""
    target = await _chosen(pool, settings, on, routed=False)
    rows = await queue_admin.resume(pool, target, note=note)
    if rows is None:
        raise ValueError(f"There is no hold on the {target.kind.value} {target.target}. `ops queue` lists the holds.")
    return {"resumed": target.kind.value, "target": target.target, "rowsBack": rows}


async def flush(
    pool: asyncpg.Pool, settings: Settings, on: tuple[HoldKind, str], *, note: str | None
) -> dict[str, Any]:
    """Make a target's pending deliveries due now."""
    target = await _chosen(pool, settings, on)
    rows = await queue_admin.flush(pool, target, note=note)
    return {"flushed": target.kind.value, "target": target.target, "rows": rows}


async def bounce(pool: asyncpg.Pool, settings: Settings, on: tuple[HoldKind, str], *, reason: str) -> dict[str, Any]:
    """Fail a target's pending deliveries."""
    target = await _chosen(pool, settings, on)
    rows = await queue_admin.bounce(pool, target, reason=reason)
    return {"bounced": target.kind.value, "target": target.target, "rows": rows}


async def _chosen(
    pool: asyncpg.Pool, settings: Settings, on: tuple[HoldKind, str], *, routed: bool = True
) -> QueueTarget:
    kind, target = on
    if kind is not HoldKind.SITE or not routed or target == EVERYWHERE:
        return queue_admin.queue_target(kind, target)
    sites = await _sites(pool, settings)
    return queue_admin.queue_target(kind, target, [domain for domain, site in sites.items() if site == target.lower()])


async def _by_site(pool: asyncpg.Pool, settings: Settings, now: datetime) -> list[Waiting]:
    sites = await _sites(pool, settings)
    merged: dict[str, Waiting] = {}
    for one in await _BY["domain"].fetch(pool, MAX_ROUTED, now):
        name = sites.get(one.name, NOWHERE)
        known = merged.get(name)
        if known is None:
            known = Waiting(name, 0, 0, 0, 0, 0, one.oldest_ms, one.next_due, one.total)
        merged[name] = Waiting(
            name,
            known.rows + one.rows,
            known.recipients + one.recipients,
            known.due + one.due,
            known.retrying + one.retrying,
            known.held + one.held,
            min(known.oldest_ms, one.oldest_ms),
            min(known.next_due, one.next_due),
            one.total,
        )
    return sorted(merged.values(), key=lambda one: (-one.rows, one.name))


async def _sites(pool: asyncpg.Pool, settings: Settings) -> dict[str, str]:
    """Return the site of each pending domain, by a DNS look-up now."""
    domains: Sequence[str] = [row["domain"] for row in await _DOMAINS.records(pool, MAX_ROUTED)]
    resolver = Resolver.from_settings(settings)
    router = Router.from_settings(settings, resolver)
    slots = asyncio.Semaphore(AT_ONCE)

    async def site(domain: str) -> tuple[str, str]:
        async with slots:
            route = await router.route(domain)
        return domain, route.site if isinstance(route, Route) else NOWHERE

    try:
        return dict(await asyncio.gather(*[site(domain) for domain in domains]))
    finally:
        await router.close()
        await resolver.close()


def _shown(one: Waiting, by: str, now: datetime) -> dict[str, Any]:
    name = ids.format_id(ids.Kind.ACCOUNT, UUID(one.name)) if by == "account" else one.name
    return {
        by: name,
        "rows": one.rows,
        "recipients": one.recipients,
        "due": one.due,
        "retrying": one.retrying,
        "held": one.held,
        "ageS": max(0, (clock.milliseconds(now) - one.oldest_ms) // 1000),
        "nextDue": clock.iso(one.next_due),
    }


def _hold(one: Hold) -> dict[str, Any]:
    return {
        "suspended": one.kind,
        "target": one.target,
        "reason": one.reason,
        "since": clock.iso(one.created_at),
        "until": None if one.until is None else clock.iso(one.until),
    }
