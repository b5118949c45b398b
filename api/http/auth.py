"""The credentials of a request: its API key, or the session of its cookie."""

import hmac

import falcon.asgi

from engine.areas.api_keys import rules
from engine.areas.sessions.rules import COOKIE, Device
from engine.areas.sessions.session_auth import Person
from engine.base.errors import ErrorType, Refusal
from engine.base.roles import Role

CSRF_HEADER = "X-CSRF-Token"


def bearer(header: str | None) -> rules.FreshApiKey | None:
    """The key of an Authorization header: scheme in any case, surrounding white space tolerated."""
    if header is None:
        return None
    parts = header.split(None, 1)
    if len(parts) != 2 or parts[0].lower() != "bearer":
        return None
    return rules.parse(parts[1].strip())


def session_secret(request: falcon.asgi.Request) -> str | None:
    """The session's secret out of the cookie, or None."""
    values = request.get_cookie_values(COOKIE)
    return values[0] if values else None


def device(request: falcon.asgi.Request) -> Device:
    """Where the request comes from."""
    return Device.of(request.remote_addr, request.user_agent)


def check_csrf(person: Person, header: str | None) -> None:
    """The token must be the session's own; 403 `csrf_failed`."""
    if header is None or not hmac.compare_digest(header.encode(), person.csrf.encode()):
        raise Refusal(
            ErrorType.CSRF_FAILED,
            f"Send the session's CSRF token in {CSRF_HEADER}; signing in and GET /v1/auth/me give it.",
        )


def check_role(person: Person, role: Role | None) -> None:
    """The person needs the role or a higher one; 403 `forbidden`."""
    if role is not None and not person.role.includes(role):
        raise Refusal(ErrorType.FORBIDDEN, f"This takes the role {role.value} or higher; yours is {person.role.value}.")


def check_standing(person: Person) -> None:
    """The account must not be suspended; 403 `account_suspended`."""
    if person.suspended:
        raise Refusal(
            ErrorType.ACCOUNT_SUSPENDED,
            "This account is suspended: it can be read, and keys and people can be taken off it; nothing else can be "
            "changed. Ask the operator.",
        )


def sign_in_first() -> Refusal:
    """The one answer of an endpoint for people to whoever is not signed in."""
    return Refusal(ErrorType.UNAUTHORIZED, "Sign in first: this endpoint takes a signed-in session.")


def people_only() -> Refusal:
    """What a good API key hears at an endpoint for people."""
    return Refusal(ErrorType.FORBIDDEN, "This endpoint takes a signed-in session; an API key can't call it.")
