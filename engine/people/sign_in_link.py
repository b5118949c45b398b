"""Sign in with a link that the operator shows: `ops up` to the first owner, `ops person sign-in-link` to anybody.

The link works once and replaces earlier ones of its person. Its token stands in the fragment, which no server and no
log receives. A person with a second factor must also give a code: the link stands in for the password only.
"""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.events import AccountEvent
from engine.base.settings import Settings
from engine.people.log_in import slow_down
from engine.people.open_session import NewSession, Outdated, open_in
from engine.people.people import store as people
from engine.people.people.service import record_person_event
from engine.people.people.store import PersonRow
from engine.people.person_admin import OPERATOR
from engine.people.second_factor import service as second_factor
from engine.people.services import PeopleServices
from engine.people.sessions.rules import Device
from engine.people.tokens import rules as token_rules
from engine.people.tokens import store as tokens
from engine.people.tokens.rules import LIFETIME, Purpose
from engine.store.queries import Queries

PAGE: Final = "/console/sign-in"  # reads `token` out of the fragment
METHOD: Final = "link"
LOCAL_LIFETIME: Final = timedelta(hours=24)  # a terminal that stays open all day; only this machine can use the link

_SQL = Queries.beside(__file__, "sign_in_link.sql")


class FirstOwner(Struct, frozen=True):
    """The owner who was the first on an account, and whether they have ever signed in."""

    id: UUID
    email: str
    signed_in: bool


class SignInLink(Struct, frozen=True):
    """A new link, the only time that its token is known."""

    url: str
    expires_at: datetime


_FIRST_OWNER = _SQL.rows("first_owner", FirstOwner)


async def first_owner(pool: asyncpg.Pool, account: UUID | None) -> FirstOwner | None:
    """Return the first owner of the account, by default of the oldest one; None if there is none."""
    return await _FIRST_OWNER.first(pool, account)


async def make_link(pool: asyncpg.Pool, settings: Settings, user: UUID) -> SignInLink:
    """Return a new link for a person, recorded in the logs of their accounts; raises Refusal if they are erased."""
    token, at = token_rules.random_token(), clock.now()
    lifetime = LOCAL_LIFETIME if settings.delivery == "local" else LIFETIME[Purpose.SIGN_IN]
    async with pool.acquire() as connection, connection.transaction():
        if await people.LOCK.first(connection, user) is None:
            raise token_rules.spent()
        await tokens.issue(connection, token, Purpose.SIGN_IN, user, at=at, lifetime=lifetime)
        await record_person_event(
            connection, user, AccountEvent.MEMBER_SIGN_IN_LINK_MADE, {"expires_at": clock.iso(at + lifetime)},
            actor=OPERATOR,
        )  # fmt: skip
    return SignInLink(f"{settings.public_url.rstrip('/')}{PAGE}#token={token}", at + lifetime)


async def follow_link(services: PeopleServices, token: str, code: str | None, device: Device) -> NewSession:
    """Return a session for the token of a link, which this uses up.

    Raises 400 for an invalid token, 401 `totp_required` and `invalid_credentials` for a person with a second factor
    without or with a wrong code, after which the link remains valid; 429 after too many tries.
    """
    await slow_down(services.limits, METHOD, None, device, services.settings)
    person = await _holder(services, token)
    method = METHOD
    if person.has_totp:
        method = f"{METHOD}+{await _factor(services, person, code)}"
    pepper = services.settings.pepper
    try:
        async with services.pool.acquire() as connection, connection.transaction():
            await people.LOCK.first(connection, person.id)  # before the token, as in `verify_email.used_up`
            await tokens.burn(connection, token, Purpose.SIGN_IN, clock.now())
            return await open_in(connection, pepper, person.id, method=method, device=device, proven=person)
    except Outdated:
        raise token_rules.spent() from None


async def _holder(services: PeopleServices, token: str) -> PersonRow:
    holder = await tokens.holder(services.pool, token, Purpose.SIGN_IN, clock.now())
    person = await people.READ.first(services.pool, holder)
    if person is None:
        raise token_rules.spent()
    return person


async def _factor(services: PeopleServices, person: PersonRow, code: str | None) -> str:
    """Check the code; return the factor that it proves."""
    if code is None:
        raise Refusal(
            ErrorType.TOTP_REQUIRED, "A code is required: send `code` from your authenticator app, or a recovery code."
        )
    factor = await second_factor.proven(services, person.id, code, clock.now())
    if factor is None:
        raise Refusal(ErrorType.INVALID_CREDENTIALS, "This code is wrong or already used. Wait for the next one.")
    return factor.value
