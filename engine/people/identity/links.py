"""Find the person of an identity: linked already, found by its address, or created with an account.

An address links only if it is verified both at the provider and here. Here the link in the mail may have been the only
proof: then all that was set up before is removed first. If a person signed up here without verifying the
address, the owner of the mailbox may be somebody else. Merging the two would put the owner into an account whose
members, webhooks and settings a stranger has prepared; taking the account away would hit people who have not yet opened
their mail. So the mailbox decides: the link in the mail or a new password verifies the address, and then the identity
links.
"""

from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids, local_mode
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.base.plans import Plan
from engine.cells import claims
from engine.cells.claims import ClaimKind
from engine.cells.directory import ClaimedElsewhere
from engine.ledger.events import record_event
from engine.people.identity import rules, store
from engine.people.identity.services import IdentityServices
from engine.people.identity.types import IdentityRow, Proven
from engine.people.open_account import NewOwner, open_with_owner
from engine.people.open_session import NewSession, end_others, renew_session
from engine.people.people import rules as people_rules
from engine.people.people import store as people
from engine.people.people.service import record_person_event
from engine.people.people.store import PersonRow
from engine.people.sessions.session_auth import Person
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.people.unproven_access import drop_all
from engine.people.unproven_accounts import EndedAccess, end_access
from engine.people.verify_email import mark_verified
from engine.store import caches
from engine.store.queries import Conn

MAX_NAME = 120
REMOVED = "password, authenticator, passkeys and sessions"  # by `drop_all`, in the words of the mail


class Recognised(Struct, frozen=True):
    """The person of an identity."""

    user_id: UUID
    has_totp: bool


async def recognise(services: IdentityServices, proven: Proven) -> Recognised:
    """Return the person of an identity or of its address; create one with an account if there is none.

    Linking waits until everything is proven (`record_use`). Raises 409 `invalid_state` without an address that the
    provider has verified, or if its person here has not verified it, 409 `conflict` if they have another identity at
    the provider, 422 for an invalid address, 403 `forbidden` for a new person if sign-up is closed; ClaimedElsewhere
    if the identity or its address belongs to a person of another cell.
    """
    known = await store.FIND.first(services.pool, proven.issuer, proven.subject)
    if known is not None:
        person = await people.READ.first(services.pool, known.user_id)
    else:
        await claims.check_here(ClaimKind.IDENTITY, claims.identity(proven.issuer, proven.subject))
        address = people_rules.checked_email(_vouched(proven))
        person = await people.FIND.first(services.pool, address)
        if person is None:
            person = await _welcome(services, proven, address)
        elif person.email_verified_at is None:
            raise _unconfirmed()
        elif person.verified_by_link:  # `record_use` removes all factors
            return Recognised(person.id, has_totp=False)
        else:
            await _check_no_other(services, person, proven)
    if person is None:  # erased between two statements
        raise rules.refused()
    return Recognised(person.id, person.has_totp)


async def record_use(services: IdentityServices, user: UUID, issuer: str, subject: str) -> None:
    """Record the use of an identity, and link it first if it is new; call it once everything is proven."""
    at = clock.now()
    try:
        await claims.claim(ClaimKind.IDENTITY, claims.identity(issuer, subject), user)
    except ClaimedElsewhere:  # since the person was recognised
        raise _other_identity() from None
    async with services.pool.acquire() as connection, connection.transaction():
        person = await people.LOCK.first(connection, user)
        if person is None:
            raise rules.refused()
        known = await store.FIND.first(connection, issuer, subject)
        if known is not None:
            if known.user_id != user:
                raise _other_identity()
            await store.TOUCH.execute(connection, known.id, at)
            return
        if person.email_verified_at is None:
            raise _unconfirmed()
        ended = EndedAccess()
        if person.verified_by_link:
            dropped = await drop_all(connection, user)
            ended = await end_access(connection, user)
            detail = {"factors_dropped": dropped, **ended.detail()}
            await mark_verified(connection, user, by_link=False)
            await record_person_event(connection, user, AccountEvent.MEMBER_EMAIL_VERIFIED, detail)
        await _link(connection, user, issuer, subject)
        shown = rules.shown_name(services.settings.idp_name, issuer)
        await enqueue(
            connection, SystemMailKind.IDENTITY_LINKED, person.email, at=at, issuer=shown,
            removed=REMOVED if person.verified_by_link else None, ended=ended.words() or None,
        )  # fmt: skip
    caches.clear_here("keys")


async def list_identities(pool: asyncpg.Pool, user: UUID) -> list[IdentityRow]:
    """Return the identities that the person can sign in with."""
    return await store.LIST.fetch(pool, user)


