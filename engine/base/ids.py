"""Create and parse identifiers: a prefix that names the type of object, then a UUIDv7 in 26 base32 characters.

Ids sort by creation time, so the id of a stored row also determines its weekly partition.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from uuid import UUID

from engine.base import clock

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford base32, lower case
_VALUE = {letter: index for index, letter in enumerate(ALPHABET)}
_LENGTH = 26
_LETTERS = bytes.maketrans(bytes(range(32)), ALPHABET.encode())


class Kind(StrEnum):
    """The type of object that an id identifies; the value is the prefix of the id."""

    MESSAGE = "msg"
    EVENT = "evt"
    WEBHOOK = "whk"
    API_KEY = "key"
    CHECKOUT = "chk"
    INVOICE = "inv"
    ACCOUNT = "acc"
    USER = "usr"
    SESSION = "ses"
    DOMAIN = "dom"
    CONTACT = "con"
    LIST = "lst"
    SEGMENT = "seg"
    BROADCAST = "brd"
    VERIFICATION = "ver"
    INBOUND_ADDRESS = "iad"
    INBOUND_ROUTE = "irt"
    RECEIVED = "imsg"
    ATTACHMENT = "att"
    ALERT_RULE = "alr"
    ALERT_EVENT = "ale"
    INVITE = "ivt"
    PASSKEY = "pky"
    IDENTITY = "idn"
    LEAD = "lead"
    REQUEST = "req"
    ERASURE = "ers"
    IMAGE = "img"
    VIEW = "viw"
    AGENT_SEND = "ags"


class WrongId(ValueError):  # noqa: N818 - named for what the caller gave
    """The text is not an id of the expected kind."""


def uuid7(at_ms: int | None = None, entropy: bytes | None = None) -> UUID:
    """Return a new UUIDv7 (RFC 9562 section 5.7); `at_ms` is Unix time in milliseconds, by default the present."""
    milliseconds = clock.unix_ms() if at_ms is None else at_ms
    random = int.from_bytes(entropy or _random_bytes(), "big")
    return UUID(int=(milliseconds << 80) | (random & _RANDOM) | _VERSION)


def _random_bytes() -> bytes:
    """Return ten random bytes from a buffer: one system call per id would cost 2 µs."""
    try:
        return _entropy.pop()
    except IndexError:
        block = os.urandom(_BYTES * _STORED)
        _entropy.extend([block[at : at + _BYTES] for at in range(_BYTES, len(block), _BYTES)])
        return block[:_BYTES]


_BYTES, _STORED = 10, 256
_RANDOM = 0x0FFF_3FFF_FFFF_FFFF_FFFF  # the lower 80 bits without those of version and variant
_VERSION = 0x7000_8000_0000_0000_0000
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_entropy: list[bytes] = []
os.register_at_fork(after_in_child=_entropy.clear)  # parent and child must not use the same random bytes


def uuid7s(count: int, at_ms: int | None = None) -> Iterator[UUID]:
    """Yield `count` UUIDv7s in ascending order: the random part counts up within the call."""
    milliseconds = clock.unix_ms() if at_ms is None else at_ms
    start = int.from_bytes(os.urandom(10), "big") >> 7  # headroom: adding `count` cannot overflow
    for step in range(count):
        random = start + step
        high = (milliseconds << 16) | 0x7000 | ((random >> 62) & 0xFFF)
        low = (random & 0x3FFF_FFFF_FFFF_FFFF) | 0x8000_0000_0000_0000
        yield UUID(int=(high << 64) | low)


def uuid7_at(at: datetime) -> UUID:
    """Return a new UUIDv7 for the time `at`, greater than every UUIDv7 made in this way for an earlier microsecond.

    The fraction of the millisecond takes the place of the leading random bits (RFC 9562 section 6.2, method 3).
    """
    milliseconds, microseconds = divmod((at - _EPOCH) // _MICROSECOND, 1000)
    random = int.from_bytes(_random_bytes()[:8], "big") & 0x3FFF_FFFF_FFFF_FFFF
    fraction = microseconds * 4096 // 1000
    return UUID(int=(milliseconds << 80) | (fraction << 64) | random | _VERSION)


def floor_of(at_ms: int) -> UUID:
    """Return the smallest UUIDv7 of a millisecond, to compare ids with a time."""
    return UUID(int=(max(at_ms, 0) << 80) | (0x7 << 76) | (0x8 << 60))


def milliseconds_of(value: UUID) -> int:
    """Return the Unix time in milliseconds at which a UUIDv7 was made."""
    return value.int >> 80


def format_id(kind: Kind, value: UUID) -> str:
    """Return the public form of an id, such as `msg_01h…`."""
    return f"{kind}_{encode(value)}"


def pattern(kind: Kind) -> str:
    """Return the regular expression (ECMA 262) of the public ids of a kind; 130 bits hold the 128 of a UUID."""
    return f"^{kind}_[0-7][0-9a-hjkmnp-tv-z]{{{_LENGTH - 1}}}$"


def body_of(public_id: str) -> str:
    """Return the 26 base32 characters of a public id, without its prefix."""
    return public_id[-_LENGTH:]


def encode(value: UUID) -> str:
    """Encode a UUID in 26 base32 characters, most significant first."""
    return base32(value.int, _LENGTH)


def base32(number: int, length: int) -> str:
    """Encode a number of at most 5 * `length` bits in `length` base32 characters, most significant first.

    Spreads the number until each octet holds five bits: 0.50 µs for 40 characters, 0.89 with a look-up for each pair.
    """
    for lower, upper, shift in _spreads(length):
        number = number & lower | (number & upper) << shift
    return number.to_bytes(length, "big").translate(_LETTERS).decode()


@cache
def _spreads(length: int) -> tuple[tuple[int, int, int], ...]:
    """Return the steps of `base32`: masks of the lower and upper halves of all groups, and how far the upper ones move.

    A group holds five bits for each of its characters, in the space of as many octets; each step halves the groups.
    """
    steps = []
    half = 1 << (length - 1).bit_length() >> 1  # characters in half a group
    groups = 1
    while half:
        masks = [((1 << 5 * half) - 1) << 16 * half * group for group in range(groups)]
        lower = sum(masks)
        steps.append((lower, lower << 5 * half, 3 * half))
        half, groups = half // 2, groups * 2
    return tuple(steps)


def parse_id(kind: Kind, text: str) -> UUID:
    """Return the UUID in a public id. Raises WrongId for another type of object or malformed text."""
    prefix, _, body = text.partition("_")
    if prefix != kind.value or len(body) != _LENGTH:
        raise WrongId(f"expected an id that begins with {kind.value}_")
    number = 0
    for letter in body:
        value = _VALUE.get(letter)
        if value is None:
            raise WrongId(f"an id that begins with {kind.value}_ has only the characters {ALPHABET}")
        number = (number << 5) | value
    if number >> 128:
        raise WrongId(f"expected an id that begins with {kind.value}_")
    return UUID(int=number)
