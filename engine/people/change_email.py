"""Change the address that a person signs in with: requested with the password, made once the new mailbox confirms
it.

No answer reveals whether the new address has a person; in that case its mailbox gets a notice instead of a link
(engine.accounts.send_system_mail).
"""

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.events import AccountEvent
from engine.cells import claims
from engine.cells.claims import ClaimKind
from engine.cells.directory import ClaimedElsewhere
from engine.people.change_password import prove
from engine.people.log_in import slow_down, too_many
from engine.people.open_session import NewSession, end_others, remember, renew_session
from engine.people.people import rules
from engine.people.people.service import record_person_event
from engine.people.services import PeopleServices
from engine.people.sessions.rules import Device
from engine.people.sessions.session_auth import Person
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.people.tokens import rules as token_rules
from engine.people.tokens import store as tokens
from engine.people.tokens.rules import Purpose, token_of
from engine.people.verify_email import proof_with, used_up
from engine.store.database_errors import UniqueViolation
from engine.store.queries import Queries

PER_DAY = 20  # changes that one person may request

_SQL = Queries.beside(__file__, "change_email.sql")
_SET = _SQL.command("set_email")


async def request_change(services: PeopleServices, caller: Person, new_email: str, password: str | None) -> None:
    """Mail a link to the new address and a notice to the old one; earlier links become invalid.

    Raises 422 for an invalid address, 400 for the caller's own, else as `engine.people.change_password.prove`.
    """
    address = rules.checked_email(new_email, "newEmail")
    person = await prove(services, caller, password)
    if address == person.email:
        raise invalid("newEmail", "This is already your address.")
    standing = await services.limits.check(f"change-email:{person.id}", PER_DAY / 86_400, burst_s=86_400)
    if not standing.allowed:
        raise too_many(standing.retry_after_s)
    mail = ids.uuid7()
    token = token_of(services.settings.pepper, mail)
    async with services.pool.acquire() as connection, connection.transaction():
        at = clock.now()
        await tokens.issue(connection, token, Purpose.CHANGE_EMAIL, person.id, at=at, detail=address)
        requester = ids.format_id(ids.Kind.USER, person.id)
        await enqueue(connection, SystemMailKind.CONFIRM_EMAIL, address, at=at, mail=mail, requester=requester)
        await enqueue(connection, SystemMailKind.EMAIL_CHANGING, person.email, at=at, new_email=address)
        await record_person_event(connection, person.id, AccountEvent.MEMBER_EMAIL_CHANGE_REQUESTED, {})


async def confirm(
    services: PeopleServices, token: str, device: Device, *, password: str | None = None, caller: Person | None = None
) -> NewSession | None:
    """Change the address that the token confirms, and end the person's sessions; it counts as verified, by the link
    alone unless their password or session comes with it.

    If the caller's own session confirms it, that session continues with a new secret, which is returned. Raises 400 for
    an invalid token, 401 `invalid_credentials` for a wrong password, 409 if another person has taken the address
    meanwhile.
    """
    await slow_down(services.limits, "confirm", None, device, services.settings)
    proof = await proof_with(services, token, Purpose.CHANGE_EMAIL, password, caller)
    shown = await tokens.presented(services.pool, token, Purpose.CHANGE_EMAIL, clock.now())
    try:
        await claims.claim(ClaimKind.EMAIL, shown.detail or "", shown.user_id)
    except ClaimedElsewhere:
        raise _taken() from None
    async with services.pool.acquire() as connection, connection.transaction():
        at = clock.now()
        person, address = await used_up(connection, token, Purpose.CHANGE_EMAIL, at, proof=proof)
        if address is None:
            raise token_rules.spent()
        try:
            await _SET.execute(connection, person.id, address, at, proof is None)
        except UniqueViolation:
            raise _taken() from None
        await tokens.burn_all(connection, person.id, Purpose)  # they were sent to the old address
        own = caller if caller is not None and caller.user_id == person.id else None
        await end_others(connection, person.id, None if own is None else own.session_id)
        made = None
        if own is None:
            await remember(connection, person.id, device)
        else:
            pepper = services.settings.pepper
            made = await renew_session(connection, pepper, own.session_id, own.account_id)
        await enqueue(connection, SystemMailKind.EMAIL_CHANGED, person.email, at=at, new_email=address)
        await record_person_event(connection, person.id, AccountEvent.MEMBER_EMAIL_CHANGED, {})
    return made


def _taken() -> Refusal:
    return Refusal(ErrorType.CONFLICT, "Another person now uses this address. Choose another one.")