async def unlink(services: IdentityServices, person: Person, identity: UUID) -> NewSession:
    """Remove an identity and end the person's other sessions; return this session with a new secret.

    Raises 404 for an unknown identity, 409 `invalid_state` for the last way to sign in.
    """
    settings, at = services.settings, clock.now()
    async with services.pool.acquire() as connection, connection.transaction():
        row = await people.LOCK.first(connection, person.user_id)  # serializes removals
        mine = {one.id: one for one in await store.LIST.fetch(connection, person.user_id)}
        if row is None or identity not in mine:
            raise not_found("identity")
        ways = await store.WAYS_IN.first(connection, person.user_id, settings.idp_issuer, identity)
        if mine[identity].issuer == settings.idp_issuer and (ways is None or not ways.any):
            raise Refusal(
                ErrorType.INVALID_STATE,
                "This is your only way to sign in. Set a password or add a passkey first.",
                state="only_way_in",
            )
        await store.DELETE.execute(connection, person.user_id, identity)
        await store.FORGET_STEPS_OF.execute(connection, person.user_id)
        await end_others(connection, person.user_id, person.session_id)
        await _record(
            connection, person.user_id, AccountEvent.MEMBER_IDENTITY_UNLINKED, identity, mine[identity].issuer
        )
        shown = rules.shown_name(settings.idp_name, mine[identity].issuer)
        await enqueue(connection, SystemMailKind.IDENTITY_UNLINKED, row.email, at=at, issuer=shown)
        return await renew_session(connection, settings.pepper, person.session_id, person.account_id)


async def _welcome(services: IdentityServices, proven: Proven, address: str) -> PersonRow | None:
    """Create a person with their account, verified address and identity, without a password."""
    if not local_mode.may_sign_up(services.settings):
        raise Refusal(ErrorType.FORBIDDEN, local_mode.sign_up_closed(services.settings))
    owner = NewOwner(address, None, verified_at=clock.now())
    await claims.check_here(ClaimKind.EMAIL, address)
    await claims.claim(ClaimKind.IDENTITY, claims.identity(proven.issuer, proven.subject), owner.id)
    await claims.claim(ClaimKind.EMAIL, address, owner.id)
    await claims.place(owner.account_id)
    async with services.pool.acquire() as connection, connection.transaction():
        name = address.partition("@")[0][:MAX_NAME]
        made = await open_with_owner(connection, owner, name=name, plan=Plan.FREE)
        if made is not None:
            await _link(connection, made.owner_id, proven.issuer, proven.subject)
            if proven.name:
                await store.NAME_PERSON.execute(connection, made.owner_id, proven.name)
    person = await people.FIND.first(services.pool, address)
    if made is None and person is not None and person.email_verified_at is None:  # signed up at the same moment
        raise _unconfirmed()
    return person


async def _link(connection: Conn, user: UUID, issuer: str, subject: str) -> None:
    """Link the identity; raises 409 if the person has another identity at the issuer, or the identity another
    person.
    """
    identity = ids.uuid7()
    if not await store.INSERT.records(connection, identity, user, issuer, subject, clock.now()):
        raise _other_identity()
    await _record(connection, user, AccountEvent.MEMBER_IDENTITY_LINKED, identity, issuer)


async def _record(connection: Conn, user: UUID, kind: AccountEvent, identity: UUID, issuer: str) -> None:
    """Append the event to every account of the person, in one order, to avoid deadlocks."""
    person = ids.format_id(ids.Kind.USER, user)
    detail = {"id": person, "identity": ids.format_id(ids.Kind.IDENTITY, identity), "issuer": issuer}
    memberships = await people.MEMBERSHIPS.fetch(connection, user)
    for account in sorted(one.account_id for one in memberships):
        await record_event(connection, account, kind, detail, actor=person)


async def _check_no_other(services: IdentityServices, person: PersonRow, proven: Proven) -> None:
    """Refuse a second identity with the same address: the provider may have given the address to another person."""
    for one in await store.LIST.fetch(services.pool, person.id):
        if one.issuer == proven.issuer and one.subject != proven.subject:
            raise _other_identity()


def _vouched(proven: Proven) -> str:
    if proven.email is None or not proven.email_verified:
        raise Refusal(
            ErrorType.INVALID_STATE,  # the API has `email_unverified` for creating keys alone
            "The identity provider does not say that your address is verified. Confirm it there, then sign in again.",
            state="email_unverified",
        )
    return proven.email


def _unconfirmed() -> Refusal:
    return Refusal(
        ErrorType.INVALID_STATE,
        "A sign-up with your address isn't confirmed. Open the link in our email or set a new password, then sign "
        "in again.",
        state="address_unconfirmed",
    )


def _other_identity() -> Refusal:
    return Refusal(
        ErrorType.CONFLICT,
        "Your address is linked to another identity of this provider. Sign in with that one or another way, then "
        "remove it.",
    )
