"""Reset a forgotten password: mail a link to the address, and set the password that comes with its token.

Neither the answer nor its time reveals whether an address has a person: that is looked up when the mail is sent
(engine.accounts.send_system_mail).
"""

from msgspec import Struct

from engine.base import clock
from engine.base.events import AccountEvent
from engine.people.change_password import checked_hash
from engine.people.identity import store as identities
from engine.people.identity.types import IdentityRow
from engine.people.log_in import slow_down
from engine.people.open_session import end_others, remember
from engine.people.passkeys import store as passkeys
from engine.people.passkeys.store import PasskeyRow
from engine.people.people import rules
from engine.people.people import store as people
from engine.people.people.service import record_person_event
from engine.people.people.store import PersonRow
from engine.people.services import PeopleServices
from engine.people.sessions.rules import Device
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.people.tokens import rules as token_rules
from engine.people.tokens import store as tokens
from engine.people.tokens.rules import Purpose
from engine.people.unproven_access import drop_factors, drop_other_ways, is_unproven
from engine.people.unproven_accounts import EndedAccess, end_access
from engine.people.verify_email import mark_verified, used_up
from engine.store import caches


async def forgot(services: PeopleServices, email: str, device: Device) -> None:
    """Record a request to reset the password of this address; raises 422 for an invalid address, 429 for too many."""
    address = rules.checked_email(email)
    await slow_down(services.limits, "forgot", address, device, services.settings)
    async with services.pool.acquire() as connection:
        await enqueue(connection, SystemMailKind.FORGOT_PASSWORD, address, at=clock.now())


class LastingWaysIn(Struct, frozen=True):
    """The ways to sign in that a new password does not close."""

    passkeys: list[PasskeyRow]
    identities: list[IdentityRow]


async def other_ways_in(services: PeopleServices, token: str, device: Device) -> LastingWaysIn:
    """Return passkeys and identities of the person of a reset link, which stays valid; raises 400 for another."""
    await slow_down(services.limits, "reset-ways", None, device, services.settings)
    person = await _holder(services, token)
    return LastingWaysIn(
        await passkeys.LIST.fetch(services.pool, person.id), await identities.LIST.fetch(services.pool, person.id)
    )


async def reset(
    services: PeopleServices, token: str, password: str, device: Device, *, remove_others: bool = False
) -> None:
    """Set the password of the token's person, whose mailbox the token verifies; end all their sessions.

    `remove_others` also deletes their passkeys and identities.

    A second factor stays if the address was proven before. If not, or by the link alone, second factor, passkeys and
    identities are deleted, because a stranger may have set them up, and other access to their accounts ends. Raises 400
    for an invalid token, and for a guessable password, after which the token remains valid.
    """
    await slow_down(services.limits, "reset", None, device, services.settings)
    holder = await _holder(services, token)
    hashed = await checked_hash(services.passwords, password, holder, field="password", known=True)
    async with services.pool.acquire() as connection, connection.transaction():
        at = clock.now()
        person, address = await used_up(connection, token, Purpose.RESET_PASSWORD, at)
        if address not in (None, person.email):  # sent to a former address
            raise token_rules.spent()
        await people.SET_PASSWORD.execute(connection, person.id, hashed, at)
        ended = EndedAccess()
        if is_unproven(person):
            dropped = await drop_factors(connection, person.id)
            ended = await end_access(connection, person.id)
            await mark_verified(connection, person.id, by_link=False)
            detail = {"factors_dropped": dropped, **ended.detail()}
            await record_person_event(connection, person.id, AccountEvent.MEMBER_EMAIL_VERIFIED, detail)
        elif remove_others:
            removed = await drop_other_ways(connection, person.id)
            await record_person_event(connection, person.id, AccountEvent.MEMBER_WAYS_IN_REMOVED, {"removed": removed})
        await tokens.burn_all(connection, person.id, Purpose)
        await end_others(connection, person.id, None)
        await remember(connection, person.id, device)
        await enqueue(connection, SystemMailKind.PASSWORD_CHANGED, person.email, at=at, ended=ended.words() or None)
        await record_person_event(connection, person.id, AccountEvent.MEMBER_PASSWORD_RESET, {})
    caches.clear_here("keys")


async def _holder(services: PeopleServices, token: str) -> PersonRow:
    """Return the token's person, so that the password can be checked before the token is used up."""
    holder = await tokens.holder(services.pool, token, Purpose.RESET_PASSWORD, clock.now())
    person = await people.READ.first(services.pool, holder)
    if person is None:
        raise token_rules.spent()
    return person
