"""Create, change and delete inbound routes, in one transaction with the event and the cache stamp.

`domains` limits a caller to routes of these domains and their addresses; None allows all.
"""

from collections.abc import Collection
from uuid import UUID

import asyncpg
from msgspec import structs

from engine.base import ids
from engine.base.errors import ErrorType, Refusal, existing, not_found
from engine.base.events import AccountEvent
from engine.ledger.events import record_event
from engine.ledger.plan_limits import locked_caps
from engine.mail.address import BadAddress, canonical, domain_name
from engine.receiving.inbound_routes import rules, store
from engine.receiving.inbound_routes.types import InboundRouteRow, RouteAction, RouteSettings, RouteTarget
from engine.store import caches
from engine.store.database_clock import new_id
from engine.store.queries import Conn

STAMP = "inbound"
WHAT = "inbound route"
MAX_FOLLOWED = 10  # routes that forward to one another


async def create(
    pool: asyncpg.Pool,
    account: UUID,
    *,
    address: str | None,
    domain: str | None,
    settings: RouteSettings,
    domains: Collection[str] | None = None,
    actor: str | None = None,
) -> InboundRouteRow:
    """Create the route of a claimed address or of a verified domain: exactly one of `address` and `domain` is given.

    Raises the 404 for a target or endpoint that the account lacks, the 403 for a domain that is not verified or that
    `domains` lacks, the 409 if the target has a route, the 400 for an address that mail may not be forwarded to.
    """
    form = None if address is None else _canonical(address)
    name = _domain(domain or "") if form is None else form.rpartition("@")[2]
    if domains is not None and name not in domains:
        raise Refusal(
            ErrorType.FORBIDDEN,
            f"This API key isn't allowed to manage routes of {name}. Use a key that allows this domain.",
        )
    async with caches.change(pool, STAMP, account) as connection:
        await locked_caps(connection, account)
        target = await _target(connection, account, form, name)
        await _refuse_routed(connection, account, target, form or name)
        await _check_endpoint(connection, account, settings.webhook_id)
        route = await new_id(connection)
        await store.INSERT.execute(
            connection, route, account, target.address_id, target.domain_id, settings.action, settings.webhook_id,
            list(settings.include), settings.forward_to, settings.retain_content,
        )  # fmt: skip
        row = await _found(connection, account, route, None)
        rules.check_forward(row.rule, form)
        rules.check_retention(row.action, retain_content=row.retain_content)
        await _refuse_loop(connection, account, row)
        await _record(connection, account, AccountEvent.INBOUND_ROUTE_CREATED, row, actor, **_shown(settings))
    return row


async def change(
    pool: asyncpg.Pool,
    account: UUID,
    route: UUID,
    *,
    changes: dict[str, object],
    domains: Collection[str] | None = None,
    actor: str | None = None,
) -> InboundRouteRow:
    """Apply `changes`, by fields of RouteSettings, and return the route.

    Raises the 404 for an unknown route or endpoint, the 400 for an address that mail may not be forwarded to.
    """
    async with caches.change(pool, STAMP, account) as connection:
        await locked_caps(connection, account)
        row = await _found(connection, account, route, domains)
        before = _settings(row)
        after = structs.replace(before, **changes)
        if after == before:
            return row
        if after.webhook_id != before.webhook_id:
            await _check_endpoint(connection, account, after.webhook_id)
        await store.CHANGE.execute(
            connection, account, route, after.action, after.webhook_id, list(after.include), after.forward_to,
            after.enabled, after.retain_content,
        )  # fmt: skip
        changed = await _found(connection, account, route, None)
        if after.forward_to != before.forward_to or after.action != before.action:
            rules.check_forward(changed.rule, None if row.address is None else canonical(row.address))
        rules.check_retention(changed.action, retain_content=changed.retain_content)
        await _refuse_loop(connection, account, changed)
        detail = {name: value for name, value in _shown(after).items() if _shown(before)[name] != value}
        await _record(connection, account, AccountEvent.INBOUND_ROUTE_UPDATED, changed, actor, **detail)
    return changed


