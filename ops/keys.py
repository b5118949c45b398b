"""Implementation of `ops key list` and `ops key revoke`."""

from typing import Any

import asyncpg

from engine.base import clock, ids
from engine.base.errors import not_found
from engine.people.account import store as accounts
from engine.people.api_keys import rules, store
from engine.people.api_keys.service import revoke_key
from engine.people.api_keys.store import KeyListRow

MAX_SHOWN = 1_000


async def listed(pool: asyncpg.Pool, *, account: str) -> list[dict[str, Any]]:
    """Return an account's newest keys, newest first, revoked ones included; raises Refusal (404) for no account."""
    account_id = ids.parse_id(ids.Kind.ACCOUNT, account)
    if await accounts.READ.first(pool, account_id) is None:
        raise not_found("account")
    return [_line(row) for row in await store.LIST.fetch(pool, account_id, None, MAX_SHOWN)]


async def revoked(pool: asyncpg.Pool, *, account: str, key: str) -> dict[str, Any]:
    """Revoke a key of the account or of its sub-accounts, in all processes within a second. Idempotent.

    Raises Refusal (404) for any other key.
    """
    account_id, key_id = ids.parse_id(ids.Kind.ACCOUNT, account), ids.parse_id(ids.Kind.API_KEY, key)
    await revoke_key(pool, account_id, key_id, actor="operator")
    return {"id": key, "account": account, "revoked": True}


def _line(row: KeyListRow) -> dict[str, Any]:
    at = {"createdAt": row.created_at, "lastUsedAt": row.last_used_at, "expiresAt": row.expires_at,
          "revokedAt": row.revoked_at}  # fmt: skip
    shown = {name: None if one is None else clock.iso(one) for name, one in at.items()}
    return {"id": ids.format_id(ids.Kind.API_KEY, row.id), "name": row.name, "hint": rules.hint(row.key_id)} | shown
