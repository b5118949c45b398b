"""Build the response that every way of signing in returns: the session's cookie, person and account."""

from typing import Literal, cast

from msgspec import Struct

from api.http import auth
from api.http.cookies import session_cookie
from api.http.operation import Call
from engine.base import ids
from engine.people.open_session import NewSession
from engine.people.sessions.session_auth import Person


class PersonShown(Struct, rename="camel"):
    """The signed-in person; `name` and `timezone` are null if the person has not set them."""

    id: str
    email: str
    email_verified: bool
    name: str | None
    two_factor: bool
    timezone: str | None


class AccountShown(Struct, rename="camel"):
    """The account that the session works on."""

    id: str
    name: str
    role: Literal["member", "admin", "owner"]
    plan: str
    status: Literal["active", "suspended", "closing"]


class Session(Struct, rename="camel"):
    """A session, whose cookie the response sets; send `csrfToken` in the header `X-CSRF-Token` with every change.

    `operator`: the person may call the operations under `/v1/operator/`.
    """

    csrf_token: str
    user: PersonShown
    account: AccountShown
    operator: bool


async def session_reply(call: Call, made: NewSession) -> Session:
    """Set the session's cookie, and return its CSRF token, person and account."""
    person = await call.services.sessions.person(made.secret, auth.device(call.request))
    if person is None:  # the session was ended since it was created
        raise auth.sign_in_required()
    call.cookies = (*call.cookies, session_cookie(call.settings, made.secret))
    return Session(made.csrf, person_of(person), account_of(person), auth.is_operator(call.settings, person))


def renew_session(call: Call, made: NewSession) -> None:
    """Set the cookie of a session with a new secret, and its new CSRF token in a response header.

    The header serves responses without a body too.
    """
    call.cookies = (*call.cookies, session_cookie(call.settings, made.secret))
    call.headers = (*call.headers, (auth.CSRF_HEADER, made.csrf))


def person_of(person: Person) -> PersonShown:
    """Return the person of a session."""
    row = person.row
    return PersonShown(
        ids.format_id(ids.Kind.USER, person.user_id),
        row.email,
        row.email_verified,
        row.name or None,
        row.has_totp,
        row.timezone,
    )


def account_of(person: Person) -> AccountShown:
    """Return the account of a session."""
    row = person.row
    return account_shown(
        ids.format_id(ids.Kind.ACCOUNT, person.account_id), row.account_name, row.role, row.plan, row.account_status
    )


def account_shown(public_id: str, name: str, role: str, plan: str, status: str) -> AccountShown:
    """Return an account with a person's role on it; the database checks `role` and `status`."""
    return AccountShown(
        public_id,
        name,
        cast("Literal['member', 'admin', 'owner']", role),
        plan,
        cast("Literal['active', 'suspended', 'closing']", status),
    )
