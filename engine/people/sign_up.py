"""Sign up: create a person with their first account, and mail the link that verifies the address.

An address that already has a person gets the same answer after the same work; only its mailbox gets a notice.
"""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from engine.base import clock, ids, local_mode
from engine.base.errors import ErrorType, Refusal
from engine.base.plans import Plan
from engine.base.secrets import Pepper
from engine.base.text import checked_line
from engine.people.log_in import slow_down
from engine.people.open_account import NewOwner, claim_for, open_with_owner
from engine.people.people import challenge, rules
from engine.people.people import store as people
from engine.people.services import PeopleServices
from engine.people.sessions.rules import Device
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.people.tokens import store as tokens
from engine.people.tokens.rules import Purpose, token_of
from engine.store.queries import Conn, Queries

NOTICES_PER_HOUR = 3  # notices to one mailbox about sign-ups with its address
MAX_NAME = 120


class SignUpOrigin(Struct, frozen=True):
    """When and from where a person signed up, and their first account."""

    created_at: datetime
    signed_up_from: str | None
    account_name: str | None


_SIGN_UP = Queries.beside(__file__, "sign_up.sql").rows("sign_up_of", SignUpOrigin)


class SignUpRequest(Struct, frozen=True):
    """The fields of a sign-up."""

    email: str
    password: str
    account_name: str | None
    challenge_token: str | None


async def sign_up(services: PeopleServices, wanted: SignUpRequest, device: Device) -> str:
    """Create person, account and transactional stream; return the address in canonical form.

    Raises 400 for a guessable password or an unsolved challenge, 403 if sign-up is closed, 429 for too many tries.
    """
    settings = services.settings
    if not local_mode.may_sign_up(settings):
        raise Refusal(ErrorType.FORBIDDEN, local_mode.sign_up_closed(settings))
    email = rules.checked_email(wanted.email)
    name = _name(wanted.account_name, email)
    await slow_down(services.limits, "signup", email, device, settings)
    pepper = settings.pepper
    asks = settings.signup_challenge == "required" or services.passwords.is_crowded
    proof = challenge.checked(pepper, wanted.challenge_token) if asks else None
    known = [email, email.partition("@")[0], name]
    await services.passwords.apart(lambda: rules.check_password(wanted.password, known))
    hashed = await services.passwords.hashed(wanted.password)
    notice = await services.limits.check(f"signup-notice:{email}", NOTICES_PER_HOUR / 3600, burst_s=3600)
    owner = NewOwner(email, hashed, signed_up_from=device.address)
    free = await claim_for(owner)
    async with services.pool.acquire() as connection, connection.transaction():
        at = clock.now()
        if proof is not None and not await people.SPEND.records(connection, proof, at + challenge.LIFETIME):
            raise challenge.spent()
        made = await open_with_owner(connection, owner, name=name, plan=Plan.FREE) if free else None
        if made is not None:
            await ask_to_verify(connection, pepper, made.owner_id, email)
        elif notice.allowed:
            await enqueue(connection, SystemMailKind.ADDRESS_TAKEN, email, at=at)
    return email


async def ask_to_verify(connection: Conn, pepper: Pepper, user: UUID, email: str) -> None:
    """Mail the links that verify an address or end the sign-up, within the caller's transaction; earlier links become
    invalid.

    The mail says for which account, when and from where the sign-up came: a stranger may have made it.
    """
    mail, at = ids.uuid7(), clock.now()
    await tokens.issue(connection, token_of(pepper, mail), Purpose.VERIFY_EMAIL, user, at=at, detail=email)
    ending = token_of(pepper, mail, Purpose.END_SIGN_UP)
    await tokens.issue(connection, ending, Purpose.END_SIGN_UP, user, at=at, detail=email)
    origin = await _SIGN_UP.first(connection, user)
    assert origin is not None  # the caller has made or locked the person
    await enqueue(
        connection, SystemMailKind.VERIFY_EMAIL, email, at=at, mail=mail, account_name=origin.account_name,
        signed_up_at=clock.iso(origin.created_at), network=origin.signed_up_from,
        requester=ids.format_id(ids.Kind.USER, user),
    )  # fmt: skip


def _name(given: str | None, email: str) -> str:
    return email.partition("@")[0] if given is None else checked_line(given, "accountName", MAX_NAME)
