"""Giving an account API keys and taking them away: one transaction each, with its event, its stamp and its notice.

A key in use is known to every process of the service; the stamp has them ask again within a second.
"""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.areas.account import store as accounts
from engine.areas.account.store import AccountRow
from engine.areas.api_keys import rules, store
from engine.areas.api_keys.store import KeyListRow
from engine.areas.domains import store as domains
from engine.areas.people import store as people
from engine.areas.streams import store as streams
from engine.areas.system_mail.store import enqueue
from engine.areas.system_mail.types import SystemMailKind
from engine.base import clock, ids, secrets
from engine.base.errors import invalid, not_found
from engine.base.events import AccountEvent
from engine.base.plans import CAPS
from engine.base.text import checked_line
from engine.ledger.events import record_event
from engine.ledger.plan_limits import limit_reached, locked_plan
from engine.mail.address import BadAddress, domain_name
from engine.store import caches
from engine.store.database_clock import new_id
from engine.store.queries import Conn, Source


class CreatedApiKey(Struct, frozen=True):
    """A key at its making; `token` is never shown again."""

    token: str
    row: KeyListRow

    @property
    def public_id(self) -> str:
        """`key_…`."""
        return ids.format_id(ids.Kind.API_KEY, self.row.id)

    @property
    def scopes(self) -> list[str]:
        """In order, each once."""
        return self.row.scopes


class KeyLimits(Struct, frozen=True):
    """What a key is to be limited to beside its scopes, as it was asked for; None: as its account."""

    domains: list[str] | None = None
    streams: list[str] | None = None
    networks: list[str] | None = None


async def give_key(
    pool: asyncpg.Pool,
    account: UUID,
    *,
    name: str,
    scopes: list[str],
    pepper: str,
    expires_at: datetime | None = None,
    limits: KeyLimits | None = None,
    actor: str | None = None,
    tell: UUID | None = None,
) -> CreatedApiKey:
    """A new key of an account, within its plan's number of keys; the owners of account `tell` get a mail about it.

    Raises 400 for a scope that does not exist or can't be granted, and for a domain or stream that is not on the
    account; 403 past the plan's number.
    """
    title = checked_line(name, "name", rules.MAX_NAME)
    wanted = rules.checked_scopes(scopes)
    asked = limits or KeyLimits()
    networks = None if asked.networks is None else rules.checked_networks(asked.networks)
    names = None if asked.domains is None else _names(asked.domains)
    slugs = None if asked.streams is None else sorted(set(asked.streams))
    fresh = rules.new_key()
    async with pool.acquire() as connection, connection.transaction():
        await _check_room(connection, account)
        await _check_places(connection, account, names or (), slugs or ())
        digest, key = secrets.digest(pepper, fresh.secret), await new_id(connection)
        made = await store.INSERT.records(connection, key, fresh.key_id, account, title, digest, wanted, expires_at)
        row = KeyListRow(
            key, fresh.key_id, title, wanted, made[0]["created_at"], expires_at, None, None, names, slugs, networks
        )
        if asked != KeyLimits():
            await store.LIMIT.execute(connection, key, names, slugs, networks)
        await record_event(connection, account, AccountEvent.API_KEY_CREATED, _told(row), actor=actor)
        if tell is not None:
            await _tell_owners(connection, tell, account, row)
        await caches.bump(connection, "keys")
    return CreatedApiKey(fresh.token, row)


async def revoke_key(pool: asyncpg.Pool, account: UUID, key: UUID, *, actor: str) -> None:
    """The key of the account, or of a sub-account of it, authenticates no more; its record stays. Idempotent.

    404 for any other key.
    """
    async with pool.acquire() as connection, connection.transaction():
        found = await store.HOLDER.records(connection, key, account)
        if not found:
            raise not_found("API key")
        holder: UUID = found[0]["account_id"]
        await locked_plan(connection, holder)
        revoked = await store.REVOKE.records(connection, holder, key)
        if revoked:
            detail = {"id": ids.format_id(ids.Kind.API_KEY, key), "name": revoked[0]["name"]}
            await record_event(connection, holder, AccountEvent.API_KEY_REVOKED, detail, actor=actor)
            await caches.bump(connection, "keys")
    caches.clear_here("keys")


async def sub_account(source: Source, parent: UUID, child: UUID) -> AccountRow:
    """A sub-account of `parent`; 404 for any other account."""
    row = await accounts.READ.first(source, child)
    if row is None or row.parent_id != parent:
        raise not_found("sub-account")
    return row


async def _check_room(connection: Conn, account: UUID) -> None:
    plan = await locked_plan(connection, account)
    limit = CAPS[plan].api_keys
    used = await store.count_live(connection, account)
    if limit is not None and used >= limit:
        raise limit_reached("api_keys", "API keys", limit, used)


def _names(texts: Iterable[str]) -> list[str]:
    found = set()
    for text in texts:
        try:
            found.add(domain_name(text.strip()))
        except BadAddress as error:
            raise invalid("domains", f"{text[:100]!r} is no domain: {error}") from None
    return sorted(found)


async def _check_places(connection: Conn, account: UUID, names: Iterable[str], slugs: Iterable[str]) -> None:
    """What a key is limited to must be there: a misspelt name would make a key that can send nothing."""
    held = {row.name for row in await domains.NAMES.fetch(connection, account)} if names else set()
    for name in names:
        if name not in held:
            raise invalid("domains", f"{name} is not a domain of this account. Add it first.")
    opened = {row.slug for row in await streams.LIST.fetch(connection, account)} if slugs else set()
    for slug in slugs:
        if slug not in opened:
            raise invalid("streams", f"There is no stream named {slug!r} on this account.")


def _told(row: KeyListRow) -> dict[str, object]:
    """The event's detail: what the key may do, nothing that it is made of."""
    detail: dict[str, object] = {
        "id": ids.format_id(ids.Kind.API_KEY, row.id), "name": row.name, "scopes": row.scopes
    }  # fmt: skip
    if row.expires_at is not None:
        detail["expires_at"] = clock.iso(row.expires_at)
    limits = {"domains": row.domains, "streams": row.streams, "networks": row.networks}
    return detail | {name: value for name, value in limits.items() if value is not None}


async def _tell_owners(connection: Conn, tell: UUID, account: UUID, row: KeyListRow) -> None:
    """Somebody who has got into an administrator's session would make a key first."""
    held = await accounts.READ.first(connection, account)
    at = clock.now()
    for owner in await people.OWNERS.fetch(connection, tell):
        await enqueue(
            connection,
            SystemMailKind.API_KEY_CREATED,
            owner.email,
            at=at,
            account_name="" if held is None else held.name,
            key_name=row.name,
            hint=rules.hint(row.key_id),
        )
