"""Revoke API keys within the caller's transaction, for the flows that end an account's access."""

from uuid import UUID

from engine.areas.api_keys import store
from engine.base import ids
from engine.base.events import AccountEvent
from engine.ledger.events import record_event
from engine.store import caches
from engine.store.queries import Conn


async def revoke(connection: Conn, account: UUID, key: UUID, *, actor: str) -> None:
    """Revoke a key of the account, record it, and make every process reload its keys. Idempotent.

    The caller has locked the head of the account.
    """
    revoked = await store.REVOKE.records(connection, account, key)
    if revoked:
        detail = {"id": ids.format_id(ids.Kind.API_KEY, key), "name": revoked[0]["name"]}
        await record_event(connection, account, AccountEvent.API_KEY_REVOKED, detail, actor=actor)
        await caches.bump(connection, "keys")
