"""Claim, change and delete inbound addresses, in one transaction with the event and the cache stamp.

`domains` limits a caller to addresses under these domains; None allows all. The account's head is locked before its
addresses are counted, so that the plan's limit is exact under parallel requests.
"""

from collections.abc import Collection
from uuid import UUID

import asyncpg
from msgspec import UNSET, UnsetType

from engine.base import ids
from engine.base.errors import ErrorType, Refusal, existing, not_found
from engine.base.events import AccountEvent
from engine.base.plans import Caps
from engine.ledger.events import record_event
from engine.ledger.plan_limits import limit_reached, locked_caps
from engine.mail.address import canonical
from engine.receiving.inbound_addresses import rules, store
from engine.receiving.inbound_addresses.types import InboundAddressRow
from engine.store import caches
from engine.store.database_clock import new_id
from engine.store.queries import Conn

STAMP = "inbound"
WHAT = "inbound address"
SERVICE = "service"  # the actor of addresses that mail claims


async def claim(
    pool: asyncpg.Pool,
    account: UUID,
    text: str,
    *,
    label: str | None,
    mail_host: str,
    domains: Collection[str] | None = None,
    actor: str | None = None,
) -> InboundAddressRow:
    """Claim an address under a verified domain or the managed receiving domain of the account.

    Raises the 422 for an invalid address, the 403 for a domain that is not verified or that `domains` lacks, the 409 if
    the account has the address, the 403 above the plan's limit.
    """
    address, named = rules.checked_address(text), rules.checked_label(label)
    form = canonical(address)
    domain = form.rpartition("@")[2]
    if domains is not None and domain not in domains:
        raise rules.may_not_reach(domain)
    async with caches.change(pool, STAMP, account) as connection:
        caps = await locked_caps(connection, account)
        parent = await _domain_id(connection, account, domain, mail_host)
        await _refuse_claimed(connection, account, form)
        await _check_room(connection, account, caps)
        return await _insert(connection, account, parent, address, label=named, actor=actor)


async def claim_managed(pool: asyncpg.Pool, account: UUID, domain: str) -> InboundAddressRow:
    """Claim the catch-all address of the account's managed receiving domain for its first mail.

    Raises the 403 if the plan has no room for another address, the 404 after the account has deleted that address.
    """
    address = rules.catch_all(domain)
    async with caches.change(pool, STAMP, account) as connection:
        caps = await locked_caps(connection, account)
        for row in await store.FIND.fetch(connection, account, [address]):  # claimed meanwhile
            return row
        label = await store.LABEL_OF.first(connection, account)
        if label is None or label.is_open:
            raise not_found(WHAT)
        await _check_room(connection, account, caps)
        await store.OPEN_LABEL.execute(connection, account)
        return await _insert(connection, account, None, address, label=None, actor=SERVICE)


async def claim_outside_plan(
    pool: asyncpg.Pool, account: UUID, address: str, *, domain: UUID | None = None
) -> InboundAddressRow:
    """Claim an address that a mail domain must have, such as `postmaster@`; no plan counts it.

    `domain`: the id of the account's domain, None for a domain of the service.
    """
    async with caches.change(pool, STAMP, account) as connection:
        await locked_caps(connection, account)
        for row in await store.FIND.fetch(connection, account, [canonical(address)]):  # claimed meanwhile
            return row
        return await _insert(connection, account, domain, address, label=None, actor=SERVICE, in_plan=False)


async def change(
    pool: asyncpg.Pool,
    account: UUID,
    address: UUID,
    *,
    label: str | UnsetType | None = UNSET,
    enabled: bool | UnsetType = UNSET,
    domains: Collection[str] | None = None,
    actor: str | None = None,
) -> InboundAddressRow:
    """Change the values that are given and return the address; raise the 404 for an unknown one."""
    named = UNSET if isinstance(label, UnsetType) else rules.checked_label(label)
    async with caches.change(pool, STAMP, account) as connection:
        await locked_caps(connection, account)
        row = await _found(connection, account, address, domains)
        given = {"label": named, "enabled": enabled}
        changed = {name: value for name, value in given.items() if value is not UNSET and value != getattr(row, name)}
        if not changed:
            return row
        values = {"label": row.label, "enabled": row.enabled} | changed
        after = await store.CHANGE.first(connection, account, address, values["label"], values["enabled"])
        assert after is not None
        await _record(connection, account, AccountEvent.INBOUND_ADDRESS_UPDATED, row, actor, **changed)
    return after


async def delete(
    pool: asyncpg.Pool,
    account: UUID,
    address: UUID,
    *,
    domains: Collection[str] | None = None,
    actor: str | None = None,
) -> None:
    """Delete an address and its route; received mail stays. Raises the 404 for an unknown one."""
    async with caches.change(pool, STAMP, account) as connection:
        await locked_caps(connection, account)
        row = await _found(connection, account, address, domains)
        route = await store.delete(connection, account, address)
        with_route = {} if route is None else {"route_id": ids.format_id(ids.Kind.INBOUND_ROUTE, route)}
        await _record(connection, account, AccountEvent.INBOUND_ADDRESS_DELETED, row, actor, **with_route)


async def _domain_id(connection: Conn, account: UUID, domain: str, mail_host: str) -> UUID | None:
    """Return the id of the verified domain, None for the account's managed one; raise the 403 for any other."""
    label = rules.managed_label(domain, mail_host)
    if label is not None:
        own = await store.LABEL_OF.first(connection, account)
        if own is None or own.label != label:
            raise rules.not_verified(domain)
        return None
    found = await store.CLAIMABLE.first(connection, account, domain)
    if found is None or found.status != "verified":
        raise rules.not_verified(domain)
    return found.id


async def _check_room(connection: Conn, account: UUID, caps: Caps) -> None:
    limit, used = caps.inbound_addresses, await store.count(connection, account)
    if used >= limit:
        raise limit_reached("inbound_addresses", "inbound addresses", limit, used)


async def _refuse_claimed(connection: Conn, account: UUID, form: str) -> None:
    for row in await store.FIND.fetch(connection, account, [form]):
        raise Refusal(
            ErrorType.CONFLICT,
            f"You've already claimed {row.address}.",
            id=ids.format_id(ids.Kind.INBOUND_ADDRESS, row.id),
        )


async def _insert(
    connection: Conn,
    account: UUID,
    domain: UUID | None,
    address: str,
    *,
    label: str | None,
    actor: str | None,
    in_plan: bool = True,
) -> InboundAddressRow:
    row = await store.INSERT.first(
        connection, await new_id(connection), account, domain, address, canonical(address), label, in_plan
    )
    assert row is not None
    await _record(connection, account, AccountEvent.INBOUND_ADDRESS_CREATED, row, actor, label=label)
    return row


async def _found(connection: Conn, account: UUID, address: UUID, domains: Collection[str] | None) -> InboundAddressRow:
    return existing(
        await store.READ.first(connection, account, address, None if domains is None else list(domains)), WHAT
    )


async def _record(
    connection: Conn, account: UUID, kind: AccountEvent, row: InboundAddressRow, actor: str | None, **detail: object
) -> None:
    named = {"id": ids.format_id(ids.Kind.INBOUND_ADDRESS, row.id), "address": row.address}
    await record_event(connection, account, kind, named | detail, actor=actor)
