"""Invite people to an account, change their roles, and remove them.

Each is one transaction under the lock on the account's head, so that seats and owners are counted exactly. The caller's
role is checked again there, so that of two owners who remove each other only one succeeds.
"""

from datetime import datetime
from typing import Protocol
from uuid import UUID

import asyncpg
from msgspec import Struct, structs

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, existing, not_found
from engine.base.events import AccountEvent
from engine.base.plans import Caps
from engine.base.roles import Role
from engine.base.secrets import Pepper
from engine.base.settings import Settings
from engine.cells import claims
from engine.cells.claims import ClaimKind
from engine.cells.directory import ClaimedElsewhere
from engine.ledger.events import record_event
from engine.ledger.plan_limits import limit_reached, locked_caps
from engine.people.account import store as accounts
from engine.people.log_in import too_many
from engine.people.open_session import NewSession, renew_session
from engine.people.people import store as people
from engine.people.people.rules import checked_email
from engine.people.sessions.session_auth import Person
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.people.team import rules, store
from engine.people.team.service import end_invitations, hold_below, part_below, remove_member
from engine.people.team.types import InviteRow, TeamMemberRow
from engine.people.tokens.rules import digest_of, token_of
from engine.store.database_clock import new_time
from engine.store.jobs import Job
from engine.store.queries import Conn
from engine.store.rate_limits import RateLimiter


class InvitationServices(Protocol):
    """The services of a process that invitations need."""

    pool: asyncpg.Pool
    limits: RateLimiter
    settings: Settings


class TeamRoster(Struct, frozen=True):
    """A page of members and the pending invitations of an account; `limit` of seats is None if the plan has none."""

    members: list[TeamMemberRow]
    cursor: str | None  # of the next page
    invites: list[InviteRow]
    limit: int | None
    used: int


async def read(pool: asyncpg.Pool, account: UUID, *, limit: int, before: str | None) -> TeamRoster:
    """Return the team with a page of its members; raise the 400 for a cursor that is none."""
    at = clock.now()
    position = (None, None) if before is None else rules.position(before)
    async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        held = existing(await accounts.READ.first(connection, account), "account")
        members = await store.MEMBERS.fetch(connection, account, limit + 1, *position)
        invites = await store.INVITES.fetch(connection, account, at, rules.MAX_SHOWN)
        seated, invited = await store.seats_used(connection, account, at)
    page = members[:limit]
    cursor = rules.cursor(page[-1].joined_at, page[-1].user_id) if len(members) > limit else None
    return TeamRoster(page, cursor, invites, held.caps.seats, seated + invited)


async def invite(services: InvitationServices, person: Person, email: str, role: Role) -> InviteRow:
    """Mail an invitation that is valid for a week; an earlier one to the address becomes invalid.

    Raises 409 if the address is on the account, 403 beyond the plan's seats (pending invitations count), 403 for an
    owner's role unless an owner asks, 422 for an invalid address, 429 for too many.
    """
    address, account = checked_email(email), person.account_id
    rules.check_invite(person.role, role)
    await _slow_down(services.limits, account, address)
    try:
        await claims.check_here(ClaimKind.EMAIL, address)
    except ClaimedElsewhere:
        raise Refusal(
            ErrorType.CONFLICT,
            f"{address} belongs to a person whose account is in another cell of this service. Ask the operator to move"
            " one of the accounts.",
        ) from None
    mail = ids.uuid7()
    token = token_of(services.settings.pepper, mail)
    async with services.pool.acquire() as connection, connection.transaction():
        await people.LOCK.first(connection, person.user_id)  # lock people before heads
        caps = await locked_caps(connection, account)
        at = await new_time(connection)
        invite_id = ids.uuid7_at(at)
        row = InviteRow(invite_id, address, role.value, person.user_id, at, at + rules.INVITE_LIFETIME)
        rules.check_invite(await acting_role(connection, person), role)
        await _refuse_member(connection, account, address)
        replaced = await store.REPLACE_INVITE.records(connection, account, address)
        await check_seats(connection, account, caps, at)
        await store.INSERT_INVITE.execute(
            connection, invite_id, account, address, role.value, digest_of(token), person.user_id, at, row.expires_at
        )
        detail = {"id": _ivt(invite_id), "role": role.value}
        if replaced:
            detail["replaces"] = _ivt(replaced[0]["id"])
        await record_event(connection, account, AccountEvent.MEMBER_INVITED, detail, actor=_usr(person.user_id))
        await enqueue(
            connection, SystemMailKind.INVITE, address, at=at, mail=mail, account_name=person.row.account_name,
            inviter=person.row.shown_name, requester=_acc(account), role=role.value,
        )  # fmt: skip
    return row


