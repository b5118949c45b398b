"""`/v1/team`: the members of the account, invitations and roles."""

from api.areas.team.schemas import (
    Acceptance,
    Invite,
    Member,
    NewInvite,
    Owners,
    OwnershipTransfer,
    RoleChange,
    Seats,
    Team,
)
from api.http import auth
from api.http.cookies import no_session
from api.http.operation import Access, Area, Call, LimitedKeys, Operation
from api.http.paging import PageQuery
from api.http.session import renew_session
from engine.base import clock, ids
from engine.base.errors import ErrorType, invalid
from engine.base.roles import Role
from engine.people.team import invitations as team
from engine.people.team import join_team, transfer_ownership
from engine.people.team.types import InviteRow, TeamMemberRow


async def read_team(call: Call, query: PageQuery) -> Team:
    """Return a page of members, pending invitations and seats."""
    found = await team.read(call.services.pool, call.account_id, limit=query.limit, before=query.before)
    return Team(
        [_member(one) for one in found.members],
        [_invite(one) for one in found.invites],
        Seats(found.limit, found.used),
        found.cursor,
    )


async def invite(call: Call, body: NewInvite) -> Invite:
    """Invite a person by mail."""
    return _invite(await team.invite(call.services, call.person, body.email, body.role))


async def resend_invite(call: Call) -> Invite:
    """Mail a pending invitation again, with a new link."""
    return _invite(await team.resend_invite(call.services, call.person, call.id))


async def revoke_invite(call: Call) -> None:
    """Revoke an invitation."""
    await team.revoke_invite(call.services.pool, call.person, call.id)


async def accept(call: Call, body: Acceptance) -> None:
    """Join the account with the token of an invitation mail."""
    device = auth.device(call.request)
    if body.password is not None:
        await join_team.accept(call.services, body.token, body.password, device)
        return
    caller = await call.services.sessions.person(auth.session_secret(call.request), device)
    if caller is None:
        raise invalid("password", "`password` is required, except in a signed-in session of the invited address.")
    auth.check_csrf(caller, call.request.get_header(auth.CSRF_HEADER))
    await join_team.accept_signed_in(call.services, body.token, caller, device)


async def change_role(call: Call, body: RoleChange) -> Member:
    """Change a member's role; one's own renews the secret of the session."""
    changed, made = await team.change_role(call.services.pool, call.settings.pepper, call.person, call.id, body.role)
    if made is not None:
        renew_session(call, made)
    return _member(changed)


async def transfer(call: Call, body: OwnershipTransfer) -> Owners:
    """Make another member the owner in the caller's place."""
    try:
        user = ids.parse_id(ids.Kind.USER, body.member_id)
    except ids.WrongId as error:
        raise invalid("memberId", f"`memberId` is not the id of a member: {error}.") from None
    done = await transfer_ownership.transfer_ownership(call.services, call.person, user, body.password)
    renew_session(call, done.session)
    return Owners(_member(done.owner), _member(done.former))


async def remove(call: Call) -> None:
    """Remove a member from the account."""
    await team.remove(call.services.pool, call.person, call.id)
    if call.id == call.person.user_id:
        call.cookies = (no_session(call.settings),)


async def leave(call: Call) -> None:
    """Remove the signed-in person from the account, which ends the session."""
    await team.leave(call.services.pool, call.person)
    call.cookies = (no_session(call.settings),)


def _member(row: TeamMemberRow) -> Member:
    return Member(
        ids.format_id(ids.Kind.USER, row.user_id),
        row.email,
        row.name or None,
        Role(row.role),
        row.email_verified,
        row.has_totp,
        clock.iso(row.joined_at),
    )


def _invite(row: InviteRow) -> Invite:
    return Invite(
        ids.format_id(ids.Kind.INVITE, row.id),
        row.email,
        Role(row.role),
        None if row.invited_by is None else ids.format_id(ids.Kind.USER, row.invited_by),
        clock.iso(row.created_at),
        clock.iso(row.expires_at),
    )


_KEYS = Area("Team", reads=("team:read",), limited_keys=LimitedKeys.FREE)
_ADMINS = Area("Team", access=Access.SESSION, role=Role.ADMIN)
_ANYONE = Area("Team", access=Access.NONE)
_PEOPLE = Area("Team", access=Access.SESSION)
OPERATIONS = (
    Operation(
        "GET", "/v1/team", read_team, "List members, invitations and seats", _KEYS, refusals=(ErrorType.NOT_FOUND,)
    ),
    Operation(
        "POST",
        "/v1/team/invites",
        invite,
        "Invite a person by mail",
        _ADMINS,
        success=201,
        refusals=(ErrorType.INVALID_ADDRESS, ErrorType.PLAN_LIMIT_REACHED, ErrorType.CONFLICT, ErrorType.NOT_FOUND),
    ),
    Operation(
        "POST",
        "/v1/team/invites/{id}/resend",
        resend_invite,
        "Mail an invitation again, with a new link",
        _ADMINS,
        id_of=ids.Kind.INVITE,
    ),
    Operation(
        "DELETE",
        "/v1/team/invites/{id}",
        revoke_invite,
        "Revoke an invitation",
        _ADMINS,
        id_of=ids.Kind.INVITE,
        open_to_suspended=True,
    ),
    Operation(
        "POST",
        "/v1/team/invites/accept",
        accept,
        "Accept an invitation, without signing in",
        _ANYONE,
        refusals=(
            ErrorType.INVALID_CREDENTIALS,
            ErrorType.ACCOUNT_SUSPENDED,
            ErrorType.PLAN_LIMIT_REACHED,
            ErrorType.CONFLICT,
            ErrorType.NOT_FOUND,
        ),
    ),
    Operation(
        "PATCH",
        "/v1/team/members/{id}",
        change_role,
        "Change a member's role",
        _ADMINS,
        id_of=ids.Kind.USER,
        refusals=(ErrorType.CONFLICT,),
    ),
    Operation(
        "DELETE",
        "/v1/team/members/{id}",
        remove,
        "Remove a member from the account, and end their sessions there",
        _ADMINS,
        id_of=ids.Kind.USER,
        open_to_suspended=True,
        refusals=(ErrorType.CONFLICT,),
    ),
    Operation(
        "POST",
        "/v1/team/transfer",
        transfer,
        "Transfer the account to another member",
        _ADMINS,
        role=Role.OWNER,
        refusals=(ErrorType.CONFLICT, ErrorType.INVALID_CREDENTIALS, ErrorType.NOT_FOUND),
    ),
    Operation(
        "POST",
        "/v1/team/leave",
        leave,
        "Leave the account",
        _PEOPLE,
        refusals=(ErrorType.CONFLICT, ErrorType.NOT_FOUND),
    ),
)
