"""Transfer an account from its owner to another member: both roles change in one transaction, and both get a mail."""

from uuid import UUID

from msgspec import Struct

from engine.base import clock, ids
from engine.base.events import AccountEvent
from engine.base.roles import Role
from engine.ledger.events import record_event
from engine.ledger.plan_limits import locked_caps
from engine.people.open_session import NewSession, renew_session
from engine.people.second_factor import service as second_factor
from engine.people.services import PeopleServices
from engine.people.sessions.session_auth import Person
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.people.team import rules, store
from engine.people.team.invitations import acting_role, read_member
from engine.people.team.service import end_invitations
from engine.people.team.types import TeamMemberRow
from engine.store.queries import Conn


class Transferred(Struct, frozen=True):
    """The new owner and the former one after a transfer, and the caller's session with its new secret."""

    owner: TeamMemberRow
    former: TeamMemberRow
    session: NewSession


async def transfer_ownership(services: PeopleServices, person: Person, user: UUID, password: str | None) -> Transferred:
    """Make a member the owner in the caller's place, who becomes an admin. Other owners keep their role.

    Raises the errors of `second_factor.confirm` for an old sign-in, 404 for a person who is not on the account, 409 for
    an owner.
    """
    await second_factor.confirm(services, person, password)
    account = person.account_id
    async with services.pool.acquire() as connection, connection.transaction():
        for one in sorted({person.user_id, user}):  # in one order, to avoid deadlocks
            await store.hold(connection, account, one)
        await locked_caps(connection, account)
        rules.check_transfer(await acting_role(connection, person))
        caller = await read_member(connection, account, person.user_id)
        member = await read_member(connection, account, user)
        rules.check_new_owner(Role(member.role))
        await store.SET_ROLE.execute(connection, account, user, Role.OWNER.value)
        await store.SET_ROLE.execute(connection, account, person.user_id, Role.ADMIN.value)
        await end_invitations(
            connection, account, person.user_id, Role.ADMIN, actor=ids.format_id(ids.Kind.USER, person.user_id)
        )
        await _tell(connection, person, caller, member)
        session = await renew_session(connection, services.settings.pepper, person.session_id, account)
        owner = await read_member(connection, account, user)
        former = await read_member(connection, account, person.user_id)
    return Transferred(owner, former, session)


async def _tell(connection: Conn, person: Person, former: TeamMemberRow, member: TeamMemberRow) -> None:
    """Record the transfer, and mail both."""
    caller = ids.format_id(ids.Kind.USER, person.user_id)
    detail = {"from": caller, "to": ids.format_id(ids.Kind.USER, member.user_id), "role_before": member.role}
    await record_event(connection, person.account_id, AccountEvent.ACCOUNT_OWNERSHIP_TRANSFERRED, detail, actor=caller)
    for address in (former.email, member.email):
        await enqueue(
            connection, SystemMailKind.OWNERSHIP_TRANSFERRED, address, at=clock.now(),
            account_name=person.row.account_name, former=former.name or former.email, owner=member.name or member.email,
        )  # fmt: skip
