"""Create and parse return paths: unguessable envelope senders that identify message and recipient (VERP).

`b+<token>@bounces.<mail host>`: 40 base32 characters hold the message id, a place and a 64-bit keyed digest of both.
The place is the index of the recipient. In a transaction that several recipients of one domain share it is the index of
one of them with the highest bit set: all of them see the token, so it speaks for recipients of that domain only, and a
report with it needs an authenticated author.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from engine.base import clock, ids
from engine.base.ids import ALPHABET, base32
from engine.base.secrets import DerivedKey, Pepper, derived, hmac_sha256, is_mac
from engine.mail.address import canonical

# Before decision 0090 this one place stood for all recipients of a message, of whatever domain, and CFBL-Feedback-ID
# held the same token. Messages have at most 50 recipients, so no other place has this number.
WHOLE_MESSAGE = 255
WHOLE_MESSAGE_FOR = timedelta(days=60)  # from acceptance: a month of scheduling, a month until the last report
_SHARED_BIT = 0x80
_PREFIX = "b+"
_MAC_BYTES = 8
_BYTES = 16 + 1 + _MAC_BYTES
_LENGTH = _BYTES * 8 // 5
_VALUES = {letter: value for value, letter in enumerate(ALPHABET)}


class ReturnPathOrigin(Struct, frozen=True):
    """The message and the place in it that a return path identifies."""

    message_id: UUID
    place: int

    @property
    def is_shared(self) -> bool:
        """Return True if several recipients have seen the token."""
        return bool(self.place & _SHARED_BIT)

    def is_outdated(self, at: datetime) -> bool:
        """Return True for a token of the whole message that is too old to be accepted at `at`."""
        accepted = clock.at_milliseconds(ids.milliseconds_of(self.message_id))
        return self.place == WHOLE_MESSAGE and at > accepted + WHOLE_MESSAGE_FOR


class PlacedRecipient(Protocol):
    """A recipient of a message: its index and its address."""

    @property
    def n(self) -> int:
        """Return the index among the recipients of the message."""

    @property
    def address(self) -> str:
        """Return the address as the sender wrote it."""


Recipient = TypeVar("Recipient", bound=PlacedRecipient)


def key_of(pepper: Pepper) -> DerivedKey:
    """Derive the key of all return paths of an installation."""
    return derived(pepper, "return path")


def shared_place(first: int) -> int:
    """Return the place of a transaction that recipient `first` shares with others of its domain."""
    return first | _SHARED_BIT


def return_path(key: DerivedKey, message_id: UUID, place: int, domain: str) -> str:
    """Return the envelope sender of one transaction; `domain` is the bounce domain."""
    return f"{_PREFIX}{token(key, message_id, place)}@{domain}"


def token(key: DerivedKey, message_id: UUID, place: int) -> str:
    """Return the token of a message and a place under a key."""
    named = message_id.bytes + bytes((place,))
    return base32(int.from_bytes(named + hmac_sha256(key, named)[:_MAC_BYTES], "big"), _LENGTH)


def beginning_of(message_id: UUID) -> str:
    """Return the characters with which all return paths of a message begin: 125 of the 128 bits of its id."""
    return _PREFIX + base32(message_id.int << 72, _LENGTH)[:25]


def origin(key: DerivedKey, address: str) -> ReturnPathOrigin | None:
    """Return the origin of a return path of this installation; None for any other address, including forged ones."""
    local = address.rpartition("@")[0].lower()
    return origin_of_token(key, local.removeprefix(_PREFIX)) if local.startswith(_PREFIX) else None


def origin_of_token(key: DerivedKey, text: str) -> ReturnPathOrigin | None:
    """Return the origin that a token in lower case holds; None unless it was made with this key."""
    if len(text) != _LENGTH:
        return None
    number = 0
    for letter in text:
        value = _VALUES.get(letter)
        if value is None:
            return None
        number = number << 5 | value
    raw = number.to_bytes(_BYTES, "big")
    named, mac = raw[:17], raw[17:]
    return ReturnPathOrigin(UUID(bytes=named[:16]), named[16]) if is_mac(key, named, mac) else None


def recipients_of(found: ReturnPathOrigin, recipients: Sequence[Recipient]) -> list[Recipient]:
    """Return those of a message's recipients for whom a report with this token may speak.

    A token of the whole message was shown to all recipients. It speaks for several of one domain; a message to one
    recipient left under a token of that recipient, so the only token of the whole message was in CFBL-Feedback-ID.
    """
    if not found.is_shared:
        return [one for one in recipients if one.n == found.place]
    if found.place == WHOLE_MESSAGE:
        of_one_domain = len({domain_of(one) for one in recipients}) == 1
        return list(recipients) if of_one_domain and len(recipients) > 1 else []
    first = next((one for one in recipients if one.n == found.place ^ _SHARED_BIT), None)
    return [] if first is None else [one for one in recipients if domain_of(one) == domain_of(first)]


def domain_of(recipient: PlacedRecipient) -> str:
    """Return the domain of a recipient in lower-case A-labels."""
    return canonical(recipient.address).rpartition("@")[2]


def is_within(domain: str, author: str) -> bool:
    """Return True if a domain is that of an author or below it."""
    return f".{domain}".endswith(f".{author}")
