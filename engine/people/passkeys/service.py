"""Passkeys (WebAuthn): register one while signed in, sign in with one, rename and remove one.

A passkey whose device verified its user counts as two factors: the device, and what unlocks it.
"""

import os
from datetime import datetime
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, existing, invalid, not_found
from engine.base.events import AccountEvent
from engine.base.settings import Settings
from engine.people.identity import store as identities
from engine.people.open_session import NewSession, ended, open_session
from engine.people.passkeys import ceremony, rules, store
from engine.people.passkeys.ceremony import Assertion, Attestation, Rejected, Signed
from engine.people.passkeys.rules import RelyingParty
from engine.people.passkeys.store import FoundRow, PasskeyRow
from engine.people.people import store as people
from engine.people.people.service import record_person_event
from engine.people.second_factor import service as second_factor
from engine.people.services import PeopleServices
from engine.people.sessions import store as sessions
from engine.people.sessions.rules import IDLE, Device
from engine.people.sessions.session_auth import Person
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.store.database_clock import new_time
from engine.store.queries import Conn

_log = structlog.get_logger("passkeys")


class Registration(Struct, frozen=True):
    """The data from which a browser creates a passkey."""

    party: RelyingParty
    user_handle: bytes
    email: str
    name: str
    challenge: bytes
    known: list[PasskeyRow]  # so that an authenticator that has one does not create another


class SignIn(Struct, frozen=True):
    """The data that a browser signs; `browser` is the secret of its cookie."""

    party: RelyingParty
    challenge: bytes
    browser: str


def party_of(settings: Settings) -> RelyingParty:
    """Return the relying party; raises 409 if passkeys cannot work with these settings."""
    return rules.relying_party(settings.public_url, settings.passkey_rp_id)


async def begin_registration(
    services: PeopleServices, person: Person, password: str | None, code: str | None, *, origin: str | None
) -> Registration:
    """Return a challenge for this session; `origin` is the page's, from the browser.

    Raises 409 if the person has the maximum of passkeys or the page's origin cannot have one, and the errors of
    `second_factor.confirm` for an old sign-in. A passkey counts as two factors, so a person with an authenticator must
    give a code of it: 400 if it is missing, 401 `invalid_credentials` if it is wrong.
    """
    party = party_of(services.settings)
    rules.check_page(party, origin)
    await second_factor.confirm(services, person, password)
    known = await store.LIST.fetch(services.pool, person.user_id)
    if len(known) >= rules.MAX_PASSKEYS:
        raise _too_many()
    if person.row.has_totp:
        await second_factor.confirm_code(services, person, code)
    challenge = os.urandom(rules.CHALLENGE_BYTES)
    await store.keep_challenge(services.pool, challenge, rules.holder_of_session(person.session_id), clock.now())
    return Registration(party, handle_of(person.user_id), person.row.email, person.row.shown_name, challenge, known)


async def finish_registration(
    services: PeopleServices, person: Person, answer: Attestation, *, name: str | None, transports: list[str]
) -> PasskeyRow:
    """Store and return the person's new passkey; uses up the challenge in any case.

    Raises 400 if the answer is invalid or answers no challenge of this session, 409 if the credential is registered
    already.
    """
    party = party_of(services.settings)
    called = None if name is None else rules.checked_name(name)
    at = clock.now()
    try:
        challenge = ceremony.challenge_of(answer.client_data)
        if not await store.burn_challenge(services.pool, challenge, rules.holder_of_session(person.session_id), at):
            raise Rejected("no such challenge")  # noqa: TRY301 - one refusal for all
        made = ceremony.registered(answer, challenge, party)
    except Rejected as error:
        _log.info("passkey not registered", reason=str(error))
        raise invalid(
            "credential",
            f"This passkey couldn't be verified. Start again on {party.origin}, within five minutes, with a device "
            "that asks for a PIN or biometrics.",
        ) from None
    async with services.pool.acquire() as connection, connection.transaction():
        await people.LOCK.first(connection, person.user_id)  # for an exact count
        if not await sessions.LIVING.records(connection, [person.session_id], at, at - IDLE):
            raise ended()  # a reset that ended the session meanwhile must not be followed by a new way in
        held = await store.LIST.fetch(connection, person.user_id)
        if len(held) >= rules.MAX_PASSKEYS:
            raise _too_many()
        made_at = await new_time(connection)
        row = PasskeyRow(
            ids.uuid7_at(made_at), made.credential_id, called or _fresh_name(held), rules.known_transports(transports),
            made.backed_up, made_at, None, None,
        )  # fmt: skip
        if not await store.INSERT.records(
            connection, row.id, person.user_id, row.credential_id, made.public_key, made.sign_count, row.name,
            row.transports, made.backup_eligible, row.backed_up, made_at,
        ):  # fmt: skip
            raise _known(held, made.credential_id)
        await enqueue(connection, SystemMailKind.PASSKEY_ADDED, person.row.email, at=at, name=row.name)
        await _record(connection, person.user_id, AccountEvent.MEMBER_PASSKEY_ADDED, row.id)
    return row


async def begin_sign_in(services: PeopleServices, browser: str | None, *, origin: str | None) -> SignIn:
    """Return a challenge for this browser, which keeps `browser`; several pages can have one at the same time."""
    party = party_of(services.settings)
    rules.check_page(party, origin)
    kept = browser if browser is not None and rules.well_formed(browser) else rules.new_browser()
    challenge = os.urandom(rules.CHALLENGE_BYTES)
    await store.keep_challenge(services.pool, challenge, rules.holder_of_browser(kept), clock.now())
    return SignIn(party, challenge, kept)