async def resend_invite(services: InvitationServices, person: Person, invite_id: UUID) -> InviteRow:
    """Mail a pending invitation again with a new link, valid for another week; the earlier link becomes invalid.

    Raises 404 unless it is a pending one of the account, 403 for an owner's role unless an owner asks, 429 for too many
    invitations.
    """
    account, mail = person.account_id, ids.uuid7()
    token = token_of(services.settings.pepper, mail)
    pending = await store.READ_INVITE.first(services.pool, account, invite_id, clock.now())
    if pending is None:
        raise not_found("invitation")
    rules.check_invite(person.role, Role(pending.role))
    await _slow_down(services.limits, account, pending.email)
    async with services.pool.acquire() as connection, connection.transaction():
        await people.LOCK.first(connection, person.user_id)  # lock people before heads
        await locked_caps(connection, account)
        rules.check_invite(await acting_role(connection, person), Role(pending.role))
        at = clock.now()
        row = structs.replace(pending, invited_by=person.user_id, expires_at=at + rules.INVITE_LIFETIME)
        if not await store.RENEW_INVITE.records(
            connection, account, invite_id, at, digest_of(token), row.expires_at, person.user_id
        ):  # accepted or revoked meanwhile
            raise not_found("invitation")
        detail = {"id": _ivt(invite_id), "role": row.role}
        await record_event(connection, account, AccountEvent.MEMBER_INVITE_RESENT, detail, actor=_usr(person.user_id))
        await enqueue(
            connection, SystemMailKind.INVITE, row.email, at=at, mail=mail, account_name=person.row.account_name,
            inviter=person.row.shown_name, requester=_acc(account), role=row.role,
        )  # fmt: skip
    return row


async def revoke_invite(pool: asyncpg.Pool, person: Person, invite_id: UUID) -> None:
    """Revoke an invitation; raises 404 unless it is a pending one of the account."""
    account = person.account_id
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        await acting_role(connection, person)
        if not await store.REMOVE_INVITE.records(connection, account, invite_id, clock.now()):
            raise not_found("invitation")
        detail = {"id": _ivt(invite_id)}
        await record_event(connection, account, AccountEvent.MEMBER_INVITE_REVOKED, detail, actor=_usr(person.user_id))


async def change_role(
    pool: asyncpg.Pool, pepper: Pepper, person: Person, user: UUID, role: Role
) -> tuple[TeamMemberRow, NewSession | None]:
    """Change a member's role; return the member, and the caller's renewed session if the role is their own.

    Raises 404 for a person who is not on the account, 403 if only an owner may do it, 409 for the last owner.
    """
    account, renewed = person.account_id, None
    async with pool.acquire() as connection, connection.transaction():
        await store.hold(connection, account, user)
        await hold_below(connection, account, user)
        await locked_caps(connection, account)
        member = await read_member(connection, account, user)
        standing = Role(member.role)
        rules.check_change(await acting_role(connection, person), standing, role)
        if standing is not role:
            rules.check_owner_left(standing, await store.owners(connection, account))
            await store.SET_ROLE.execute(connection, account, user, role.value)
            detail = {"id": _usr(user), "from": standing.value, "to": role.value}
            await record_event(
                connection, account, AccountEvent.MEMBER_ROLE_CHANGED, detail, actor=_usr(person.user_id)
            )
            await end_invitations(connection, account, user, role, actor=_usr(person.user_id))
            if not role.includes(Role.ADMIN):
                await part_below(connection, account, user, actor=_usr(person.user_id))
            if user == person.user_id:
                renewed = await renew_session(connection, pepper, person.session_id, account)
        changed = await read_member(connection, account, user)
    return changed, renewed


