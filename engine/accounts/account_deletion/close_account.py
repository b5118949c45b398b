"""Schedule the deletion of an account, and cancel it; until it is due, the account works as before.

Each is one transaction with its event and a mail to every owner.
"""

from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from engine.accounts import suspend
from engine.accounts.account_deletion import store
from engine.accounts.account_deletion.store import GRACE, DeletionRow
from engine.accounts.suspend import FamilyMember
from engine.base import clock
from engine.base.errors import ErrorType, Refusal, invalid, not_found
from engine.base.events import AccountEvent
from engine.people.log_in import slow_down, wrong
from engine.people.people import store as people
from engine.people.services import PeopleServices
from engine.people.sessions.rules import Device
from engine.people.sessions.session_auth import Person
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.store.queries import Conn

RECENT = timedelta(minutes=10)  # after a sign-in, no password is asked for


async def prove(services: PeopleServices, person: Person, password: str | None, device: Device) -> None:
    """Check that the person of the session is present: by their password, or by a sign-in within RECENT.

    Raises 401 `invalid_credentials` for a wrong password, 400 if it is missing, 429 after too many tries.
    """
    if password is None:
        if clock.now() - person.row.created_at <= RECENT:
            return
        raise invalid("password", "Give your current password, or sign in again and repeat this within ten minutes.")
    await slow_down(services.limits, "password", person.row.email, device, services.settings)
    row = await people.READ.first(services.pool, person.user_id)
    if not await services.passwords.matches(None if row is None else row.password_hash, password, known=True):
        raise wrong()


async def schedule(pool: asyncpg.Pool, account: UUID, *, actor: str) -> DeletionRow:
    """Schedule the erasure of an account 14 days from now; an existing request keeps its date.

    Raises 409 for the platform account.
    """
    async with pool.acquire() as connection, connection.transaction():
        (one,) = [one for one in await suspend.locked_family(connection, account) if one.id == account]
        await schedule_within(connection, one, at=clock.now(), actor=actor)
        found = await store.READ.first(connection, account)
        assert found is not None
    return found


async def cancel(pool: asyncpg.Pool, account: UUID, *, actor: str) -> None:
    """Cancel the deletion of an account; raises 404 if none is scheduled, 409 once the erasure has begun."""
    async with pool.acquire() as connection, connection.transaction():
        (one,) = [one for one in await suspend.locked_family(connection, account) if one.id == account]
        if not await cancel_within(connection, one, at=clock.now(), actor=actor):
            if await store.READ.first(connection, account) is None:
                raise not_found("deletion request")
            raise Refusal(ErrorType.INVALID_STATE, "The erasure has begun and cannot be canceled.", state="erasing")


# -- within the caller's transaction, which has locked the heads of the account's family ----------------------


async def schedule_within(connection: Conn, one: FamilyMember, *, at: datetime, actor: str) -> None:
    """Schedule the deletion unless it is scheduled; record it in both logs and mail the owners."""
    await _refuse_platform(connection, one)
    due = at + GRACE
    if not await store.SCHEDULE.records(connection, one.id, at, due):
        return
    when = clock.iso(due)
    await suspend.tell(connection, one, AccountEvent.ACCOUNT_DELETION_SCHEDULED, {"scheduled_for": when}, actor)
    for address in await suspend.owners(connection, one.id):
        await enqueue(
            connection, SystemMailKind.DELETION_SCHEDULED, address, at=at, account_name=one.name, scheduled_for=when
        )


async def schedule_now(connection: Conn, one: FamilyMember, *, at: datetime, actor: str) -> None:
    """Let the erasure begin at once, whatever was scheduled before; record it in both logs."""
    await _refuse_platform(connection, one)
    await store.CANCEL.records(connection, one.id)
    if await store.SCHEDULE.records(connection, one.id, at, at):
        detail: dict[str, object] = {"scheduled_for": clock.iso(at)}
        await suspend.tell(connection, one, AccountEvent.ACCOUNT_DELETION_SCHEDULED, detail, actor)


async def _refuse_platform(connection: Conn, one: FamilyMember) -> None:
    if await suspend.is_platform(connection, one.id):
        raise Refusal(
            ErrorType.INVALID_STATE,
            "This is the platform account, which sends system mail; it cannot be deleted.",
            state="permanent",
        )


async def cancel_within(connection: Conn, one: FamilyMember, *, at: datetime, actor: str) -> bool:
    """Cancel a scheduled deletion; return False if there is none that can be canceled."""
    if not await store.CANCEL.records(connection, one.id):
        return False
    await suspend.tell(connection, one, AccountEvent.ACCOUNT_DELETION_CANCELED, {}, actor)
    for address in await suspend.owners(connection, one.id):
        await enqueue(connection, SystemMailKind.DELETION_CANCELED, address, at=at, account_name=one.name)
    return True
