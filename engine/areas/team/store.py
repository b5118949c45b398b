"""Rows of members and invitations; whoever changes one holds the lock on the account's head as well."""

from datetime import datetime
from uuid import UUID

from engine.areas.team.types import InviteRow, OpenInvite, TeamMemberRow
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__)

MEMBERS = _SQL.rows("list_members", TeamMemberRow)
MEMBER = _SQL.rows("read_member", TeamMemberRow)
_LOCK_PERSON = _SQL.command("lock_person")
_LOCK_MEMBER = _SQL.command("lock_member")
_LOCK_SESSIONS = _SQL.command("lock_sessions")
WITH_ADDRESS = _SQL.command("member_with_address")
ADD_MEMBER = _SQL.command("add_member")
SET_ROLE = _SQL.command("set_role")
REMOVE_MEMBER = _SQL.command("remove_member")
INVITES = _SQL.rows("list_invites", InviteRow)
OPEN_INVITE = _SQL.rows("open_invite", OpenInvite)
INSERT_INVITE = _SQL.command("insert_invite")
TAKE_INVITE = _SQL.command("take_invite")
REMOVE_INVITE = _SQL.command("remove_invite")
REPLACE_INVITE = _SQL.command("replace_invite")
FORGET_INVITES = _SQL.command("forget_invites")
_OWNERS = _SQL.command("count_owners")
_SEATS = _SQL.command("count_seats")


async def seats_used(connection: Conn, account: UUID, at: datetime) -> tuple[int, int]:
    """How many people are on the account, and how many invitations to it are pending."""
    row = (await _SEATS.records(connection, account, at))[0]
    return int(row["members"]), int(row["invites"])


async def owners(connection: Conn, account: UUID) -> int:
    """How many people own the account."""
    return int((await _OWNERS.records(connection, account))[0]["owners"])


async def hold(connection: Conn, account: UUID, user: UUID) -> None:
    """Keep a member and their sessions as they are until the transaction ends. The person comes first and the account's
    head after all of them: in this order whoever signs in or out takes them."""
    await _LOCK_PERSON.execute(connection, user)
    await _LOCK_MEMBER.execute(connection, account, user)
    await _LOCK_SESSIONS.execute(connection, account, user)
