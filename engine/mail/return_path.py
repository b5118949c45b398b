"""Create and parse return paths: unguessable envelope senders that identify message and recipient (VERP).

`b+<token>@bounces.<mail host>`: 40 base32 characters hold the message id, the index of the recipient and a 64-bit keyed
digest of both. Index 255 stands for all recipients of a shared transaction.
"""

import hmac
from uuid import UUID

from msgspec import Struct

from engine.base.ids import ALPHABET, base32
from engine.base.secrets import derived, hmac_sha256

SHARED = 255
_PREFIX = "b+"
_MAC_BYTES = 8
_BYTES = 16 + 1 + _MAC_BYTES
_LENGTH = _BYTES * 8 // 5
_VALUES = {letter: value for value, letter in enumerate(ALPHABET)}


class ReturnPathOrigin(Struct, frozen=True):
    """The message and the index of the recipient that a return path identifies."""

    message_id: UUID
    place: int


def key_of(pepper: str) -> bytes:
    """Derive the key of all return paths of an installation."""
    return derived(pepper, "return path")


def return_path(key: bytes, message_id: UUID, place: int, domain: str) -> str:
    """Return the envelope sender of one transaction; `domain` is the bounce domain."""
    named = message_id.bytes + bytes((place,))
    number = int.from_bytes(named + _mac(key, named), "big")
    return f"{_PREFIX}{base32(number, _LENGTH)}@{domain}"


def beginning_of(message_id: UUID) -> str:
    """Return the characters with which all return paths of a message begin: 125 of the 128 bits of its id."""
    return _PREFIX + base32(message_id.int << 72, _LENGTH)[:25]


def origin(key: bytes, address: str) -> ReturnPathOrigin | None:
    """Return the origin of a return path of this installation; None for any other address, including forged ones."""
    local = address.rpartition("@")[0].lower()
    if not local.startswith(_PREFIX) or len(local) != len(_PREFIX) + _LENGTH:
        return None
    number = 0
    for letter in local[len(_PREFIX) :]:
        value = _VALUES.get(letter)
        if value is None:
            return None
        number = number << 5 | value
    raw = number.to_bytes(_BYTES, "big")
    named, mac = raw[:17], raw[17:]
    if not hmac.compare_digest(mac, _mac(key, named)):
        return None
    return ReturnPathOrigin(UUID(bytes=named[:16]), named[16])


def _mac(key: bytes, named: bytes) -> bytes:
    return hmac_sha256(key, named)[:_MAC_BYTES]
