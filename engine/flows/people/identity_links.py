"""Whose an identity is: found, linked to the person with its address, or made a person with an account of their own.

An address links only when the provider has verified it *and* its person here has. Where somebody signed up with an
address and never showed that it is theirs, whoever owns the mailbox may be somebody else: merging the two would put
the owner into an account whose members, webhooks and settings a stranger has prepared, and taking it away would hit
honest people who have not opened our mail yet. So nothing is merged, and the mailbox decides: the link in our mail, or
a new password, confirms the address, and then the identity links.
"""

from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.areas.identity import rules, store
from engine.areas.identity.types import IdentityRow, Proven
from engine.areas.people import rules as people_rules
from engine.areas.people import store as people
from engine.areas.people.store import PersonRow
from engine.areas.sessions.session_auth import Person
from engine.areas.system_mail.store import enqueue
from engine.areas.system_mail.types import SystemMailKind
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.base.plans import Plan
from engine.flows.people.open_account import NewOwner, open_with_owner
from engine.flows.people.open_session import NewSession, end_others, renew_session
from engine.flows.people.services import IdentityServices
from engine.ledger.events import record_event
from engine.store.queries import Conn

MAX_NAME = 120


class Recognised(Struct, frozen=True):
    """Who an identity is here."""

    user_id: UUID
    has_totp: bool


async def recognise(services: IdentityServices, proven: Proven) -> Recognised:
    """The person of an identity, or of its address; a new one with an account of their own where there is none.

    Linking waits until everything is proven, see `settle`. 403 `email_unverified` without an address that the provider
    has verified, 409 `invalid_state` while its person here has not, 409 `conflict` where they have another identity
    there, 422 for what is no address, 403 `forbidden` for somebody new where sign-up is closed.
    """
    known = await store.FIND.first(services.pool, proven.issuer, proven.subject)
    if known is not None:
        person = await people.READ.first(services.pool, known.user_id)
    else:
        address = people_rules.checked_email(_vouched(proven))
        person = await people.FIND.first(services.pool, address)
        if person is None:
            person = await _welcome(services, proven, address)
        elif person.email_verified_at is None:
            raise _unconfirmed()
        else:
            await _check_no_other(services, person, proven)
    if person is None:  # erased between two statements
        raise rules.refused()
    return Recognised(person.id, person.has_totp)


async def settle(services: IdentityServices, user: UUID, issuer: str, subject: str) -> None:
    """Note the identity's use; link it first where it is new. Everything that the person has to show is shown."""
    at = clock.now()
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
        await _link(connection, user, issuer, subject)
        shown = rules.shown_name(services.settings.idp_name, issuer)
        await enqueue(connection, SystemMailKind.IDENTITY_LINKED, person.email, at=at, issuer=shown)


async def list_identities(pool: asyncpg.Pool, user: UUID) -> list[IdentityRow]:
    """The identities that the person can sign in with."""
    return await store.LIST.fetch(pool, user)


async def unlink(services: IdentityServices, person: Person, identity: UUID) -> NewSession:
    """Take an identity away; the person's other sessions end, as one of them may have come by it.

    404 for an unknown one, 409 `invalid_state` for the last way to sign in. Returns this session under a new secret.
    """
    settings, at = services.settings, clock.now()
    async with services.pool.acquire() as connection, connection.transaction():
        row = await people.LOCK.first(connection, person.user_id)  # of two removals at once the second sees the first
        mine = {one.id: one for one in await store.LIST.fetch(connection, person.user_id)}
        if row is None or identity not in mine:
            raise not_found("identity")
        ways = await store.WAYS_IN.first(connection, person.user_id, settings.idp_issuer, identity)
        if mine[identity].issuer == settings.idp_issuer and (ways is None or not ways.any):
            raise Refusal(
                ErrorType.INVALID_STATE,
                "This is your only way to sign in. Set a password or add a passkey first.",
                status="only_way_in",
            )
        await store.DELETE.execute(connection, person.user_id, identity)
        await store.FORGET_STEPS_OF.execute(connection, person.user_id)
        await end_others(connection, person.user_id, person.session_id)
        await _record(
            connection, person.user_id, AccountEvent.MEMBER_IDENTITY_UNLINKED, identity, mine[identity].issuer
        )
        shown = rules.shown_name(settings.idp_name, mine[identity].issuer)
        await enqueue(connection, SystemMailKind.IDENTITY_UNLINKED, row.email, at=at, issuer=shown)
        return await renew_session(connection, settings.key_pepper or "", person.session_id, person.account_id)


async def _welcome(services: IdentityServices, proven: Proven, address: str) -> PersonRow | None:
    """A new person: their account, their verified address, their identity, and no password."""
    if services.settings.signup == "closed":
        raise Refusal(ErrorType.FORBIDDEN, "Sign-up is closed here. Ask somebody on an account for an invitation.")
    async with services.pool.acquire() as connection, connection.transaction():
        owner = NewOwner(address, None, verified_at=clock.now())
        name = address.partition("@")[0][:MAX_NAME]
        made = await open_with_owner(connection, owner, name=name, plan=Plan.FREE)
        if made is not None:
            await _link(connection, made.owner_id, proven.issuer, proven.subject)
            if proven.name:
                await store.NAME_PERSON.execute(connection, made.owner_id, proven.name)
    person = await people.FIND.first(services.pool, address)
    if made is None and person is not None and person.email_verified_at is None:  # signed up this very moment
        raise _unconfirmed()
    return person


async def _link(connection: Conn, user: UUID, issuer: str, subject: str) -> None:
    """409 where the person has another identity at the issuer, or the identity another person."""
    identity = ids.uuid7()
    if not await store.INSERT.records(connection, identity, user, issuer, subject, clock.now()):
        raise _other_identity()
    await _record(connection, user, AccountEvent.MEMBER_IDENTITY_LINKED, identity, issuer)


async def _record(connection: Conn, user: UUID, kind: AccountEvent, identity: UUID, issuer: str) -> None:
    """Tell every account of the person, in one order, so that two at once can't wait for each other."""
    person = ids.format_id(ids.Kind.USER, user)
    detail = {"id": person, "identity": ids.format_id(ids.Kind.IDENTITY, identity), "issuer": issuer}
    memberships = await people.MEMBERSHIPS.fetch(connection, user)
    for account in sorted(one.account_id for one in memberships):
        await record_event(connection, account, kind, detail, actor=person)


async def _check_no_other(services: IdentityServices, person: PersonRow, proven: Proven) -> None:
    """An address may be given to somebody new at the provider; they are not whom it belonged to before."""
    for one in await store.LIST.fetch(services.pool, person.id):
        if one.issuer == proven.issuer and one.subject != proven.subject:
            raise _other_identity()


def _vouched(proven: Proven) -> str:
    if proven.email is None or not proven.email_verified:
        raise Refusal(
            ErrorType.EMAIL_UNVERIFIED,
            "The identity provider does not say that your address is verified. Confirm it there, then sign in again.",
        )
    return proven.email


def _unconfirmed() -> Refusal:
    return Refusal(
        ErrorType.INVALID_STATE,
        "Somebody signed up here with your address and has not confirmed it. Open the link in our mail to you or set a "
        "new password, then sign in with the identity provider.",
        status="address_unconfirmed",
    )


def _other_identity() -> Refusal:
    return Refusal(
        ErrorType.CONFLICT,
        "Your address belongs to a person here who signs in with another identity of this provider. Sign in with that "
        "one, or another way, and remove it.",
    )
