"""Rename and rotate API keys: one transaction each, with its event and its cache stamp."""

from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids, secrets
from engine.base.errors import ErrorType, Refusal, existing, not_found
from engine.base.events import AccountEvent
from engine.base.text import checked_line
from engine.ledger.events import record_event
from engine.ledger.plan_limits import locked_caps
from engine.people.api_keys import rules, store
from engine.people.api_keys.service import CreatedApiKey, created_detail, notify_owners
from engine.people.api_keys.store import KeyListRow
from engine.store import caches
from engine.store.database_clock import new_id
from engine.store.queries import Conn


class RotatedApiKey(Struct, frozen=True):
    """A rotated key and its successor."""

    old: KeyListRow
    new: CreatedApiKey


async def rename_key(pool: asyncpg.Pool, account: UUID, key: UUID, name: str, *, actor: str) -> KeyListRow:
    """Rename a key of the account or of a sub-account of it, revoked ones too. The same name changes nothing.

    Raises 404 for any other key.
    """
    title = checked_line(name, "name", rules.MAX_NAME)
    async with pool.acquire() as connection, connection.transaction():
        holder, row = await _locked(connection, account, key)
        if row.name == title:
            return row
        (renamed,) = await store.RENAME.fetch(connection, holder, key, title)
        detail = {"id": ids.format_id(ids.Kind.API_KEY, key), "name": title, "before": row.name}
        await record_event(connection, holder, AccountEvent.API_KEY_RENAMED, detail, actor=actor)
    return renamed


async def rotate_key(
    pool: asyncpg.Pool, account: UUID, key: UUID, *, overlap_hours: int, pepper: secrets.Pepper, actor: str
) -> RotatedApiKey:
    """Create the successor of a key, with its name, scopes, limits and expiry; the old one expires after the overlap.

    The plan's number of keys does not stop it: a key has one successor, which is rotated only after the old one has
    ended. Raises 404 for a key that is not the account's or a sub-account's, 409 for one that can't be rotated now.
    """
    at = clock.now()
    async with pool.acquire() as connection, connection.transaction():
        holder, row = await _locked(connection, account, key)
        await _check_rotatable(connection, holder, row, at)
        made = await _insert_successor(connection, holder, row, pepper)
        (old,) = await store.REPLACE.fetch(
            connection, holder, key, made.row.id, rules.end_of_overlap(row.expires_at, at, overlap_hours)
        )
        await _record(connection, holder, old, made, actor)
        await notify_owners(connection, account, holder, made.row)
        await caches.bump(connection, "keys")
    caches.clear_here("keys")
    return RotatedApiKey(old, made)


async def _locked(connection: Conn, account: UUID, key: UUID) -> tuple[UUID, KeyListRow]:
    """Return the account that holds the key, locked, and the key."""
    found = await store.HOLDER.records(connection, key, account)
    if not found:
        raise not_found("API key")
    holder: UUID = found[0]["account_id"]
    await locked_caps(connection, holder)
    row = existing(await store.LOCK.first(connection, holder, key), "API key")
    return holder, row


async def _check_rotatable(connection: Conn, holder: UUID, row: KeyListRow, at: datetime) -> None:
    if row.revoked_at is not None:
        raise _refused("The key is revoked. Create a new one with POST /v1/api-keys.", "revoked")
    if row.expires_at is not None and row.expires_at <= at:
        raise _refused("The key has expired. Create a new one with POST /v1/api-keys.", "expired")
    if row.replaced_by is not None:
        raise _refused("The key was rotated before. Rotate its successor instead.", "rotated")
    if await store.LIVE_PREDECESSOR.records(connection, holder, row.id, at):
        raise _refused("The key that this one replaces is still valid. Revoke it or wait until it expires.", "active")


def _refused(message: str, status: str) -> Refusal:
    return Refusal(ErrorType.INVALID_STATE, message, state=status)


async def _insert_successor(connection: Conn, holder: UUID, row: KeyListRow, pepper: secrets.Pepper) -> CreatedApiKey:
    fresh = rules.new_key()
    digest, key = secrets.digest(pepper, fresh.secret), await new_id(connection)
    made = await store.INSERT.records(
        connection, key, fresh.key_id, holder, row.name, digest, row.scopes, row.expires_at, pepper.fingerprint
    )
    limits = (
        row.domains, row.streams, row.networks, row.allowed_origins, row.agent_recipients, row.agent_approval
    )  # fmt: skip
    if any(one is not None for one in limits):
        await store.LIMIT.execute(connection, key, *limits)
    return CreatedApiKey(
        fresh.token,
        KeyListRow(key, fresh.key_id, row.name, row.scopes, made[0]["created_at"], row.expires_at, None, None, *limits),
    )


async def _record(connection: Conn, holder: UUID, old: KeyListRow, made: CreatedApiKey, actor: str) -> None:
    assert old.expires_at is not None
    rotated = {
        "id": ids.format_id(ids.Kind.API_KEY, old.id), "name": old.name, "replaced_by": made.public_id,
        "expires_at": clock.iso(old.expires_at),
    }  # fmt: skip
    await record_event(connection, holder, AccountEvent.API_KEY_CREATED, created_detail(made.row), actor=actor)
    await record_event(connection, holder, AccountEvent.API_KEY_ROTATED, rotated, actor=actor)
