"""Accounts as the operator sees and changes them: search, show, suspend and resume."""

from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.accounts import suspend as suspending
from engine.accounts.account_deletion import store as closing
from engine.accounts.sub_accounts import store as sub_accounts
from engine.accounts.suspend import Cause
from engine.base import clock, ids
from engine.base.errors import existing
from engine.ledger.platform_log import OPERATOR
from engine.people.account import agreed_caps
from engine.people.account import store as accounts
from engine.people.account.agreed_caps import AgreedCaps
from engine.people.account.store import AccountRow
from engine.people.people import store as people
from engine.store.queries import Queries

MAX_SUB_ACCOUNTS = 1_000  # shown

_SQL = Queries.beside(__file__, "account_admin.sql")
_NEWEST = _SQL.rows("newest_accounts", AccountRow)
_IN_STATUS = _SQL.rows("accounts_in_status", AccountRow)
_OF_PERSON = _SQL.rows("accounts_of_person", AccountRow)
_NAMED_LIKE = _SQL.rows("accounts_named_like", AccountRow)


class ListedAccount(Struct, frozen=True, rename="camel"):
    """A line of the list of accounts; the parent of a sub-account is `parentId`."""

    id: str
    name: str
    plan: str
    status: str
    parent_id: str | None
    created_at: str


class ListedAccountPage(Struct, frozen=True, rename="camel"):
    """Accounts, newest first. `nextCursor` is null on the last page."""

    data: list[ListedAccount]
    next_cursor: str | None


class SuspensionCause(Struct, frozen=True):
    """A cause for which an account is suspended: `rates`, `operator`, `parent` or `inherited`, with the reason."""

    cause: str
    reason: str
    since: str


class ListedSubAccount(Struct, frozen=True):
    """A sub-account of an account."""

    id: str
    name: str
    status: str


class AccountErasure(Struct, frozen=True, rename="camel"):
    """What remains of an erased account: the end of its log, with the number of its events."""

    requested_at: str
    erased_at: str
    events: int
    last_hash: str


class OperatorAccount(Struct, frozen=True, rename="camel", kw_only=True):
    """An account with its owners, its suspensions and its agreed limits.

    An erased account has `erasure`, and no name and plan. A sub-account has the agreed limits of its parent.
    """

    id: str
    name: str | None
    plan: str | None
    status: str
    parent_id: str | None = None
    created_at: str
    owners: list[str] = []
    suspensions: list[SuspensionCause] = []
    deletion_scheduled_for: str | None = None
    agreed_caps: AgreedCaps | None = None
    sub_accounts: list[ListedSubAccount] = []
    erasure: AccountErasure | None = None


async def search(
    pool: asyncpg.Pool, *, text: str | None, status: str | None, before: UUID | None, limit: int
) -> ListedAccountPage:
    """Return a page of accounts: all, those in a status, or those that `text` names (then `status` is not regarded).

    `text` is an id, the address of a member, a domain, or the beginning of a name.
    """
    rows = await _found(pool, text, status, before, limit + 1)
    data = [listed(row) for row in rows[:limit]]
    return ListedAccountPage(data, data[-1].id if len(rows) > limit else None)


async def show(pool: asyncpg.Pool, account: UUID) -> OperatorAccount:
    """Return one account, or the remains of an erased one; raises 404 if there is none."""
    row = await accounts.READ.first(pool, account)
    if row is None:
        return await _erased(pool, account)
    deletion = await closing.READ.first(pool, account)
    line = listed(row)
    return OperatorAccount(
        id=line.id,
        name=line.name,
        plan=line.plan,
        status=line.status,
        parent_id=line.parent_id,
        created_at=line.created_at,
        owners=[one.email for one in await people.OWNERS.fetch(pool, account)],
        suspensions=[
            SuspensionCause(one.cause, one.reason, clock.iso(one.created_at))
            for one in await suspending.causes(pool, account)
        ],
        deletion_scheduled_for=None if deletion is None else clock.iso(deletion.due_at),
        agreed_caps=agreed_caps.shown(await agreed_caps.read(pool, account)),
        sub_accounts=[
            ListedSubAccount(ids.format_id(ids.Kind.ACCOUNT, one.id), one.name, one.status)
            for one in await sub_accounts.LIST.fetch(pool, account, None, MAX_SUB_ACCOUNTS)
        ],
    )


async def suspend(pool: asyncpg.Pool, account: UUID, *, reason: str, actor: str = OPERATOR) -> OperatorAccount:
    """Suspend an account and its sub-accounts; the members of the account can read `reason`."""
    await suspending.suspend(pool, account, Cause.OPERATOR, reason, actor=actor)
    return await show(pool, account)


async def resume(pool: asyncpg.Pool, account: UUID, *, actor: str = OPERATOR) -> OperatorAccount:
    """End the suspensions by the automatic rule and by the operator; earlier bounces and complaints no longer count.

    The result lists remaining suspensions: by the parent's members, or because the parent is suspended.
    """
    await suspending.resume(pool, account, [Cause.RATES, Cause.OPERATOR], actor=actor)
    return await show(pool, account)


def listed(row: AccountRow) -> ListedAccount:
    """Return the line of an account."""
    return ListedAccount(
        id=ids.format_id(ids.Kind.ACCOUNT, row.id),
        name=row.name,
        plan=row.plan,
        status=row.status,
        parent_id=None if row.parent_id is None else ids.format_id(ids.Kind.ACCOUNT, row.parent_id),
        created_at=clock.iso(row.created_at),
    )


async def _found(
    pool: asyncpg.Pool, text: str | None, status: str | None, before: UUID | None, limit: int
) -> list[AccountRow]:
    wanted = None if text is None else text.strip()
    if wanted:
        try:
            row = await accounts.READ.first(pool, ids.parse_id(ids.Kind.ACCOUNT, wanted))
        except ids.WrongId:
            query = _OF_PERSON if "@" in wanted else _NAMED_LIKE
            return await query.fetch(pool, before, limit, wanted)
        return [] if row is None or before is not None else [row]
    if status is not None:
        return await _IN_STATUS.fetch(pool, before, limit, status)
    return await _NEWEST.fetch(pool, before, limit)


async def _erased(pool: asyncpg.Pool, account: UUID) -> OperatorAccount:
    left = existing(await closing.TOMBSTONE.first(pool, account), "account")
    return OperatorAccount(
        id=ids.format_id(ids.Kind.ACCOUNT, account),
        name=None,
        plan=None,
        status="erased",
        created_at=clock.iso(left.opened_at),
        erasure=AccountErasure(clock.iso(left.requested_at), clock.iso(left.erased_at), left.seq, left.hash.hex()),
    )
