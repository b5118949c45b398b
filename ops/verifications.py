"""Verifications of any account, counted, and locked destinations: `ops verifications`. Addresses are not stored."""

from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.store.queries import Queries
from ops.stored_messages import find_account

_SQL = Queries.beside(__file__, "verifications.sql")


class VerificationCounts(Struct, frozen=True):
    """The verifications of an account that are kept, by status, and what it has used this month."""

    account_id: UUID
    account: str
    pending: int
    approved: int
    expired: int
    cancelled: int
    exhausted: int
    codes_this_month: int
    checks_this_month: int
    locked: int


class LockedDestination(Struct, frozen=True):
    """A destination that gets no codes, named by the beginning of its digest."""

    account_id: UUID
    account: str
    digest: str
    locked_until: datetime | None
    codes_in_hour: int


_COUNTS = _SQL.rows("verification_counts", VerificationCounts)
_LOCKED = _SQL.rows("locked_destinations", LockedDestination)


async def counts(pool: asyncpg.Pool, *, account: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the counts of one account, or of those with the most verifications (`account` None)."""
    owner = None if account is None else await find_account(pool, account)
    return [
        {
            "accountId": ids.format_id(ids.Kind.ACCOUNT, row.account_id),
            "account": row.account,
            "pending": row.pending,
            "approved": row.approved,
            "expired": row.expired,
            "cancelled": row.cancelled,
            "exhausted": row.exhausted,
            "codesThisMonth": row.codes_this_month,
            "checksThisMonth": row.checks_this_month,
            "locked": row.locked,
        }
        for row in await _COUNTS.fetch(pool, owner, clock.first_of_month(clock.now().date()), limit)
    ]


async def locked(pool: asyncpg.Pool, *, account: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the destinations that get no codes now, with the reason."""
    owner = None if account is None else await find_account(pool, account)
    return [
        {
            "accountId": ids.format_id(ids.Kind.ACCOUNT, row.account_id),
            "account": row.account,
            "destination": row.digest,
            "why": "three exhausted verifications" if row.locked_until is not None else "ten codes within an hour",
            "until": None if row.locked_until is None else clock.iso(row.locked_until),
            "codesInHour": row.codes_in_hour,
        }
        for row in await _LOCKED.fetch(pool, owner, limit)
    ]
