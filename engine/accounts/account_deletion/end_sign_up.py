"""End a sign-up that a stranger made with somebody's address, by "this wasn't me" in the confirmation mail."""

from uuid import UUID

from engine.accounts import suspend
from engine.accounts.account_deletion.close_account import schedule_now
from engine.base import clock, ids
from engine.base.roles import Role
from engine.people.log_in import slow_down
from engine.people.people import store as people
from engine.people.services import PeopleServices
from engine.people.sessions.rules import Device
from engine.people.team import store as team
from engine.people.team.service import remove_member
from engine.people.tokens.rules import Purpose, spent
from engine.people.unproven_access import drop_all, is_unproven
from engine.people.verify_email import used_up
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "end_sign_up.sql")
_DELETE_PERSON = _SQL.command("delete_person")


async def end_sign_up(services: PeopleServices, token: str, device: Device) -> None:
    """Remove all access of the token's person, and erase the accounts that only they own.

    Raises 400 for an invalid token, also once the same person has proven both mailbox and password; 429 after too many
    tries. Erasing an account frees the address; without one, the person is deleted here.
    """
    await slow_down(services.limits, "end-sign-up", None, device, services.settings)
    async with services.pool.acquire() as connection, connection.transaction():
        person, address = await used_up(connection, token, Purpose.END_SIGN_UP, clock.now())
        if address not in (None, person.email) or not is_unproven(person):
            raise spent()
        await drop_all(connection, person.id)
        owned = [await _leave(connection, person.id, one) for one in await _accounts(connection, person.id)]
        if not any(owned):
            await _DELETE_PERSON.execute(connection, person.id)


async def _accounts(connection: Conn, user: UUID) -> list[UUID]:
    """Return the person's accounts in the order of locks."""
    return sorted(one.account_id for one in await people.MEMBERSHIPS.fetch(connection, user))


async def _leave(connection: Conn, user: UUID, account: UUID) -> bool:
    """Schedule the erasure of an account that only this person owns, else remove them; return True if scheduled."""
    (one,) = [one for one in await suspend.locked_family(connection, account) if one.id == account]
    member = await team.MEMBER.first(connection, account, user)
    public = ids.format_id(ids.Kind.USER, user)
    if member is not None and member.role == Role.OWNER.value and await team.owners(connection, account) == 1:
        await schedule_now(connection, one, at=clock.now(), actor=public)
        return True
    if member is not None:
        await remove_member(connection, account, user, member.role, actor=public)
    return False
