"""The answer to every way of signing in: a session's cookie, and beside it who is signed in where."""

from typing import Literal, cast

from msgspec import Struct

from api.http import auth
from api.http.cookies import session_cookie
from api.http.operation import Call
from engine.areas.sessions.session_auth import Person
from engine.base import ids
from engine.flows.people.open_session import NewSession


class PersonShown(Struct, rename="camel"):
    """Who is signed in. `name` is null where they have given none."""

    id: str
    email: str
    email_verified: bool
    name: str | None
    two_factor: bool


class AccountShown(Struct, rename="camel"):
    """The account that the session is at."""

    id: str
    name: str
    role: Literal["member", "admin", "owner"]
    plan: str
    status: Literal["active", "suspended", "closing"]


class Session(Struct, rename="camel"):
    """A session: its cookie is set beside this. Every change sends `csrfToken` in `X-CSRF-Token`."""

    csrf_token: str
    user: PersonShown
    account: AccountShown


async def opened(call: Call, made: NewSession) -> Session:
    """Set the session's cookie and tell its CSRF token, its person and its account."""
    person = await call.services.sessions.person(made.secret, auth.device(call.request))
    if person is None:  # ended between its making and now
        raise auth.sign_in_first()
    call.cookies = (*call.cookies, session_cookie(call.settings, made.secret))
    return Session(made.csrf, shown_person(person), shown_account(person))


def renewed(call: Call, made: NewSession) -> None:
    """The cookie of a session that goes on under a new secret, and its new CSRF token in a header: the answer may have
    no body."""
    call.cookies = (*call.cookies, session_cookie(call.settings, made.secret))
    call.headers = (*call.headers, (auth.CSRF_HEADER, made.csrf))


def shown_person(person: Person) -> PersonShown:
    """The person of a session."""
    row = person.row
    return PersonShown(
        ids.format_id(ids.Kind.USER, person.user_id), row.email, row.email_verified, row.name or None, row.has_totp
    )


def shown_account(person: Person) -> AccountShown:
    """The account that a session is at."""
    row = person.row
    return account_shown(
        ids.format_id(ids.Kind.ACCOUNT, person.account_id), row.account_name, row.role, row.plan, row.account_status
    )


def account_shown(public_id: str, name: str, role: str, plan: str, status: str) -> AccountShown:
    """An account with a person's role on it; the texts are the database's, which checks them."""
    return AccountShown(
        public_id,
        name,
        cast("Literal['member', 'admin', 'owner']", role),
        plan,
        cast("Literal['active', 'suspended', 'closing']", status),
    )
