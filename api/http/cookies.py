"""Build the `Set-Cookie` values of the API: HttpOnly, and SameSite=Lax against cross-site requests."""

from urllib.parse import urlsplit

from engine.base.settings import Settings
from engine.people.sessions.rules import ABSOLUTE, COOKIE

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def session_cookie(settings: Settings, secret: str) -> str:
    """Return `Set-Cookie` for a session; the cookie expires with the session's absolute lifetime."""
    return http_only(settings, COOKIE, secret, max_age_s=int(ABSOLUTE.total_seconds()))


def no_session(settings: Settings) -> str:
    """Return the `Set-Cookie` that deletes the session's cookie."""
    return http_only(settings, COOKIE, "", max_age_s=0)


def http_only(settings: Settings, name: str, value: str, *, max_age_s: int, path: str = "/") -> str:
    """Return `Set-Cookie` (RFC 6265) with HttpOnly, SameSite=Lax, and Secure unless `plain_loopback`."""
    secure = "" if plain_loopback(settings) else "; Secure"
    return f"{name}={value}; Path={path}; Max-Age={max_age_s}; HttpOnly; SameSite=Lax{secure}"


def plain_loopback(settings: Settings) -> bool:
    """Return True if the service is reached by plain HTTP on loopback, which only local mode allows."""
    url = urlsplit(settings.public_url)
    return settings.delivery == "local" and url.scheme == "http" and url.hostname in _LOOPBACK
