"""Read and check the credentials of a request: its API key, or the session named by its cookie."""

import hmac

import falcon.asgi

from api.http.operation import LimitedKeys
from engine.base import operators
from engine.base.errors import ErrorType, Refusal
from engine.base.roles import Role
from engine.base.settings import Settings, variable
from engine.people.api_keys import rules
from engine.people.api_keys.rules import KeyRestrictions
from engine.people.sessions.rules import COOKIE, Device
from engine.people.sessions.session_auth import Person

CSRF_HEADER = "X-CSRF-Token"


def bearer(header: str | None) -> rules.FreshApiKey | None:
    """Return the API key of an Authorization header, or None. The scheme is case-insensitive, spaces are tolerated."""
    if header is None:
        return None
    parts = header.split(None, 1)
    if len(parts) != 2 or parts[0].lower() != "bearer":
        return None
    return rules.parse(parts[1].strip())


def session_secret(request: falcon.asgi.Request) -> str | None:
    """Return the session's secret from the cookie, or None."""
    values = request.get_cookie_values(COOKIE)
    return values[0] if values else None


def device(request: falcon.asgi.Request) -> Device:
    """Return the client's address and user agent."""
    return Device.of(request.remote_addr, request.user_agent)


def check_csrf(person: Person, header: str | None) -> None:
    """Raise 403 `csrf_failed` unless `header` is the CSRF token of the session."""
    if header is None or not any(hmac.compare_digest(header.encode(), one.encode()) for one in person.csrf_tokens):
        raise Refusal(
            ErrorType.CSRF_FAILED,
            f"Send the session's CSRF token in {CSRF_HEADER}; signing in and GET /v1/auth/me return it.",
        )


def check_role(person: Person, role: Role | None) -> None:
    """Raise 403 `forbidden` unless the person has `role` or a higher one."""
    if role is not None and not person.role.includes(role):
        raise Refusal(ErrorType.FORBIDDEN, f"This needs the role {role.value} or higher; yours is {person.role.value}.")


def check_limits(reach: KeyRestrictions | None, use: LimitedKeys | None) -> None:
    """Raise 403 `forbidden` if a key with these restrictions must not call an operation of this `use` at all."""
    if reach is None:
        return
    whole = use is LimitedKeys.WHOLE_ACCOUNT
    if reach.domains is not None and (whole or use is LimitedKeys.OWN_STREAMS):
        raise _key_too_limited("domains")
    if reach.streams is not None and (whole or use is LimitedKeys.OWN_DOMAINS):
        raise _key_too_limited("streams")


def _key_too_limited(what: str) -> Refusal:
    return Refusal(
        ErrorType.FORBIDDEN,
        f"This API key is limited to some {what}, but this endpoint covers all. Use a key without this limit, or a "
        "signed-in session.",
    )


def is_operator(settings: Settings, person: Person) -> bool:
    """Return True if the signed-in person is an operator of the installation."""
    row = person.row
    return operators.is_operator(
        settings, row.email, is_verified=row.email_verified, is_confirmed=row.operator_confirmed
    )


def check_operator(settings: Settings, person: Person) -> None:
    """Raise 404 unless the person is an operator, and in live mode 403 if the session has no second factor.

    The 404 is the same for all others and all paths: it does not tell who is an operator, nor what exists.
    """
    if not is_operator(settings, person):
        raise Refusal(
            ErrorType.NOT_FOUND,
            f"No such endpoint for this session. Operators must be listed in {variable('operators')} and confirmed "
            "with `ops person operator`.",
        )
    if settings.delivery == "live" and not person.used_second_factor:
        raise Refusal(
            ErrorType.FORBIDDEN,
            "Operators need a second factor. Set up an authenticator app or a passkey, then sign in again with it.",
        )


def check_not_suspended(person: Person) -> None:
    """Raise 403 `account_suspended` if the person's account is suspended."""
    if person.suspended:
        raise Refusal(
            ErrorType.ACCOUNT_SUSPENDED,
            "Your account is suspended. You can read data, revoke keys and remove members, but change nothing "
            "else. Ask the operator.",
        )


def sign_in_required() -> Refusal:
    """Return the 401 for a request without a valid session at an endpoint for signed-in persons."""
    return Refusal(ErrorType.UNAUTHORIZED, "Sign in first: this endpoint needs a signed-in session.")


def session_required() -> Refusal:
    """Return the 403 for a valid API key at an endpoint for signed-in persons."""
    return Refusal(ErrorType.FORBIDDEN, "This endpoint needs a signed-in session; an API key can't call it.")
