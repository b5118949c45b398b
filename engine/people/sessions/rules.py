"""Define the secrets, CSRF tokens and lifetimes of sessions. Pure, except for randomness."""

import base64
import hmac
import re
from datetime import timedelta
from hashlib import sha256

from msgspec import Struct

from engine.base.secrets import Pepper, derived, digest, random_base62

COOKIE = "svc_session"
ABSOLUTE = timedelta(days=30)
IDLE = timedelta(days=7)
REMEMBERED = timedelta(days=30)  # after a session's end, its address counts as known for its person
TOUCH_AFTER = timedelta(minutes=1)  # a use is written only if the stored one is older
MAX_AGENT = 300
LENGTH = 43  # of base62: 256 bits
_FORM = re.compile(rf"[0-9A-Za-z]{{{LENGTH}}}", re.ASCII)


class Device(Struct, frozen=True):
    """Address and user agent of a request."""

    address: str
    agent: str

    @classmethod
    def of(cls, address: str | None, agent: str | None) -> "Device":
        """Cut the user agent to the stored length and remove control characters."""
        printable = "".join(char for char in agent or "" if char.isprintable())
        return cls(address or "", printable[:MAX_AGENT])


def new_secret() -> str:
    """Return a new secret for the cookie."""
    return random_base62(LENGTH)


def well_formed(secret: str | None) -> bool:
    """Return True if the text has the form of a session secret."""
    return secret is not None and _FORM.fullmatch(secret) is not None


def digest_of(pepper: Pepper, secret: str) -> bytes:
    """Return the stored digest of the secret; the prefix separates it from other digests."""
    return digest(pepper, f"session {secret}")


def digests_of(pepper: Pepper, secret: str) -> list[bytes]:
    """Return the digests of a presented secret under each accepted pepper, the present one first."""
    return [digest_of(one, secret) for one in pepper.accepted]


def csrf_token(pepper: Pepper, secret: str) -> str:
    """Return the token required for changes in this session, derived from its secret and stored nowhere."""
    made = hmac.digest(derived(pepper, "csrf"), secret.encode(), sha256)
    return base64.urlsafe_b64encode(made).rstrip(b"=").decode()
