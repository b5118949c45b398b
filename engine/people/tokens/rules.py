"""Define purposes, lifetimes and derivation of single-use tokens. Pure."""

import base64
import hmac
import re
import secrets
from datetime import timedelta
from enum import StrEnum
from hashlib import sha256
from uuid import UUID

from engine.base.errors import Refusal, invalid
from engine.base.secrets import Pepper, derived

MAX_LENGTH = 200
_FORM = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)  # 256 bits in base64url without padding


class Purpose(StrEnum):
    """State the action that a token confirms."""

    VERIFY_EMAIL = "verify_email"
    RESET_PASSWORD = "reset_password"  # noqa: S105 - a purpose
    CHANGE_EMAIL = "change_email"
    SIGN_IN = "sign_in"
    END_SIGN_UP = "end_sign_up"


LIFETIME: dict[Purpose, timedelta] = {
    Purpose.VERIFY_EMAIL: timedelta(hours=48),
    Purpose.RESET_PASSWORD: timedelta(hours=1),
    Purpose.CHANGE_EMAIL: timedelta(hours=24),
    Purpose.SIGN_IN: timedelta(hours=1),
    Purpose.END_SIGN_UP: timedelta(hours=48),
}


def token_of(pepper: Pepper, mail: UUID, second: Purpose | None = None) -> str:
    """Return the token for one system mail, or its second token, for another purpose.

    It is derived from the mail's id: a retry sends the same token, and no table stores it.
    """
    named = mail.bytes if second is None else mail.bytes + second.value.encode()
    return base64.urlsafe_b64encode(hmac.digest(derived(pepper, "mailed tokens"), named, sha256))[:43].decode()


def random_token() -> str:
    """Return a random token, for a link that is shown instead of mailed."""
    return secrets.token_urlsafe(32)


def digest_of(token: str) -> bytes:
    """Return the stored digest; a plain hash suffices for 256 random bits."""
    return sha256(token.encode()).digest()


def well_formed(token: str) -> bool:
    """Return True if the text has the form of a token."""
    return _FORM.fullmatch(token) is not None


def spent() -> Refusal:
    """Return the refusal of a token that is unknown, used, replaced or expired."""
    return invalid("token", "This link was already used or has expired. Request a new one.")
