"""The second factor (TOTP) of a person: set up, enable, check and disable it; recovery codes.

Codes are checked only after the password or another proof, and each wrong one lengthens a wait. The wait is counted
separately for each network that a person is known from, for all other networks together, and for changes in a signed-in
session. So even an intruder who has the password cannot lock the person out of their usual networks.
"""

import asyncio
import math
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.events import AccountEvent
from engine.base.secrets import Pepper, Unsealable
from engine.people.open_session import NewSession, end_others, renew_session
from engine.people.people import store as people
from engine.people.people.service import record_person_event
from engine.people.second_factor import rules, store
from engine.people.second_factor.rules import Factor
from engine.people.services import PeopleServices
from engine.people.sessions.session_auth import Person
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.store.queries import Conn

RECENT = timedelta(minutes=10)  # after a sign-in, no password is asked for
ELSEWHERE = ""  # the place for all networks that the person is not known from
IN_SESSION = "session"  # the place for changes in a signed-in session; no network has this name

_log = structlog.get_logger("second factor")


class FactorSetup(Struct, frozen=True):
    """A new secret that is not in force yet, in the three forms in which an app can read it."""

    secret: str
    uri: str
    svg: str


class FactorEnabled(Struct, frozen=True):
    """The recovery codes, shown only this once, and the session with its new secret."""

    recovery_codes: list[str]
    session: NewSession


class FactorStatus(Struct, frozen=True):
    """A person's second factor as shown to them."""

    enabled_at: datetime | None
    recovery_codes: int


async def proven(
    services: PeopleServices, user: UUID, code: str, at: datetime, *, place: str = ELSEWHERE
) -> Factor | None:
    """Check a code of a person whose password or identity is proven; return the factor, or None if it is wrong.

    None also stands for a used code and for a person without a second factor. A right code is used up: of two
    concurrent tries one succeeds. `place` is the network if the person is known from it. Raises 429 during the wait
    after wrong codes.
    """
    async with services.pool.acquire() as connection, connection.transaction():
        row = await store.LOCK.first(connection, user)
        if row is None or row.totp_enabled_at is None or row.totp_sealed is None:
            return None
        tries = await store.TRIES.first(connection, user, place)
        wait_s = rules.wait_s(tries, at)
        if wait_s:
            raise _too_many(wait_s)
        factor = await _used_up(connection, services.settings.pepper, user, row, code, at)
        if factor is None:
            failed = rules.after_failure(tries, at)
            await store.COUNT_FAILURE.execute(
                connection, user, place, failed.failed, failed.failed_at, failed.locked_until
            )
            if failed.failed == rules.FREE_TRIES:
                await enqueue(connection, SystemMailKind.CODES_REFUSED, row.email, at=at)
        elif tries is not None:
            await store.FORGET_FAILURES.execute(connection, user, place)
    return factor


async def confirm(services: PeopleServices, person: Person, password: str | None, *, always: bool = False) -> None:
    """Check that the person of the session is present: by their password, or by a sign-in within RECENT.

    `always` requires the password in any case. Raises 400 if it is missing, 401 `invalid_credentials` if it is wrong,
    429 after too many tries; 403 asks a person without a password to sign in again.
    """
    recent = clock.now() - person.row.created_at <= RECENT
    if recent and not always:
        return
    row = await people.READ.first(services.pool, person.user_id)
    stored = None if row is None else row.password_hash
    if stored is None:
        if recent:
            return
        raise Refusal(ErrorType.FORBIDDEN, "Your sign-in is older than ten minutes. Sign in again, then repeat this.")
    if password is None:
        raise invalid("password", "This change requires your current password.")
    standing = await services.limits.check(f"confirm:{person.user_id}", services.settings.sign_in_rate / 60, burst_s=60)
    if not standing.allowed:
        raise _too_many(standing.retry_after_s)
    if not await services.passwords.matches(stored, password, known=True):
        raise _wrong("password")


async def confirm_code(services: PeopleServices, person: Person, code: str | None) -> None:
    """Check a code of the person of the session, who has a second factor.

    Raises 400 if it is missing, 401 `invalid_credentials` if it is wrong, 429 during the wait after wrong codes.
    """
    if code is None:
        raise invalid("code", "This change requires a code: one of your authenticator app, or a recovery code.")
    if await proven(services, person.user_id, code, clock.now(), place=IN_SESSION) is None:
        raise _wrong("code")


async def state(pool: asyncpg.Pool, user: UUID) -> FactorStatus:
    """Return whether codes are required, and how many recovery codes are left."""
    row = await store.STATE.first(pool, user)
    return FactorStatus(None, 0) if row is None else FactorStatus(row.totp_enabled_at, row.recovery_codes)


async def set_up(services: PeopleServices, person: Person, password: str | None) -> FactorSetup:
    """Create a secret for the person's app, replacing one that was never enabled; codes are not required yet.

    Raises 409 if a second factor is enabled.
    """
    if person.row.has_totp:
        raise _enabled_already()
    await confirm(services, person, password)
    secret = rules.new_secret()
    sealed = rules.sealed(services.settings.pepper, person.user_id, secret)
    if not await store.BEGIN.records(services.pool, person.user_id, sealed):
        raise _enabled_already()
    uri = rules.otpauth_uri(secret, person.row.email)
    return FactorSetup(rules.shown_secret(secret), uri, await asyncio.to_thread(rules.qr_svg, uri))


