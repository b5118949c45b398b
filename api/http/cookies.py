"""The cookies that the API sets: never readable by scripts, never sent across sites with a change."""

from urllib.parse import urlsplit

from engine.areas.sessions.rules import ABSOLUTE, COOKIE
from engine.base.settings import Settings

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def session_cookie(settings: Settings, secret: str) -> str:
    """`Set-Cookie` of a session; it outlives the browser, and dies with the session's absolute lifetime."""
    return http_only(settings, COOKIE, secret, max_age_s=int(ABSOLUTE.total_seconds()))


def no_session(settings: Settings) -> str:
    """`Set-Cookie` that takes the session's cookie away."""
    return http_only(settings, COOKIE, "", max_age_s=0)


def http_only(settings: Settings, name: str, value: str, *, max_age_s: int, path: str = "/") -> str:
    """Any cookie of ours (RFC 6265): HttpOnly, SameSite=Lax, and Secure unless `plain_loopback`."""
    secure = "" if plain_loopback(settings) else "; Secure"
    return f"{name}={value}; Path={path}; Max-Age={max_age_s}; HttpOnly; SameSite=Lax{secure}"


def plain_loopback(settings: Settings) -> bool:
    """Whether people reach us by plain HTTP on this very machine, in local mode: the one place without TLS."""
    url = urlsplit(settings.public_url)
    return settings.delivery == "local" and url.scheme == "http" and url.hostname in _LOOPBACK
