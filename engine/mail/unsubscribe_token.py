"""Create and verify the tokens of unsubscribe links (`/u/<token>` and `u+<token>@`).

A token holds the id of a stored link and a keyed digest of it, in 48 lower-case base32 characters: `u+<token>` stays
within the 64 octets of a local part (RFC 5321 4.5.3.1.1). The digest tells a genuine token whose link was erased from a
forged one, without a lookup. Letters may arrive in either case, because some mail servers change local parts.
"""

from typing import Final
from uuid import UUID

from engine.base.ids import ALPHABET, base32
from engine.base.secrets import DerivedKey, Pepper, derived, hmac_sha256, is_mac

_ID_BYTES: Final = 16
_MAC_BYTES: Final = 14
_BYTES: Final = _ID_BYTES + _MAC_BYTES
LENGTH: Final = _BYTES * 8 // 5
_VALUES: Final = {letter: value for value, letter in enumerate(ALPHABET)}
_TOKEN, _PERSON = b"token:", b"person:"  # the two uses of the key


def key_of(pepper: Pepper) -> DerivedKey:
    """Derive the key of all unsubscribe links of an installation."""
    return derived(pepper, "unsubscribe link")


def token(key: DerivedKey, link: UUID) -> str:
    """Return the token of a link."""
    return base32(int.from_bytes(link.bytes + hmac_sha256(key, _TOKEN + link.bytes)[:_MAC_BYTES], "big"), LENGTH)


def link_of(key: DerivedKey, text: str) -> UUID | None:
    """Return the id in a genuine token, in letters of either case; None for a forged or malformed one."""
    if len(text) != LENGTH or not text.isascii():
        return None
    number = 0
    for letter in text.lower():
        value = _VALUES.get(letter)
        if value is None:
            return None
        number = number << 5 | value
    raw = number.to_bytes(_BYTES, "big")
    named, mac = raw[:_ID_BYTES], raw[_ID_BYTES:]
    return UUID(bytes=named) if is_mac(key, _TOKEN + named, mac) else None


def link_of_person(key: DerivedKey, account: UUID, address: str) -> UUID:
    """Return the id of the one link for all single messages of an account to a canonical address.

    The same person gets the same id, so that such links are stored once however many messages carry them (RFC 9562
    5.8: a UUID of version 8).
    """
    digest = hmac_sha256(key, _PERSON + account.bytes + address.encode())[:_ID_BYTES]
    number = int.from_bytes(digest, "big") & ~(0xF << 76) & ~(0x3 << 62)
    return UUID(int=number | 0x8 << 76 | 0x2 << 62)
