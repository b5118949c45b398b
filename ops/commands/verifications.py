"""`ops verifications`: counts of one-time codes, and destinations that get none. Addresses are not stored."""

from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import click
from msgspec import Struct

from engine.base import clock, ids
from engine.store.queries import Queries
from ops.commands.base import account_filter, as_json, in_database, limit_option, record, reported, show_rows
from ops.commands.find_account import find_account

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
_limit = limit_option(50, most=10_000)


@click.group()
def verifications() -> None:
    """Show one-time codes: how many there are, and which destinations are locked. Addresses are not stored."""


@verifications.command("counts")
@account_filter
@_limit
@as_json
@reported
def verification_counts(*, account: str | None, limit: int, as_json: bool) -> None:
    """Count the verifications of each account by status, with the codes and address checks of this month."""
    found = in_database(counts, account=account, limit=limit)
    statuses = ["pending", "approved", "expired", "cancelled", "exhausted"]
    show_rows(found, ["account", *statuses, "codesThisMonth", "checksThisMonth", "locked"], as_json=as_json)


@verifications.command("locked")
@account_filter
@_limit
@as_json
@reported
def verification_locks(*, account: str | None, limit: int, as_json: bool) -> None:
    """List the destinations that get no codes now, and why; each is named by the beginning of its digest."""
    show_rows(
        in_database(locked, account=account, limit=limit),
        ["account", "destination", "why", "until", "codesInHour"],
        as_json=as_json,
    )


async def counts(pool: asyncpg.Pool, *, account: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the counts of one account, or of those with the most verifications (`account` None)."""
    owner = None if account is None else await find_account(pool, account)
    return [
        record(row, account_id=ids.Kind.ACCOUNT)
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
            "until": clock.iso_or_none(row.locked_until),
            "codesInHour": row.codes_in_hour,
        }
        for row in await _LOCKED.fetch(pool, owner, limit)
    ]
