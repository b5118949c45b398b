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
from api.http.dispatch import path_id
from api.http.operation import Access, Call, LimitedKeys, Operation
from api.http.paging import PageQuery
from api.http.session import renew_session
from engine.base import clock, ids
from engine.base.errors import ErrorType, invalid
from engine.base.roles import Role
from engine.people.team import invitations as team
from engine.people.team import join_team, transfer_ownership
from engine.people.team.types import InviteRow, TeamMemberRow


async def read_team(call: Call) -> Team:
    """Return a page of members, pending invitations and seats."""
    query: PageQuery = call.query
    found = await team.read(call.services.pool, call.account_id, limit=query.limit, before=query.before)
    return Team(
        [_member(one) for one in found.members],
        [_invite(one) for one in found.invites],
        Seats(found.limit, found.used),
        found.cursor,
    )


async def invite(call: Call) -> Invite:
    """Invite a person by mail."""
    body: NewInvite = call.body
    return _invite(await team.invite(call.services, call.person, body.email, body.role))


async def resend_invite(call: Call) -> Invite:
    """Mail a pending invitation again, with a new link."""
    wanted = path_id(ids.Kind.INVITE, call.path["id"], "invitation")
    return _invite(await team.resend_invite(call.services, call.person, wanted))


async def revoke_invite(call: Call) -> None:
    """Revoke an invitation."""
    wanted = path_id(ids.Kind.INVITE, call.path["id"], "invitation")
    await team.revoke_invite(call.services.pool, call.person, wanted)


async def accept(call: Call) -> None:
    """Join the account with the token of an invitation mail."""
    body: Acceptance = call.body
    device = auth.device(call.request)
    if body.password is not None:
        await join_team.accept(call.services, body.token, body.password, device)
        return
    caller = await call.services.sessions.person(auth.session_secret(call.request), device)
    if caller is None:
        raise invalid("password", "`password` is required, except in a signed-in session of the invited address.")
    auth.check_csrf(caller, call.request.get_header(auth.CSRF_HEADER))
    await join_team.accept_signed_in(call.services, body.token, caller, device)


async def change_role(call: Call) -> Member:
    """Change a member's role; one's own renews the secret of the session."""
    body: RoleChange = call.body
    user = path_id(ids.Kind.USER, call.path["id"], "member")
    changed, made = await team.change_role(call.services.pool, call.settings.pepper, call.person, user, body.role)
    if made is not None:
        renew_session(call, made)
    return _member(changed)


async def transfer(call: Call) -> Owners:
    """Make another member the owner in the caller's place."""
    body: OwnershipTransfer = call.body
    try:
        user = ids.parse_id(ids.Kind.USER, body.member_id)
    except ids.WrongId as error:
        raise invalid("memberId", f"`memberId` is not the id of a member: {error}.") from None
    done = await transfer_ownership.transfer_ownership(call.services, call.person, user, body.password)
    renew_session(call, done.session)
    return Owners(_member(done.owner), _member(done.former))


async def remove(call: Call) -> None:
    """Remove a member from the account."""
    user = path_id(ids.Kind.USER, call.path["id"], "member")
    await team.remove(call.services.pool, call.person, user)
    if user == call.person.user_id:
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


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/team",
        tag="Team",
        summary="List members, invitations and seats",
        access=Access.KEY,
        limited_keys=LimitedKeys.FREE,
        scopes=("team:read",),
        query=PageQuery,
        reply=Team,
        refusals=(ErrorType.NOT_FOUND,),
        handler=read_team,
    ),
    Operation(
        method="POST",
        path="/v1/team/invites",
        tag="Team",
        summary="Invite a person by mail",
        access=Access.SESSION,
        role=Role.ADMIN,
        request=NewInvite,
        reply=Invite,
        success=201,
        refusals=(ErrorType.INVALID_ADDRESS, ErrorType.PLAN_LIMIT_REACHED, ErrorType.CONFLICT, ErrorType.NOT_FOUND),
        handler=invite,
    ),
    Operation(
        method="POST",
        path="/v1/team/invites/{id}/resend",
        tag="Team",
        summary="Mail an invitation again, with a new link",
        access=Access.SESSION,
        role=Role.ADMIN,
        reply=Invite,
        handler=resend_invite,
    ),
    Operation(
        method="DELETE",
        path="/v1/team/invites/{id}",
        tag="Team",
        summary="Revoke an invitation",
        access=Access.SESSION,
        role=Role.ADMIN,
        success=204,
        open_to_suspended=True,
        handler=revoke_invite,
    ),
    Operation(
        method="POST",
        path="/v1/team/invites/accept",
        tag="Team",
        summary="Accept an invitation, without signing in",
        access=Access.NONE,
        request=Acceptance,
        success=204,
        refusals=(
            ErrorType.INVALID_CREDENTIALS,
            ErrorType.ACCOUNT_SUSPENDED,
            ErrorType.PLAN_LIMIT_REACHED,
            ErrorType.CONFLICT,
            ErrorType.NOT_FOUND,
        ),
        handler=accept,
    ),
    Operation(
        method="PATCH",
        path="/v1/team/members/{id}",
        tag="Team",
        summary="Change a member's role",
        access=Access.SESSION,
        role=Role.ADMIN,
        request=RoleChange,
        reply=Member,
        refusals=(ErrorType.CONFLICT,),
        handler=change_role,
    ),
    Operation(
        method="DELETE",
        path="/v1/team/members/{id}",
        tag="Team",
        summary="Remove a member from the account, and end their sessions there",
        access=Access.SESSION,
        role=Role.ADMIN,
        success=204,
        open_to_suspended=True,
        refusals=(ErrorType.CONFLICT,),
        handler=remove,
    ),
    Operation(
        method="POST",
        path="/v1/team/transfer",
        tag="Team",
        summary="Transfer the account to another member",
        access=Access.SESSION,
        role=Role.OWNER,
        request=OwnershipTransfer,
        reply=Owners,
        refusals=(ErrorType.CONFLICT, ErrorType.INVALID_CREDENTIALS, ErrorType.NOT_FOUND),
        handler=transfer,
    ),
    Operation(
        method="POST",
        path="/v1/team/leave",
        tag="Team",
        summary="Leave the account",
        access=Access.SESSION,
        success=204,
        refusals=(ErrorType.CONFLICT, ErrorType.NOT_FOUND),
        handler=leave,
    ),
)