async def enable(services: PeopleServices, person: Person, code: str) -> FactorEnabled:
    """Require codes from now on, after a right code of the app; end all other sessions.

    Raises 401 `invalid_credentials` for a wrong code; 409 without a setup, or if it is enabled already.
    """
    pepper = services.settings.pepper
    at = clock.now()
    codes = rules.new_recovery_codes()
    async with services.pool.acquire() as connection, connection.transaction():
        row = await store.LOCK.first(connection, person.user_id)
        if row is None or row.totp_sealed is None:
            raise Refusal(
                ErrorType.INVALID_STATE,
                "No second factor is set up. Begin with POST /v1/auth/2fa/setup.",
                state="disabled",
            )
        if row.totp_enabled_at is not None:
            raise _enabled_already()
        step = _step_of(pepper, person.user_id, row.totp_sealed, code, at)
        if step is None:
            raise _wrong("code")
        await store.ENABLE.execute(connection, person.user_id, at, step)
        await _give_codes(connection, pepper, person.user_id, codes)
        session = await _privileges_changed(connection, pepper, person)
        await enqueue(connection, SystemMailKind.SECOND_FACTOR_ENABLED, row.email, at=at)
        await record_person_event(connection, person.user_id, AccountEvent.MEMBER_SECOND_FACTOR_ENABLED, {})
    return FactorEnabled(codes, session)


async def disable(services: PeopleServices, person: Person, password: str | None, code: str) -> NewSession:
    """Disable the second factor; delete the secret and the recovery codes, and end all other sessions.

    Raises 401 `invalid_credentials` for a wrong password or code, 409 if no second factor is enabled.
    """
    if not person.row.has_totp:
        raise _disabled_already()
    await confirm(services, person, password, always=True)
    at = clock.now()
    if await proven(services, person.user_id, code, at, place=IN_SESSION) is None:
        raise _wrong("code")
    async with services.pool.acquire() as connection, connection.transaction():
        if not await store.DISABLE.records(connection, person.user_id):
            raise _disabled_already()
        await store.DROP_CODES.execute(connection, person.user_id)
        await store.FORGET_FAILURES.execute(connection, person.user_id, None)
        session = await _privileges_changed(connection, services.settings.pepper, person)
        await enqueue(connection, SystemMailKind.SECOND_FACTOR_DISABLED, person.row.email, at=at)
        await record_person_event(connection, person.user_id, AccountEvent.MEMBER_SECOND_FACTOR_DISABLED, {})
    return session


async def replace_codes(services: PeopleServices, person: Person, password: str | None, code: str) -> list[str]:
    """Return a new set of recovery codes; the old ones become invalid. Raises like `disable`."""
    if not person.row.has_totp:
        raise _disabled_already()
    await confirm(services, person, password, always=True)
    if await proven(services, person.user_id, code, clock.now(), place=IN_SESSION) is None:
        raise _wrong("code")
    codes = rules.new_recovery_codes()
    async with services.pool.acquire() as connection, connection.transaction():
        row = await store.LOCK.first(connection, person.user_id)
        if row is None or row.totp_enabled_at is None:
            raise _disabled_already()
        await _give_codes(connection, services.settings.pepper, person.user_id, codes)
        await record_person_event(connection, person.user_id, AccountEvent.MEMBER_RECOVERY_CODES_REPLACED, {})
    return codes


async def _used_up(
    connection: Conn, pepper: Pepper, user: UUID, row: store.FactorRow, code: str, at: datetime
) -> Factor | None:
    typed = rules.read(code)
    if typed is None or row.totp_sealed is None:
        return None
    factor, normal = typed
    if factor is Factor.TOTP:
        step = _step_of(pepper, user, row.totp_sealed, normal, at)
        return factor if step is not None and await store.USE_STEP.records(connection, user, step) else None
    digests = [rules.recovery_digest(one, user, normal) for one in pepper.accepted]
    left = await store.USE_CODE.first(connection, user, digests)
    if left is None:
        return None
    await enqueue(connection, SystemMailKind.RECOVERY_CODE_USED, row.email, at=at, left=left.remaining)
    return factor


def _step_of(pepper: Pepper, user: UUID, sealed: bytes, code: str, at: datetime) -> int | None:
    typed = rules.read(code)
    if typed is None or typed[0] is not Factor.TOTP:
        return None
    try:
        secret = rules.opened(pepper, user, sealed)
    except Unsealable:
        _log.error(
            "second factor not readable; check that the pepper is unchanged", user=ids.format_id(ids.Kind.USER, user)
        )
        return None
    return rules.matching_step(secret, typed[1], clock.machine_time(at))  # the person's device has machine time


async def _give_codes(connection: Conn, pepper: Pepper, user: UUID, codes: list[str]) -> None:
    digests = [rules.recovery_digest(pepper, user, typed[1]) for code in codes if (typed := rules.read(code))]
    await store.DROP_CODES.execute(connection, user)
    await store.INSERT_CODES.execute(connection, user, digests, pepper.fingerprint)


async def _privileges_changed(connection: Conn, pepper: Pepper, person: Person) -> NewSession:
    await end_others(connection, person.user_id, person.session_id)
    return await renew_session(connection, pepper, person.session_id, person.account_id)


def _enabled_already() -> Refusal:
    return Refusal(
        ErrorType.INVALID_STATE,
        "A second factor is already enabled. Disable it before you set up another one.",
        state="enabled",
    )


def _disabled_already() -> Refusal:
    return Refusal(ErrorType.INVALID_STATE, "No second factor is enabled.", state="disabled")


def _wrong(what: str) -> Refusal:
    return Refusal(ErrorType.INVALID_CREDENTIALS, f"The {what} is wrong or already used. Check it and try again.")


def _too_many(wait_s: float) -> Refusal:
    wait = max(1, math.ceil(wait_s))
    return Refusal(
        ErrorType.RATE_LIMITED, f"Too many wrong attempts. Wait {wait} s before the next.", retry_after_s=wait
    )
