"""Accept an invitation to a team, with the token from the mail and the person's own password or session.

An address without a person becomes a person with that password, with a verified address, since the token came from its
mailbox. A person who exists joins with the password they have or the session they are in, so that an invitation never
resets a password, and a person who signs in with a passkey or an identity provider needs none.
"""

from uuid import UUID

import asyncpg

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.base.events import AccountEvent
from engine.cells import claims
from engine.cells.claims import ClaimKind
from engine.cells.directory import ClaimedElsewhere
from engine.ledger.events import record_event
from engine.ledger.plan_limits import locked_caps
from engine.people.log_in import slow_down
from engine.people.open_session import remember
from engine.people.people import rules as people_rules
from engine.people.people import store as people
from engine.people.people.store import PersonRow
from engine.people.services import PeopleServices
from engine.people.sessions.rules import Device
from engine.people.sessions.session_auth import Person
from engine.people.team import store
from engine.people.team.invitations import check_seats
from engine.people.team.types import OpenInvite
from engine.people.tokens.rules import digest_of, spent, well_formed
from engine.store.database_errors import UniqueViolation
from engine.store.queries import Conn


async def accept(services: PeopleServices, token: str, password: str, device: Device) -> None:
    """Add the invited person to the account and use up the token; does not sign them in.

    Raises 400 for an invalid token or an unacceptable password, 401 `invalid_credentials` for a wrong password, 403 if
    the plan has no seat left, 409 if the person is on the account already, 429 for too many tries.
    """
    found = await _open(services.pool, token)
    await slow_down(services.limits, "invite", found.email, device, services.settings)
    person = await people.FIND.first(services.pool, found.email)
    if person is None:
        known = [found.email, found.email.partition("@")[0]]
        await services.passwords.apart(lambda: people_rules.check_password(password, known))
        try:
            await claims.claim(ClaimKind.EMAIL, found.email, found.account_id)
        except ClaimedElsewhere:
            raise Refusal(
                ErrorType.CONFLICT, "Your account is in another cell of this service. Ask the operator to move it."
            ) from None
        try:
            await _join(services.pool, found, None, await services.passwords.hashed(password), device)
        except UniqueViolation:  # a sign-up with this address came first
            raise _wrong() from None
        return
    if not await services.passwords.matches(person.password_hash, password):
        raise _wrong()
    await _join(services.pool, found, person, None, device)


async def accept_signed_in(services: PeopleServices, token: str, caller: Person, device: Device) -> None:
    """Add the person of a session to the account that invites their address, and use up the token.

    Raises 403 `forbidden` if the invitation is for another address, else as `accept`.
    """
    found = await _open(services.pool, token)
    await slow_down(services.limits, "invite", found.email, device, services.settings)
    person = await people.READ.first(services.pool, caller.user_id)
    if person is None or person.email != found.email:
        raise Refusal(
            ErrorType.FORBIDDEN,
            "This invitation is for another address than yours. Sign in with the invited address, or send its "
            "password.",
        )
    await _join(services.pool, found, person, None, device)


async def _open(pool: asyncpg.Pool, token: str) -> OpenInvite:
    if not well_formed(token):
        raise spent()
    found = await store.OPEN_INVITE.first(pool, digest_of(token), clock.now())
    if found is None or found.account_status == "closing":
        raise spent()
    if found.account_status == "suspended":
        raise Refusal(
            ErrorType.ACCOUNT_SUSPENDED, "This account is suspended, so nobody can join it now. Ask its owner."
        )
    return found


async def _join(
    pool: asyncpg.Pool, found: OpenInvite, person: PersonRow | None, password_hash: str | None, device: Device
) -> None:
    account, at = found.account_id, clock.now()
    async with pool.acquire() as connection, connection.transaction():
        if person is not None:
            await _hold(connection, person)  # people before heads, as in the changes of their other records
        caps = await locked_caps(connection, account)
        taken = await store.TAKE_INVITE.records(connection, found.id, at)
        if not taken:
            raise spent()
        # The invitation reserved a seat, but the plan may have become smaller since.
        await check_seats(connection, account, caps, at, invited=False)
        user = await _person(connection, found, person, password_hash)
        joined = await store.ADD_MEMBER.records(connection, account, user, taken[0]["role"], at)
        if joined:
            public = ids.format_id(ids.Kind.USER, user)
            detail = {"id": public, "role": taken[0]["role"], "invite": ids.format_id(ids.Kind.INVITE, found.id)}
            await record_event(connection, account, AccountEvent.MEMBER_JOINED, detail, actor=public)
            await remember(connection, user, device)
    if not joined:  # the invitation is used up anyway, so that its seat is free again
        raise Refusal(ErrorType.CONFLICT, "You're already a member of this account. Sign in.")


async def _hold(connection: Conn, person: PersonRow) -> None:
    """Lock the person, so that the checked password stays in force."""
    standing = await people.LOCK.first(connection, person.id)
    if standing is None or (standing.email, standing.password_hash) != (person.email, person.password_hash):
        raise _wrong()


async def _person(connection: Conn, found: OpenInvite, person: PersonRow | None, password_hash: str | None) -> UUID:
    at = clock.now()
    if person is None:
        user = ids.uuid7()
        await people.INSERT.execute(connection, user, found.email, password_hash, at)
        return user
    await people.CONFIRM_ADDRESS.execute(connection, person.id, at)
    return person.id


def _wrong() -> Refusal:
    """Return the same 401 for a wrong password and for a person without one."""
    return Refusal(
        ErrorType.INVALID_CREDENTIALS,
        "The password is wrong. Set a new one, or, with a passkey or identity provider, sign in first and accept "
        "without a password.",
    )
