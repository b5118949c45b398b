"""The form of a session's secret, its CSRF token and its lifetimes. Pure."""

import base64
import hmac
import re
from datetime import timedelta
from hashlib import sha256

from msgspec import Struct

from engine.base.secrets import derived, digest, random_base62

COOKIE = "svc_session"
ABSOLUTE = timedelta(days=30)
IDLE = timedelta(days=7)
REMEMBERED = timedelta(days=30)  # after a session's end: its person is known from where it was
TOUCH_AFTER = timedelta(minutes=1)  # a use is written when the one on record is older
MAX_AGENT = 300
LENGTH = 43  # of base62: 256 bits
_FORM = re.compile(rf"[0-9A-Za-z]{{{LENGTH}}}", re.ASCII)


class Device(Struct, frozen=True):
    """Where a request comes from, as far as it tells."""

    address: str
    agent: str

    @classmethod
    def of(cls, address: str | None, agent: str | None) -> "Device":
        """Cut to what is stored; without control characters, which would spoil lists and logs."""
        printable = "".join(char for char in agent or "" if char.isprintable())
        return cls(address or "", printable[:MAX_AGENT])


def new_secret() -> str:
    """What goes into the cookie."""
    return random_base62(LENGTH)


def well_formed(secret: str | None) -> bool:
    """Whether it can be a session's secret at all."""
    return secret is not None and _FORM.fullmatch(secret) is not None


def digest_of(pepper: str, secret: str) -> bytes:
    """What is stored of the secret; another key's digest of the same text would differ."""
    return digest(pepper, f"session {secret}")


def csrf_token(pepper: str, secret: str) -> str:
    """The token that every change made with this session carries; it changes with the secret and is stored nowhere."""
    made = hmac.digest(derived(pepper, "csrf"), secret.encode(), sha256)
    return base64.urlsafe_b64encode(made).rstrip(b"=").decode()
