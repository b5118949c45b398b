"""Implementation of `ops account list|show|suspend|resume`: print what `account_admin` shows and changes."""

from typing import Any

import asyncpg
import msgspec
from msgspec import Struct

from engine.accounts import account_admin
from engine.base import ids


async def listed(pool: asyncpg.Pool, *, limit: int, search: str | None = None) -> list[dict[str, Any]]:
    """Return the newest accounts, newest first, or the newest that `search` names."""
    found = await account_admin.search(pool, text=search, status=None, before=None, limit=limit)
    return [_plain(one) for one in found.data]


async def shown(pool: asyncpg.Pool, *, account: str) -> dict[str, Any]:
    """Return one account's status, owners, suspensions and sub-accounts, or the remains of an erased one.

    Raises Refusal (404) if there is no such account.
    """
    return _plain(await account_admin.show(pool, ids.parse_id(ids.Kind.ACCOUNT, account)))


async def suspend(pool: asyncpg.Pool, *, account: str, reason: str) -> dict[str, Any]:
    """Suspend an account and its sub-accounts; the members of the account can read `reason`."""
    return _plain(await account_admin.suspend(pool, ids.parse_id(ids.Kind.ACCOUNT, account), reason=reason))


async def resume(pool: asyncpg.Pool, *, account: str) -> dict[str, Any]:
    """End the suspensions by the automatic rule and by the operator; the result lists those that remain."""
    return _plain(await account_admin.resume(pool, ids.parse_id(ids.Kind.ACCOUNT, account)))


def _plain(found: Struct) -> dict[str, Any]:
    """Return the fields with the id as `accountId`; those that an erased account does not have are left out."""
    fields: dict[str, Any] = msgspec.to_builtins(found)
    named = {"accountId": fields.pop("id")} | fields
    erasure = named.pop("erasure", None)
    if erasure is None:
        return named
    left: dict[str, Any] = {"accountId": named["accountId"], "status": named["status"], "openedAt": named["createdAt"]}
    return left | dict(erasure)
