"""Pending deliveries by domain, site, account or shard, and the deliveries under holds, for the operator."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import invalid
from engine.base.text import is_line
from engine.delivery import holds
from engine.delivery.holds import Hold
from engine.delivery.mx_routes import Router
from engine.delivery.routes import Route
from engine.store.queries import Queries

MAX_ROUTED = 1_000  # domains (those with the most mail) whose site is looked up
AT_ONCE = 32  # concurrent look-ups
NOWHERE = "(no route)"  # shown as the site of a domain without a mail server

_SQL = Queries.beside(__file__, "queue_depths.sql")


class QueueView(StrEnum):
    """The ways to group pending deliveries."""

    DOMAIN = "domain"
    SITE = "site"
    ACCOUNT = "account"
    SHARD = "shard"


class DepthRow(Struct, frozen=True):
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


class HeldRow(Struct, frozen=True):
    """A delivery under a hold."""

    held_by: UUID
    message_id: UUID
    domain: str
    account_id: UUID
    recipients: int
    attempts: int
    kind: str
    target: str
    reason: str
    since: datetime
    until: datetime | None


class PendingDeliveries(Struct, frozen=True, rename="camel"):
    """Pending deliveries of `name`, a domain, site, account or shard. A row is a message to one domain.

    `due` counts those due now, `ageS` is the age of the oldest message in seconds.
    """

    name: str
    rows: int
    recipients: int
    due: int
    retrying: int
    held: int
    age_s: int
    next_due: str


class ActiveHold(Struct, frozen=True, rename="camel"):
    """A hold in force; without `until` it lasts until it is ended."""

    kind: str
    target: str
    reason: str
    since: str
    until: str | None


class QueueDepths(Struct, frozen=True):
    """Pending deliveries in groups, the largest first, and the holds in force; `rows` counts the whole queue."""

    by: QueueView
    rows: int
    waiting: list[PendingDeliveries]
    holds: list[ActiveHold]


class HeldDelivery(Struct, frozen=True, rename="camel"):
    """A delivery under a hold: a message to one recipient domain."""

    message_id: str
    account_id: str
    domain: str
    recipients: int
    attempts: int
    hold: ActiveHold


class HeldDeliveryPage(Struct, frozen=True, rename="camel"):
    """Deliveries under holds, in the order of the holds and their oldest messages."""

    data: list[HeldDelivery]
    next_cursor: str | None


_BY = {
    QueueView.DOMAIN: _SQL.rows("depths_by_domain", DepthRow),
    QueueView.ACCOUNT: _SQL.rows("depths_by_account", DepthRow),
    QueueView.SHARD: _SQL.rows("depths_by_shard", DepthRow),
}
_DOMAINS = _SQL.command("waiting_domains")
_HELD = _SQL.rows("held_deliveries", HeldRow)
_START = (UUID(int=0), UUID(int=0), "")


async def depths(pool: asyncpg.Pool, router: Router, *, by: QueueView, limit: int) -> QueueDepths:
    """Return pending deliveries in groups, at most `limit`, and the holds in force."""
    now = clock.now()
    found = await (_by_site(pool, router, now) if by is QueueView.SITE else _BY[by].fetch(pool, limit, now))
    in_force = await holds.IN_FORCE.fetch(pool)
    return QueueDepths(
        by=by,
        rows=found[0].total if found else 0,
        waiting=[_shown(one, by, now) for one in found[:limit]],
        holds=[shown_hold(one) for one in in_force],
    )


async def held(pool: asyncpg.Pool, *, after: str | None, limit: int) -> HeldDeliveryPage:
    """Return a page of the deliveries under holds; raises 400 for a wrong cursor."""
    rows = await _HELD.fetch(pool, *_parsed(after), limit + 1)
    data = [_held(row) for row in rows[:limit]]
    return HeldDeliveryPage(data, _cursor(rows[limit - 1]) if len(rows) > limit else None)


async def domain_sites(pool: asyncpg.Pool, router: Router) -> dict[str, str]:
    """Return the site of each pending domain, by a DNS look-up now."""
    domains: Sequence[str] = [row["domain"] for row in await _DOMAINS.records(pool, MAX_ROUTED)]
    slots = asyncio.Semaphore(AT_ONCE)

    async def site(domain: str) -> tuple[str, str]:
        async with slots:
            route = await router.route(domain)
        return domain, route.site if isinstance(route, Route) else NOWHERE

    return dict(await asyncio.gather(*[site(domain) for domain in domains]))


def shown_hold(one: Hold) -> ActiveHold:
    """Return a hold as operators see it."""
    return ActiveHold(one.kind, one.target, one.reason, clock.iso(one.created_at), clock.iso_or_none(one.until))


async def _by_site(pool: asyncpg.Pool, router: Router, now: datetime) -> list[DepthRow]:
    sites = await domain_sites(pool, router)
    merged: dict[str, DepthRow] = {}
    for one in await _BY[QueueView.DOMAIN].fetch(pool, MAX_ROUTED, now):
        name = sites.get(one.name, NOWHERE)
        known = merged.get(name)
        if known is None:
            known = DepthRow(name, 0, 0, 0, 0, 0, one.oldest_ms, one.next_due, one.total)
        merged[name] = DepthRow(
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


def _shown(one: DepthRow, by: QueueView, now: datetime) -> PendingDeliveries:
    return PendingDeliveries(
        name=ids.format_id(ids.Kind.ACCOUNT, UUID(one.name)) if by is QueueView.ACCOUNT else one.name,
        rows=one.rows,
        recipients=one.recipients,
        due=one.due,
        retrying=one.retrying,
        held=one.held,
        age_s=max(0, (clock.milliseconds(now) - one.oldest_ms) // 1000),
        next_due=clock.iso(one.next_due),
    )


def _held(row: HeldRow) -> HeldDelivery:
    return HeldDelivery(
        message_id=ids.format_id(ids.Kind.MESSAGE, row.message_id),
        account_id=ids.format_id(ids.Kind.ACCOUNT, row.account_id),
        domain=row.domain,
        recipients=row.recipients,
        attempts=row.attempts,
        hold=ActiveHold(row.kind, row.target, row.reason, clock.iso(row.since), clock.iso_or_none(row.until)),
    )


def _cursor(row: HeldRow) -> str:
    return f"{row.held_by.hex}.{row.message_id.hex}.{row.domain}"


def _parsed(cursor: str | None) -> tuple[UUID, UUID, str]:
    if cursor is None:
        return _START
    hold, _, rest = cursor.partition(".")
    message, _, domain = rest.partition(".")
    try:
        place = UUID(hex=hold), UUID(hex=message), domain
    except ValueError:
        place = None
    if place is None or not is_line(domain):
        raise invalid("after", "`after` is not the `nextCursor` of a page of this list.")
    return place