async def finish_sign_in(
    services: PeopleServices, answer: Assertion, browser: str | None, device: Device
) -> NewSession:
    """Return a session for the passkey's person; raises the same 401 `invalid_credentials` for every failure.

    A signature counter that has not grown is refused, and the passkey from then on too: it may have been copied.
    """
    party = party_of(services.settings)
    at = clock.now()
    try:
        found, proof = await _proof(services.pool, answer, browser, party, at)
    except Rejected as error:
        _log.info("passkey refused", reason=str(error))
        raise refused() from None
    if not await store.USE.records(services.pool, found.id, proof.sign_count, at, proof.backed_up):
        await _suspect(services.pool, found, at)
        raise refused()
    return await open_session(services.pool, services.settings.pepper, found.user_id, method="passkey", device=device)


async def rename(pool: asyncpg.Pool, person: Person, passkey: UUID, name: str) -> PasskeyRow:
    """Rename the person's passkey; raises 404 if it is not theirs."""
    called = rules.checked_name(name)
    async with pool.acquire() as connection, connection.transaction():
        row = existing(await store.RENAME.first(connection, person.user_id, passkey, called), "passkey")
        await _record(connection, person.user_id, AccountEvent.MEMBER_PASSKEY_RENAMED, passkey)
    return row


async def remove(services: PeopleServices, person: Person, passkey: UUID) -> None:
    """Delete a passkey; raises 404 if it is not the person's, 409 for their last way to sign in."""
    async with services.pool.acquire() as connection, connection.transaction():
        await people.LOCK.first(connection, person.user_id)  # of two removals at once the second sees the first
        gone = await store.DELETE.records(connection, person.user_id, passkey)
        if not gone:
            raise not_found("passkey")
        ways = await identities.WAYS_IN.first(connection, person.user_id, services.settings.idp_issuer, None)
        if not gone[0]["suspected"] and (ways is None or not ways.any):
            raise Refusal(
                ErrorType.INVALID_STATE,
                "This is your only way to sign in. Set a password or add another passkey first.",
                state="only_way_in",
            )
        await enqueue(
            connection, SystemMailKind.PASSKEY_REMOVED, person.row.email, at=clock.now(), name=gone[0]["name"]
        )
        await _record(connection, person.user_id, AccountEvent.MEMBER_PASSKEY_REMOVED, passkey)


def handle_of(user: UUID) -> bytes:
    """Return the user handle for authenticators: an opaque id without personal data (WebAuthn 14.6.1)."""
    return user.bytes


def refused() -> Refusal:
    """Return the same 401 for every passkey that cannot sign in."""
    return Refusal(
        ErrorType.INVALID_CREDENTIALS, "This passkey cannot sign in here. Start again, or sign in with a password."
    )


async def _proof(
    pool: asyncpg.Pool, answer: Assertion, browser: str | None, party: RelyingParty, at: datetime
) -> tuple[FoundRow, Signed]:
    """Check an answer and return the passkey's row and proof; does all checks before it raises Rejected, for
    constant time.
    """
    challenge = ceremony.challenge_of(answer.client_data)
    holder = rules.holder_of_browser(browser or "")
    burnt = await store.burn_challenge(pool, challenge, holder, at)
    found = await store.FIND.first(pool, ceremony.octets(answer.raw_id))
    proof = ceremony.signed(answer, challenge, party, None if found is None else found.public_key)
    if found is None or not burnt:
        raise Rejected("no such challenge for this browser")
    if answer.user_handle is None or ceremony.octets(answer.user_handle) != handle_of(found.user_id):
        raise Rejected("the passkey names another person")
    if found.backup_eligible != proof.backup_eligible:  # WebAuthn 7.2: it never changes
        raise Rejected("its eligibility for backup has changed")
    if found.suspected_at is not None:
        raise Rejected("its counter has gone backwards before")
    return found, proof


async def _suspect(pool: asyncpg.Pool, found: FoundRow, at: datetime) -> None:
    _log.warning("passkey refused: its counter went backwards", passkey=ids.format_id(ids.Kind.PASSKEY, found.id))
    async with pool.acquire() as connection, connection.transaction():
        if not await store.SUSPECT.records(connection, found.id, at):
            return
        owner = await people.READ.first(connection, found.user_id)
        if owner is None:
            return
        await enqueue(connection, SystemMailKind.PASSKEY_SUSPECTED, owner.email, at=at, name=found.name)
        await _record(connection, found.user_id, AccountEvent.MEMBER_PASSKEY_SUSPECTED, found.id, actor="service")


async def _record(connection: Conn, user: UUID, kind: AccountEvent, passkey: UUID, *, actor: str | None = None) -> None:
    detail: dict[str, object] = {
        "id": ids.format_id(ids.Kind.PASSKEY, passkey), "user": ids.format_id(ids.Kind.USER, user)
    }  # fmt: skip
    await record_person_event(connection, user, kind, detail, actor=actor)


def _fresh_name(held: list[PasskeyRow]) -> str:
    taken = {row.name for row in held}
    return next(name for number in range(1, rules.MAX_PASSKEYS + 2) if (name := f"Passkey {number}") not in taken)


def _known(held: list[PasskeyRow], credential_id: bytes) -> Refusal:
    """Return the 409 of a registered credential; names the person's own passkey, but nothing of another person's."""
    message = "This passkey is already registered."
    for row in held:
        if row.credential_id == credential_id:
            return Refusal(ErrorType.CONFLICT, message, id=ids.format_id(ids.Kind.PASSKEY, row.id))
    return Refusal(ErrorType.CONFLICT, message)


def _too_many() -> Refusal:
    return Refusal(
        ErrorType.INVALID_STATE,
        f"You have {rules.MAX_PASSKEYS} passkeys, which is the maximum. Remove one first.",
        state="full",
    )
