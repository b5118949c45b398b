"""Read and write members and invitations; writers must hold the lock on the account head."""

from datetime import datetime
from uuid import UUID

from engine.people.team.types import InviteRow, OpenInvite, TeamMemberRow
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__)

MEMBERS = _SQL.rows("list_members", TeamMemberRow)
MEMBER = _SQL.rows("read_member", TeamMemberRow)
_LOCK_PERSON = _SQL.command("lock_person")
_LOCK_MEMBER = _SQL.command("lock_member")
_LOCK_SESSIONS = _SQL.command("lock_sessions")
WITH_ADDRESS = _SQL.command("member_with_address")
ADD_MEMBER = _SQL.command("add_member")
BELOW = _SQL.command("memberships_below")
SET_ROLE = _SQL.command("set_role")
REMOVE_MEMBER = _SQL.command("remove_member")
INVITES = _SQL.rows("list_invites", InviteRow)
OPEN_INVITE = _SQL.rows("open_invite", OpenInvite)
READ_INVITE = _SQL.rows("read_invite", InviteRow)
RENEW_INVITE = _SQL.command("renew_invite")
INSERT_INVITE = _SQL.command("insert_invite")
TAKE_INVITE = _SQL.command("take_invite")
REMOVE_INVITE = _SQL.command("remove_invite")
REPLACE_INVITE = _SQL.command("replace_invite")
END_INVITES_OF = _SQL.command("end_invites_of")
FORGET_INVITES = _SQL.command("forget_invites")
_OWNERS = _SQL.command("count_owners")
_SEATS = _SQL.command("count_seats")


async def seats_used(connection: Conn, account: UUID, at: datetime) -> tuple[int, int]:
    """Return the number of members and the number of pending invitations."""
    row = (await _SEATS.records(connection, account, at))[0]
    return int(row["members"]), int(row["invites"])


async def owners(connection: Conn, account: UUID) -> int:
    """Count the owners of the account."""
    return int((await _OWNERS.records(connection, account))[0]["owners"])


async def hold(connection: Conn, account: UUID, user: UUID) -> None:
    """Lock a member and their sessions until the transaction ends.

    Locks the person first; the account head must be locked last. Sign-in and sign-out use the same order.
    """
    await _LOCK_PERSON.execute(connection, user)
    await _LOCK_MEMBER.execute(connection, account, user)
    await _LOCK_SESSIONS.execute(connection, account, user)
