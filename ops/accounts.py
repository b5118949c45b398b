"""Implementation of `ops account list|show|suspend|resume`."""

from typing import Any
from uuid import UUID

import asyncpg

from engine.areas.account import store as accounts
from engine.areas.account.store import AccountRow
from engine.areas.account_deletion import store as closing
from engine.areas.sub_accounts import store as sub_accounts
from engine.base import clock, ids
from engine.flows.accounts import suspend as suspending
from engine.flows.accounts.suspend import ActiveCause, Cause

MAX_SUB_ACCOUNTS = 1_000  # shown


async def listed(pool: asyncpg.Pool, *, limit: int) -> list[dict[str, Any]]:
    """Return the newest accounts, newest first."""
    return [_line(row) for row in await accounts.LIST.fetch(pool, limit)]


async def shown(pool: asyncpg.Pool, *, account: str) -> dict[str, Any]:
    """Return one account's status, suspensions, deletion date and sub-accounts, or the remains of an erased one.

    Raises ValueError if there is no such account.
    """
    account_id = ids.parse_id(ids.Kind.ACCOUNT, account)
    row = await accounts.READ.first(pool, account_id)
    if row is None:
        return await _tombstone(pool, account_id)
    deletion = await closing.READ.first(pool, account_id)
    causes = await suspending.causes(pool, account_id)
    below = await sub_accounts.LIST.fetch(pool, account_id, None, MAX_SUB_ACCOUNTS)
    return _line(row) | {
        "suspensions": [_cause(one) for one in causes],
        "deletionScheduledFor": None if deletion is None else clock.iso(deletion.due_at),
        "subAccounts": [
            {"id": ids.format_id(ids.Kind.ACCOUNT, one.id), "name": one.name, "status": one.status} for one in below
        ],
    }


async def suspend(pool: asyncpg.Pool, *, account: str, reason: str) -> dict[str, Any]:
    """Suspend an account and its sub-accounts; the members of the account can read `reason`."""
    account_id = ids.parse_id(ids.Kind.ACCOUNT, account)
    await suspending.suspend(pool, account_id, Cause.OPERATOR, reason, actor="operator")
    return await shown(pool, account=account)


async def resume(pool: asyncpg.Pool, *, account: str) -> dict[str, Any]:
    """End the suspensions by the automatic rule and by the operator; earlier bounces and complaints no longer count.

    The result lists remaining suspensions: by the parent's members, or because the parent is suspended.
    """
    account_id = ids.parse_id(ids.Kind.ACCOUNT, account)
    await suspending.resume(pool, account_id, [Cause.RATES, Cause.OPERATOR], actor="operator")
    return await shown(pool, account=account)


async def _tombstone(pool: asyncpg.Pool, account: UUID) -> dict[str, Any]:
    left = await closing.TOMBSTONE.first(pool, account)
    if left is None:
        raise ValueError(f"There is no account {ids.format_id(ids.Kind.ACCOUNT, account)}. See `ops account list`.")
    return {
        "accountId": ids.format_id(ids.Kind.ACCOUNT, account),
        "status": "erased",
        "openedAt": clock.iso(left.opened_at),
        "requestedAt": clock.iso(left.requested_at),
        "erasedAt": clock.iso(left.erased_at),
        "events": left.seq,
        "lastHash": left.hash.hex(),
    }


def _line(row: AccountRow) -> dict[str, Any]:
    return {
        "accountId": ids.format_id(ids.Kind.ACCOUNT, row.id),
        "name": row.name,
        "plan": row.plan,
        "status": row.status,
        "parentId": None if row.parent_id is None else ids.format_id(ids.Kind.ACCOUNT, row.parent_id),
        "createdAt": clock.iso(row.created_at),
    }


def _cause(one: ActiveCause) -> dict[str, Any]:
    return {"cause": one.cause, "reason": one.reason, "since": clock.iso(one.created_at)}
