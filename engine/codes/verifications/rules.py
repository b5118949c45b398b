"""Make and compare one-time codes and confirmation links, and decide whether another code may be sent. Pure."""

import hmac
import math
import secrets
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final
from uuid import UUID

from msgspec import Struct

from engine.base import ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.secrets import DerivedKey, Pepper, derived, hmac_sha256, is_mac

WHAT: Final = "verification"
DEFAULT_CODE_LENGTH: Final = 6
MIN_CODE_LENGTH, MAX_CODE_LENGTH = 4, 8
MAX_CODE_TEXT: Final = 32  # characters of a guess, with blanks and hyphens
LIFE: Final = timedelta(minutes=10)
MAX_ATTEMPTS: Final = 5
MAX_CODES: Final = 5  # of one verification
MAX_CODES_AN_HOUR: Final = 10  # to one destination, of all verifications of an account
MAX_EXHAUSTED: Final = 3  # within 24 hours, without an approved one between
HOUR: Final = timedelta(hours=1)
_MAC_CHARACTERS: Final = 26  # 130 bits
_ID_CHARACTERS: Final = 26


class CodeKeys:
    """The keys of digests and links, derived from the pepper once per process."""

    def __init__(self, pepper: Pepper) -> None:
        self._pepper = pepper

    @cached_property
    def _destinations(self) -> DerivedKey:
        return derived(self._pepper, "verification destination")

    @cached_property
    def _codes(self) -> DerivedKey:
        return derived(self._pepper, "verification code")

    @cached_property
    def _links(self) -> DerivedKey:
        return derived(self._pepper, "verification link")

    def destination(self, account: UUID, canonical: str) -> bytes:
        """Return the digest of an address, different for each account."""
        return hmac_sha256(self._destinations, account.bytes + canonical.encode())

    def previous_destination(self, account: UUID, canonical: str) -> bytes | None:
        """Return the digest of an address under the previous pepper, None without one."""
        key = self._destinations.previous
        return None if key is None else hmac_sha256(key, account.bytes + canonical.encode())

    def is_destination(self, account: UUID, canonical: str, digest: bytes) -> bool:
        """Return True if `digest` is that of the address; in constant time."""
        return is_mac(self._destinations, account.bytes + canonical.encode(), digest)

    def code(self, verification: UUID, digits: str) -> bytes:
        """Return the digest of a code, which fits this verification alone."""
        return hmac_sha256(self._codes, verification.bytes + digits.encode())

    def is_code(self, verification: UUID, digits: str, digest: bytes) -> bool:
        """Return True if `digest` is that of the code; in constant time."""
        return is_mac(self._codes, verification.bytes + digits.encode(), digest)

    def link(self, verification: UUID, codes_sent: int) -> str:
        """Return the token of the confirmation link in the mail with this number of codes sent."""
        return ids.encode(verification) + _mac(self._links, verification, codes_sent)

    def fits_link(self, token: str, verification: UUID, codes_sent: int) -> bool:
        """Return True if the token is of the mail with this number of codes sent; in constant time."""
        given = token[_ID_CHARACTERS:].encode()
        keys = (self._links, self._links.previous)
        macs = [_mac(key, verification, codes_sent).encode() for key in keys if key is not None]
        return any(hmac.compare_digest(given, mac) for mac in macs)


class Destination(Struct, frozen=True):
    """The limits of a destination: times of codes within an hour (oldest first), and the end of its lock."""

    sent: Sequence[datetime]
    locked_until: datetime | None


def new_code(length: int) -> str:
    """Return random digits, every code equally likely."""
    return f"{secrets.randbelow(10**length):0{length}d}"


def folded(text: str) -> str:
    """Return a typed code without blanks and hyphens, with the digits of any script as ASCII."""
    kept = (char for char in text if not char.isspace() and unicodedata.category(char) not in ("Pd", "Cf", "Zs"))
    return "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in kept)


def id_of_link(token: str) -> UUID | None:
    """Return the verification that a link's token names; None for malformed text. The MAC is not checked."""
    text = token.lower()
    if len(text) != _ID_CHARACTERS + _MAC_CHARACTERS or not text.isascii():
        return None
    try:
        return ids.parse_id(ids.Kind.VERIFICATION, f"{ids.Kind.VERIFICATION.value}_{text[:_ID_CHARACTERS]}")
    except ids.WrongId:
        return None


def refuse_send(destination: Destination, at: datetime) -> Refusal | None:
    """Return the 429 of a locked destination or of one that got too many codes within an hour, else None."""
    locked = destination.locked_until
    if locked is not None and locked > at:
        return Refusal(
            ErrorType.DESTINATION_LOCKED,
            f"{MAX_EXHAUSTED} verifications for this address ran out of attempts. Start another when the lock ends.",
            retry_after_s=_seconds(locked - at),
        )
    recent = [one for one in destination.sent if one > at - HOUR]
    if len(recent) < MAX_CODES_AN_HOUR:
        return None
    return Refusal(
        ErrorType.RATE_LIMITED,
        f"This address received {len(recent)} codes within an hour, the limit. Wait before you send another.",
        retry_after_s=_seconds(recent[-MAX_CODES_AN_HOUR] + HOUR - at),
    )


def refuse_resend(status: str, codes_sent: int, expires_at: datetime, at: datetime) -> Refusal | None:
    """Return the refusal of another code for a verification that is finished or has sent all its codes, else None."""
    if status != "pending":
        return terminal(status)
    if codes_sent < MAX_CODES:
        return None
    return Refusal(
        ErrorType.RATE_LIMITED,
        f"This verification has sent {codes_sent} codes, the limit. Start a new verification.",
        retry_after_s=_seconds(expires_at - at),
    )


def terminal(status: str) -> Refusal:
    """Return the 409 for a check or resend of a verification that is finished."""
    return Refusal(ErrorType.TERMINAL_STATE, f"This verification is {status}. Start a new verification.", state=status)


def month_used(limit: int, used: int, *, retry_after_s: int) -> Refusal:
    """Return the 403 for a month whose verifications are used up."""
    return Refusal(
        ErrorType.PLAN_LIMIT_REACHED,
        f"You've sent this month's {limit} verification codes ({used}). Upgrade your plan, or wait until the first "
        "of the month (UTC).",
        retry_after_s=retry_after_s,
        resource="verifications",
        limit=limit,
        used=used,
    )


def other_destination() -> Refusal:
    """Return the 400 for a resend to another address than that of the start."""
    return invalid("to", "`to` is not the address of this verification. Start a new verification for another address.")


def _mac(key: bytes, verification: UUID, codes_sent: int) -> str:
    code = hmac_sha256(key, verification.bytes + bytes([codes_sent]))
    return ids.base32(int.from_bytes(code[:17], "big") >> 6, _MAC_CHARACTERS)


def _seconds(wait: timedelta) -> int:
    return max(1, math.ceil(wait.total_seconds()))
