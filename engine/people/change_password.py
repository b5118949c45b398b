"""Change one's own password while signed in, and check that the person of the session is present."""

from datetime import timedelta

from engine.base import clock
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.events import AccountEvent
from engine.people.log_in import too_many
from engine.people.open_session import NewSession, end_others, renew_session
from engine.people.people import rules
from engine.people.people import store as people
from engine.people.people.service import record_person_event
from engine.people.people.store import PersonRow
from engine.people.services import PeopleServices
from engine.people.sessions.session_auth import Person
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.people.tokens import store as tokens
from engine.people.tokens.rules import Purpose
from engine.store.passwords import Passwords

RECENT = timedelta(minutes=10)  # after a sign-in, which replaces the password of a person without one


async def change_password(services: PeopleServices, caller: Person, current: str | None, new: str) -> NewSession:
    """Set a new password; return the caller's session with a new secret. All other sessions and pending links become
    invalid.

    Raises 401 `invalid_credentials` for a wrong current password, 400 for a new one that is guessable or unchanged, 403
    for a first one without a recent sign-in, 429 after too many tries.
    """
    person = await prove(services, caller, current)
    if current is not None and person.password_hash is not None and current == new:
        raise invalid("newPassword", "This is already your password.")
    hashed = await checked_hash(services.passwords, new, person, field="newPassword", known=True)
    pepper = services.settings.pepper
    async with services.pool.acquire() as connection, connection.transaction():
        at = clock.now()
        locked = await people.LOCK.first(connection, person.id)
        if locked is None or locked.password_hash != person.password_hash:  # changed since it was checked
            raise wrong()
        await people.SET_PASSWORD.execute(connection, person.id, hashed, at)
        await tokens.burn_all(connection, person.id, [Purpose.RESET_PASSWORD, Purpose.CHANGE_EMAIL, Purpose.SIGN_IN])
        await end_others(connection, person.id, caller.session_id)
        made = await renew_session(connection, pepper, caller.session_id, caller.account_id)
        await enqueue(connection, SystemMailKind.PASSWORD_CHANGED, locked.email, at=at)
        await record_person_event(connection, person.id, AccountEvent.MEMBER_PASSWORD_CHANGED, {})
    return made


async def prove(services: PeopleServices, caller: Person, password: str | None) -> PersonRow:
    """Check that the person of the session is present: by their password or, if they have none, by a recent sign-in.

    Raises 401 `invalid_credentials`, 403 for an old sign-in, 429 after too many tries. Only a session of the person,
    even a stolen one, can use up these tries.
    """
    rate = services.settings.sign_in_rate / 60
    standing = await services.limits.check(f"prove:{caller.user_id}", rate, burst_s=60)
    if not standing.allowed:
        raise too_many(standing.retry_after_s)
    person = await people.READ.first(services.pool, caller.user_id)
    if person is None:  # erased since the session was read
        raise wrong()
    if person.password_hash is None:
        if clock.now() - caller.row.created_at > RECENT:
            raise Refusal(
                ErrorType.FORBIDDEN, "You have no password. Sign in again, then repeat this within ten minutes."
            )
        return person
    if password is None:
        raise invalid("currentPassword", "`currentPassword` is required.")
    if not await services.passwords.matches(person.password_hash, password, known=True):
        raise wrong()
    return person


async def checked_hash(
    passwords: Passwords, password: str, person: PersonRow, *, field: str, known: bool = False
) -> str:
    """Return the hash of an acceptable password; raises 400 naming the field for a guessable one.

    `known`: for a signed-in person, as in `Passwords`.
    """
    about = [person.email, person.email.partition("@")[0], person.name]
    await passwords.apart(lambda: rules.check_password(password, about, field), known=known)
    return await passwords.hashed(password, known=known)


def wrong() -> Refusal:
    """Return the 401 for a wrong current password."""
    return Refusal(ErrorType.INVALID_CREDENTIALS, "The current password is wrong.")
