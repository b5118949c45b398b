"""Open, rename, limit, suspend and delete sub-accounts, for people of the parent account.

Each is one transaction with both heads locked, and with its event in both logs.
"""

from uuid import UUID

import asyncpg
from msgspec import UNSET, Struct, UnsetType, structs

from engine.accounts import suspend
from engine.accounts.account_deletion import close_account
from engine.accounts.sub_accounts import store
from engine.accounts.sub_accounts.store import SubAccountRow
from engine.accounts.suspend import Cause, FamilyMember
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, existing, not_found
from engine.base.events import AccountEvent
from engine.base.text import checked_line
from engine.ledger import heads
from engine.ledger.events import record_event
from engine.ledger.heads import AccountHead
from engine.ledger.plan_limits import limit_reached
from engine.store import caches
from engine.store.database_clock import new_id
from engine.store.queries import Conn

MAX_NAME = 120
PAUSED = "suspended by its parent account"


class SubAccountPatch(Struct, frozen=True, kw_only=True):
    """The requested changes of a sub-account; unset fields stay as they are."""

    name: str | UnsetType = UNSET
    status: str | UnsetType = UNSET  # `active` or `suspended`
    monthly_limit: int | UnsetType | None = UNSET  # None: only the parent's allowance limits it


async def open_sub_account(
    pool: asyncpg.Pool, parent: UUID, *, name: str, monthly_limit: int | None, actor: str
) -> SubAccountRow:
    """Create a sub-account with its log, head and transactional stream; raises 403 beyond the plan's number."""
    wanted = checked_line(name, "name", MAX_NAME)
    async with pool.acquire() as connection, connection.transaction():
        head = await _locked_parent(connection, parent)
        await _check_room(connection, head)
        child = await new_id(connection)
        await store.INSERT.execute(connection, child, wanted, parent, monthly_limit)
        above, below = ids.format_id(ids.Kind.ACCOUNT, parent), ids.format_id(ids.Kind.ACCOUNT, child)
        detail = {"name": wanted, "monthly_limit": monthly_limit}
        await record_event(
            connection,
            child,
            AccountEvent.ACCOUNT_CREATED,
            {**detail, "plan": head.plan, "parent": above},
            actor=actor,
        )
        await record_event(connection, parent, AccountEvent.SUB_ACCOUNT_CREATED, {"id": below, **detail}, actor=actor)
        return await _read(connection, parent, child)


async def change_sub_account(
    pool: asyncpg.Pool, parent: UUID, child: UUID, change: SubAccountPatch, *, actor: str
) -> SubAccountRow:
    """Rename, limit, suspend or resume a sub-account; `active` also cancels a scheduled deletion.

    Raises 404 if it is not a sub-account of the parent, 409 if it stays suspended for a cause that the parent cannot
    lift, 403 if the plan has no room for one whose deletion would be canceled.
    """
    at = clock.now()
    async with pool.acquire() as connection, connection.transaction():
        one = await _locked_child(connection, parent, child)
        row = await _read(connection, parent, child)
        await _change_fields(connection, one, row, change, actor)
        if change.status == "suspended":
            await suspend.lay(connection, child, Cause.PARENT, PAUSED, at=at, actor=actor)
        elif change.status == "active":
            if row.due_at is not None:
                await _check_room(connection, await _locked_parent(connection, parent))
                await close_account.cancel_within(connection, one, at=at, actor=actor)
            await suspend.lift(connection, child, [Cause.PARENT], at=at, actor=actor)
            _check_free(await suspend.causes(connection, child))
        changed = await _read(connection, parent, child)
    caches.clear_here("keys")
    return changed


async def delete_sub_account(pool: asyncpg.Pool, parent: UUID, child: UUID, *, actor: str) -> None:
    """Suspend a sub-account at once and schedule its erasure 14 days from now. Idempotent; raises 404 as above."""
    at = clock.now()
    async with pool.acquire() as connection, connection.transaction():
        one = await _locked_child(connection, parent, child)
        await close_account.schedule_within(connection, one, at=at, actor=actor)
        await suspend.lay(connection, child, Cause.PARENT, "deleted by its parent account", at=at, actor=actor)
    caches.clear_here("keys")


async def _change_fields(
    connection: Conn, one: FamilyMember, row: SubAccountRow, change: SubAccountPatch, actor: str
) -> None:
    name = row.name if change.name is UNSET else checked_line(change.name, "name", MAX_NAME)
    limit = row.monthly_cap if change.monthly_limit is UNSET else change.monthly_limit
    told: dict[str, object] = {}
    if name != row.name:
        told["name"] = name
    if limit != row.monthly_cap:
        told["monthly_limit"] = limit
    if told:
        await store.CHANGE.execute(connection, one.id, name, limit)
        await suspend.tell(connection, structs.replace(one, name=name), AccountEvent.ACCOUNT_UPDATED, told, actor)


async def _locked_parent(connection: Conn, parent: UUID) -> AccountHead:
    """Lock and return the parent's head, so that its sub-accounts are counted exactly; raises 403 unless it is
    active.
    """
    head = (await heads.lock(connection, [parent])).get(parent)
    if head is None or head.status == "closing":
        raise not_found("account")
    if head.status != "active":
        raise Refusal(
            ErrorType.ACCOUNT_SUSPENDED,
            "Your account is suspended, so its settings can't be changed. Ask the operator.",
        )
    if head.parent_id is not None:
        raise Refusal(ErrorType.FORBIDDEN, "A sub-account cannot have sub-accounts.")
    return head


async def _locked_child(connection: Conn, parent: UUID, child: UUID) -> FamilyMember:
    """Lock the heads of a sub-account and its parent and return the sub-account; raises 404 for any other account."""
    await _read(connection, parent, child)  # before locking: never lock an account of another tenant
    family = await suspend.locked_family(connection, child)
    return next(one for one in family if one.id == child)


async def _check_room(connection: Conn, parent: AccountHead) -> None:
    limit = parent.caps.sub_accounts
    used = await store.count(connection, parent.account_id)
    if limit is not None and used >= limit:
        raise limit_reached("sub_accounts", "sub-accounts", limit, used)


async def _read(connection: Conn, parent: UUID, child: UUID) -> SubAccountRow:
    return existing(await store.READ.first(connection, parent, child), "sub-account")


def _check_free(standing: list[suspend.ActiveCause]) -> None:
    if standing:
        raise Refusal(
            ErrorType.INVALID_STATE,
            f"This sub-account stays suspended: {standing[0].reason}. Ask the operator.",
            state="suspended",
        )
