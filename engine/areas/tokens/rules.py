"""What single-use tokens are for, how long they live, and how they come about. Pure."""

import base64
import hmac
import re
from datetime import timedelta
from enum import StrEnum
from hashlib import sha256
from uuid import UUID

from engine.base.errors import Refusal, invalid
from engine.base.secrets import derived

MAX_LENGTH = 200
_FORM = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)  # 256 bits in base64url without padding


class Purpose(StrEnum):
    """What presenting the token does."""

    VERIFY_EMAIL = "verify_email"
    RESET_PASSWORD = "reset_password"  # noqa: S105 - a purpose
    CHANGE_EMAIL = "change_email"


LIFETIME: dict[Purpose, timedelta] = {
    Purpose.VERIFY_EMAIL: timedelta(hours=48),
    Purpose.RESET_PASSWORD: timedelta(hours=1),
    Purpose.CHANGE_EMAIL: timedelta(hours=24),
}


def token_of(pepper: str, mail: UUID) -> str:
    """The token that goes out in one system mail: derived from the mail's id, so that a second try to send the mail
    carries the same one, and no table holds it."""
    return base64.urlsafe_b64encode(hmac.digest(derived(pepper, "mailed tokens"), mail.bytes, sha256))[:43].decode()


def digest_of(token: str) -> bytes:
    """What is stored: a plain digest suffices for 256 random bits."""
    return sha256(token.encode()).digest()


def well_formed(token: str) -> bool:
    """Whether it can be such a token."""
    return _FORM.fullmatch(token) is not None


def spent() -> Refusal:
    """The one answer to a token that is unknown, used, replaced by a newer one, or too old."""
    return invalid("token", "This link is used up or too old. Ask for a new one.")