async def remove(pool: asyncpg.Pool, person: Person, user: UUID) -> None:
    """Remove a person from the account, end their sessions there, and mail them.

    Raises 404 for a person who is not on the account, 403 if only an owner may do it, 409 for the last owner.
    """
    async with pool.acquire() as connection, connection.transaction():
        await store.hold(connection, person.account_id, user)
        await hold_below(connection, person.account_id, user)
        await locked_caps(connection, person.account_id)
        member = await read_member(connection, person.account_id, user)
        rules.check_removal(await acting_role(connection, person), Role(member.role))
        await _part(connection, person, member)
        if user != person.user_id:
            name = person.row.account_name
            await enqueue(connection, SystemMailKind.MEMBER_REMOVED, member.email, at=clock.now(), account_name=name)


async def leave(pool: asyncpg.Pool, person: Person) -> None:
    """Remove the caller from the account, whatever their role; raises 409 for the last owner."""
    async with pool.acquire() as connection, connection.transaction():
        await store.hold(connection, person.account_id, person.user_id)
        await hold_below(connection, person.account_id, person.user_id)
        await locked_caps(connection, person.account_id)
        await _part(connection, person, await read_member(connection, person.account_id, person.user_id))


async def check_seats(connection: Conn, account: UUID, caps: Caps, at: datetime, *, invited: bool = True) -> None:
    """Refuse one more member if the plan's seats are taken; pending invitations count unless `invited` is False."""
    limit = caps.seats
    if limit is None:
        return
    seated, pending = await store.seats_used(connection, account, at)
    used = seated + (pending if invited else 0)
    if used >= limit:
        raise limit_reached("seats", "team seats (pending invitations count)", limit, used)


async def forget_invites(pool: asyncpg.Pool, at: datetime) -> None:
    """Delete expired invitations, a bounded number at a time."""
    await store.FORGET_INVITES.execute(pool, at, rules.MAX_SHOWN)


JOB = Job("ended invitations", every_s=300, run=lambda pool, _: forget_invites(pool, clock.now()))


async def _part(connection: Conn, person: Person, member: TeamMemberRow) -> None:
    account = person.account_id
    rules.check_owner_left(Role(member.role), await store.owners(connection, account))
    await remove_member(connection, account, member.user_id, member.role, actor=_usr(person.user_id))
    await part_below(connection, account, member.user_id, actor=_usr(person.user_id))


async def acting_role(connection: Conn, person: Person) -> Role:
    """Return the caller's present role, which may have changed since the request arrived."""
    standing = await store.MEMBER.first(connection, person.account_id, person.user_id)
    if standing is None:
        raise Refusal(
            ErrorType.UNAUTHORIZED, "You're no longer a member of this account. Ask its owner for an invitation."
        )
    role = Role(standing.role)
    if not role.includes(Role.ADMIN):
        raise Refusal(
            ErrorType.FORBIDDEN,
            f"This operation requires the role {Role.ADMIN.value} or higher; yours is {role.value}.",
        )
    return role


async def read_member(connection: Conn, account: UUID, user: UUID) -> TeamMemberRow:
    return existing(await store.MEMBER.first(connection, account, user), "member")


async def _refuse_member(connection: Conn, account: UUID, address: str) -> None:
    found = await store.WITH_ADDRESS.records(connection, account, address)
    if found:
        raise Refusal(ErrorType.CONFLICT, f"{address} is already in your account's team.", id=_usr(found[0]["user_id"]))


async def _slow_down(limits: RateLimiter, account: UUID, address: str) -> None:
    """Limit invitations, so that no mailbox is flooded."""
    hour, day = 3_600.0, 86_400.0
    for bucket, most, seconds in (
        (f"invite:{account}:{address}", rules.INVITES_PER_HOUR, hour),
        (f"invite:{account}", rules.INVITES_PER_DAY, day),
    ):
        standing = await limits.check(bucket, most / seconds, burst_s=seconds)
        if not standing.allowed:
            raise too_many(standing.retry_after_s)


def _acc(account: UUID) -> str:
    return ids.format_id(ids.Kind.ACCOUNT, account)


def _usr(user: UUID) -> str:
    return ids.format_id(ids.Kind.USER, user)


def _ivt(invite_id: UUID) -> str:
    return ids.format_id(ids.Kind.INVITE, invite_id)
