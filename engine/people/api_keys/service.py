"""Create and revoke API keys: one transaction each, with its event, its cache stamp and its notice.

Every process caches the keys in use; the stamp makes them reload within a second.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids, secrets
from engine.base.errors import invalid, not_found
from engine.base.events import AccountEvent
from engine.base.text import checked_line
from engine.ledger.events import record_event
from engine.ledger.plan_limits import limit_reached, locked_caps
from engine.mail.address import BadAddress, domain_name
from engine.people.account import store as accounts
from engine.people.account.store import AccountRow
from engine.people.api_keys import rules, store
from engine.people.api_keys.agent_policy import AgentPolicy, checked_policy
from engine.people.api_keys.store import KeyListRow
from engine.people.people import store as people
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.store import caches
from engine.store.database_clock import new_id
from engine.store.queries import Conn, Source


class CreatedApiKey(Struct, frozen=True):
    """A newly created key; `token` is never shown again."""

    token: str
    row: KeyListRow

    @property
    def public_id(self) -> str:
        """Return the id as `key_…`."""
        return ids.format_id(ids.Kind.API_KEY, self.row.id)

    @property
    def scopes(self) -> list[str]:
        """Return the scopes in order, without duplicates."""
        return self.row.scopes


class KeyLimits(Struct, frozen=True):
    """The requested restrictions of a key besides its scopes; None leaves the account's own."""

    domains: list[str] | None = None
    streams: list[str] | None = None
    networks: list[str] | None = None
    allowed_origins: list[str] | None = None
    agent: AgentPolicy | None = None


async def create_api_key(
    pool: asyncpg.Pool,
    account: UUID,
    *,
    name: str,
    scopes: list[str],
    pepper: secrets.Pepper,
    expires_at: datetime | None = None,
    limits: KeyLimits | None = None,
    actor: str | None = None,
    notify: UUID | None = None,
) -> CreatedApiKey:
    """Create a key of an account, within its plan's number of keys; mail the owners of account `notify` about it.

    Raises 400 for a scope that does not exist or cannot be granted, and for a domain or stream that the account does
    not have; 403 beyond the plan's number.
    """
    title = checked_line(name, "name", rules.MAX_NAME)
    wanted = rules.checked_scopes(scopes)
    asked = limits or KeyLimits()
    networks = None if asked.networks is None else rules.checked_networks(asked.networks)
    origins = None if asked.allowed_origins is None else rules.checked_origins(asked.allowed_origins, wanted)
    agent = (None, None) if asked.agent is None else checked_policy(asked.agent, wanted).columns
    names = None if asked.domains is None else _names(asked.domains)
    slugs = None if asked.streams is None else sorted(set(asked.streams))
    fresh = rules.new_key()
    async with pool.acquire() as connection, connection.transaction():
        await _check_room(connection, account)
        await _check_places(connection, account, names or (), slugs or ())
        digest, print_ = secrets.digest(pepper, fresh.secret), pepper.fingerprint
        key = await new_id(connection)
        made = await store.INSERT.records(
            connection, key, fresh.key_id, account, title, digest, wanted, expires_at, print_
        )
        limited = (names, slugs, networks, origins, *agent)
        row = KeyListRow(key, fresh.key_id, title, wanted, made[0]["created_at"], expires_at, None, None, *limited)
        if asked != KeyLimits():
            await store.LIMIT.execute(connection, key, *limited)
        await record_event(connection, account, AccountEvent.API_KEY_CREATED, created_detail(row), actor=actor)
        if notify is not None:
            await notify_owners(connection, notify, account, row)
        await caches.bump(connection, "keys")
    return CreatedApiKey(fresh.token, row)


async def revoke_key(pool: asyncpg.Pool, account: UUID, key: UUID, *, actor: str) -> None:
    """Revoke a key of the account or of a sub-account of it; its record stays. Idempotent.

    Raises 404 for any other key.
    """
    async with pool.acquire() as connection, connection.transaction():
        found = await store.HOLDER.records(connection, key, account)
        if not found:
            raise not_found("API key")
        holder: UUID = found[0]["account_id"]
        await locked_caps(connection, holder)
        await revoke(connection, holder, key, actor=actor)
    caches.clear_here("keys")


async def revoke(connection: Conn, account: UUID, key: UUID, *, actor: str) -> None:
    """Revoke a key of the account, record it, and make every process reload its keys. Idempotent.

    The caller has locked the head of the account.
    """
    revoked = await store.REVOKE.records(connection, account, key)
    if revoked:
        detail = {"id": ids.format_id(ids.Kind.API_KEY, key), "name": revoked[0]["name"]}
        await record_event(connection, account, AccountEvent.API_KEY_REVOKED, detail, actor=actor)
        await caches.bump(connection, "keys")


async def sub_account(source: Source, parent: UUID, child: UUID) -> AccountRow:
    """Return a sub-account of `parent`; raises 404 for any other account."""
    row = await accounts.READ.first(source, child)
    if row is None or row.parent_id != parent:
        raise not_found("sub-account")
    return row


async def _check_room(connection: Conn, account: UUID) -> None:
    limit = (await locked_caps(connection, account)).api_keys
    used = await store.count_live(connection, account)
    if limit is not None and used >= limit:
        raise limit_reached("api_keys", "API keys", limit, used)


def _names(texts: Iterable[str]) -> list[str]:
    found = set()
    for text in texts:
        try:
            found.add(domain_name(text.strip()))
        except BadAddress as error:
            raise invalid("domains", f"{text[:100]!r} is not a valid domain: {error}") from None
    return sorted(found)


async def _check_places(connection: Conn, account: UUID, names: Sequence[str], slugs: Sequence[str]) -> None:
    """Refuse restrictions to unknown domains or streams: a misspelt name would make a key that cannot send."""
    if not names and not slugs:
        return
    (held,) = await store.PLACES.records(connection, account)
    for name in names:
        if name not in held["domains"]:
            raise invalid("domains", f"{name} isn't a domain of your account. Add it first.")
    for slug in slugs:
        if slug not in held["streams"]:
            raise invalid("streams", f"Your account has no stream named {slug!r}. Create it with POST /v1/streams.")


def created_detail(row: KeyListRow) -> dict[str, object]:
    """Return the event's detail: the key's permissions, not its secret."""
    detail: dict[str, object] = {
        "id": ids.format_id(ids.Kind.API_KEY, row.id), "name": row.name, "scopes": row.scopes
    }  # fmt: skip
    if row.expires_at is not None:
        detail["expires_at"] = clock.iso(row.expires_at)
    limits = {
        name: getattr(row, name)
        for name in ("domains", "streams", "networks", "allowed_origins", "agent_recipients", "agent_approval")
    }
    return detail | {name: value for name, value in limits.items() if value is not None}


async def notify_owners(connection: Conn, notify: UUID, account: UUID, row: KeyListRow) -> None:
    """Mail the owners about a new key, since an intruder in an administrator's session would create one first."""
    held = await accounts.READ.first(connection, account)
    at = clock.now()
    for owner in await people.OWNERS.fetch(connection, notify):
        await enqueue(
            connection,
            SystemMailKind.API_KEY_CREATED,
            owner.email,
            at=at,
            account_name="" if held is None else held.name,
            key_name=row.name,
            hint=rules.hint(row.key_id),
        )