async def delete(
    pool: asyncpg.Pool,
    account: UUID,
    route: UUID,
    *,
    domains: Collection[str] | None = None,
    actor: str | None = None,
) -> None:
    """Delete a route: mail to its target goes to the mailbox. Raises the 404 for an unknown one."""
    async with caches.change(pool, STAMP, account) as connection:
        await locked_caps(connection, account)
        row = await _found(connection, account, route, domains)
        await store.DELETE.execute(connection, account, route)
        await _record(connection, account, AccountEvent.INBOUND_ROUTE_DELETED, row, actor)


async def _target(connection: Conn, account: UUID, form: str | None, domain: str) -> RouteTarget:
    if form is not None:
        return existing(await store.TARGET_ADDRESS.first(connection, account, form), "inbound address")
    target = existing(await store.TARGET_DOMAIN.first(connection, account, domain), "domain")
    if target.status != "verified":
        raise Refusal(
            ErrorType.DOMAIN_NOT_VERIFIED, f"{domain} is not verified. Verify it, then add the route.", domain=domain
        )
    return target


async def _refuse_loop(connection: Conn, account: UUID, row: InboundRouteRow) -> None:
    """Raise the 400 for a stored route that forwards to an address of the account whose mail leads back to the route.

    Longer ways, and those through other accounts, end at the second delivery to an address.
    """
    if row.action != RouteAction.FORWARD or row.forward_to is None:
        return
    to = row.forward_to
    for _ in range(MAX_FOLLOWED):
        found = await store.NEXT_FORWARD.first(connection, account, rules.forms_of(to))
        if found is None:
            return
        if found.id == row.id:
            raise rules.forwarding_loop(row.forward_to)
        to = found.forward_to


async def _refuse_routed(connection: Conn, account: UUID, target: RouteTarget, shown: str) -> None:
    known = await store.OF_TARGET.first(connection, account, target.address_id, target.domain_id)
    if known is not None:
        raise Refusal(
            ErrorType.CONFLICT,
            f"{shown} already has a route. Change that one.",
            id=ids.format_id(ids.Kind.INBOUND_ROUTE, known.id),
        )


async def _check_endpoint(connection: Conn, account: UUID, webhook: UUID | None) -> None:
    if webhook is not None and not await store.endpoint_exists(connection, account, webhook):
        raise not_found("webhook endpoint")


async def _found(connection: Conn, account: UUID, route: UUID, domains: Collection[str] | None) -> InboundRouteRow:
    return existing(
        await store.READ.first(connection, account, route, None if domains is None else list(domains)), WHAT
    )


def _canonical(address: str) -> str:
    """Return the form in which a claimed address is found; an invalid address is as unknown as any other."""
    try:
        return canonical(address)
    except BadAddress:
        raise not_found("inbound address") from None


def _domain(text: str) -> str:
    try:
        return domain_name(text)
    except BadAddress:
        raise not_found("domain") from None


def _settings(row: InboundRouteRow) -> RouteSettings:
    return RouteSettings(
        action=RouteAction(row.action),
        webhook_id=row.webhook_id,
        include=tuple(row.include),
        forward_to=row.forward_to,
        enabled=row.enabled,
        retain_content=row.retain_content,
    )


def _shown(settings: RouteSettings) -> dict[str, object]:
    """Return the settings as the account log shows them."""
    webhook = settings.webhook_id
    return {
        "action": settings.action,
        "webhook_id": None if webhook is None else ids.format_id(ids.Kind.WEBHOOK, webhook),
        "include": list(settings.include),
        "forward_to": settings.forward_to,
        "enabled": settings.enabled,
        "retain_content": settings.retain_content,
    }


async def _record(
    connection: Conn, account: UUID, kind: AccountEvent, row: InboundRouteRow, actor: str | None, **detail: object
) -> None:
    target = {"address": row.address} if row.address is not None else {"domain": row.domain}
    named = {"id": ids.format_id(ids.Kind.INBOUND_ROUTE, row.id)} | target
    await record_event(connection, account, kind, named | detail, actor=actor)
