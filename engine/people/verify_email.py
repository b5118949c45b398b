"""Verify a person's address: the link sent at sign-up, and further links on request."""

from datetime import datetime
from uuid import UUID

import asyncpg

from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.events import AccountEvent
from engine.people.log_in import slow_down, too_many
from engine.people.open_session import remember
from engine.people.people import store as people
from engine.people.people.service import record_person_event
from engine.people.people.store import PersonRow
from engine.people.services import PeopleServices
from engine.people.sessions.rules import Device
from engine.people.sessions.session_auth import Person
from engine.people.sign_up import ask_to_verify
from engine.people.tokens import rules as token_rules
from engine.people.tokens import store as tokens
from engine.people.tokens.rules import Purpose
from engine.store.queries import Conn, Queries

PER_MINUTE, PER_DAY = 5, 7  # links that one person may request

_SQL = Queries.beside(__file__, "verify_email.sql")
_MARK = _SQL.command("mark_verified")


async def verify(
    services: PeopleServices, token: str, device: Device, *, password: str | None = None, caller: Person | None = None
) -> None:
    """Mark the address of the token's person as verified: by the link alone, unless their password or session comes
    with it.

    Raises 400 for an invalid token, 401 `invalid_credentials` for a wrong password, after which the token remains
    valid; 429 for too many tries.
    """
    await slow_down(services.limits, "verify", None, device, services.settings)
    proof = await proof_with(services, token, Purpose.VERIFY_EMAIL, password, caller)
    async with services.pool.acquire() as connection, connection.transaction():
        person, address = await used_up(connection, token, Purpose.VERIFY_EMAIL, clock.now(), proof=proof)
        if address not in (None, person.email):  # sent to a former address
            raise token_rules.spent()
        await remember(connection, person.id, device)
        if proof is not None:
            await tokens.burn_all(connection, person.id, [Purpose.END_SIGN_UP])
        if await mark_verified(connection, person.id, by_link=proof is None):
            await record_person_event(connection, person.id, AccountEvent.MEMBER_EMAIL_VERIFIED, {})


async def proof_with(
    services: PeopleServices, token: str, purpose: Purpose, password: str | None, caller: Person | None
) -> PersonRow | None:
    """Return the token's person if their session or password proves that they asked for the link, else None.

    Raises 400 for an invalid token, 401 `invalid_credentials` for a wrong password.
    """
    holder = await tokens.holder(services.pool, token, purpose, clock.now())
    is_own = caller is not None and caller.user_id == holder
    if password is None and not is_own:
        return None
    person = await people.READ.first(services.pool, holder)
    if person is None:
        raise token_rules.spent()
    if not is_own and not await services.passwords.matches(person.password_hash, password or ""):
        raise _wrong_password()
    return person


async def used_up(
    connection: Conn, token: str, purpose: Purpose, at: datetime, *, proof: PersonRow | None = None
) -> tuple[PersonRow, str | None]:
    """Use up a token; return its locked person and what it confirms. Raises 400 for an invalid token, 401 if the
    password has changed since `proof`.

    The person is locked before the token, the order of every transaction that invalidates a person's tokens.
    """
    person = await people.LOCK.first(connection, await tokens.holder(connection, token, purpose, at))
    burnt = await tokens.burn(connection, token, purpose, at)
    if person is None:
        raise token_rules.spent()
    if proof is not None and proof.password_hash != person.password_hash:
        raise _wrong_password()
    return person, burnt.detail


async def send_again(services: PeopleServices, person: Person) -> None:
    """Mail another link; earlier ones become invalid. Raises 409 if the address is verified, 429 beyond the limits."""
    if person.row.email_verified:
        raise Refusal(ErrorType.INVALID_STATE, "Your address is already confirmed.", state="verified")
    name = f"verify-send:{person.user_id}"
    for bucket, most, seconds in ((f"{name}:minute", PER_MINUTE, 60), (f"{name}:day", PER_DAY, 86_400)):
        standing = await services.limits.check(bucket, most / seconds, burst_s=seconds)
        if not standing.allowed:
            raise too_many(standing.retry_after_s)
    async with services.pool.acquire() as connection, connection.transaction():
        await ask_to_verify(connection, services.settings.pepper, person.user_id, person.row.email)


async def mark_verified(connection: Conn, user: UUID, *, by_link: bool) -> bool:
    """Mark the person's address as verified; return False if it was already.

    `by_link`: by the link alone. Any other proof also replaces such a one.
    """
    rows: list[asyncpg.Record] = await _MARK.records(connection, user, clock.now(), by_link)
    return bool(rows) and rows[0]["is_new"]


def _wrong_password() -> Refusal:
    return Refusal(
        ErrorType.INVALID_CREDENTIALS,
        "The password is wrong. Check it, or set a new one by mail, which also confirms the address.",
    )
