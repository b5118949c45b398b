"""Read the header of a received message: fields, addresses, dates, message ids. Never raises; linear in the input.

`engine.mail.fields` is strict, because it reads what customers submit. Here every message has to end as a row in the
mailbox, so each function returns what it could read, and names what it could not.
"""

import re
from datetime import datetime
from itertools import islice
from typing import Final

from msgspec import Struct

from engine.mail.address_list import TOO_MANY_WORDS, display_name, listed
from engine.mail.charsets import CharsetFlaw
from engine.mail.dates import read_date
from engine.mail.encoded_words import shown, unfolded
from engine.mail.mime_tree import MAX_HEADER, header_bounds

MAX_FIELDS: Final = 1_000
MAX_ADDRESSES: Final = 1_000  # read of one field
MAX_NAME: Final = 320  # characters of a display name
MAX_ID: Final = 998  # characters of a message id: one line (RFC 5322 2.1.1)
MAX_REFERENCES: Final = 100
_MAX_DATE: Final = 1_000  # octets read of Date

_field = re.compile(rb"^([!-9;-~]++)[ \t]*+:(.*+(?:\n[ \t].*+)*+)", re.MULTILINE).finditer
# In angle brackets, in which some programs fold; or bare, as other programs write it.
_id = re.compile(r"<([^<>]{1,998}+)>|([^\s<>,;\"]++)").finditer
_controls = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+").sub
_blanks = re.compile(r"\s+").sub


class ReceivedAddress(Struct, frozen=True):
    """An address of a received message as its sender wrote it.

    `name` is "" if there is none. `address` is "" if the entry contains no address: `name` then is the entry, or the
    name of an empty group.
    """

    name: str
    address: str


class ReceivedField(Struct, frozen=True):
    """A header field with its name as written and its decoded, unfolded value."""

    name: str
    value: str


class ReceivedHeader(Struct, frozen=True):
    """The raw fields of a header in order, and what is wrong with it.

    `malformed`: lines that are no field were skipped. `cut`: fields beyond MAX_HEADER or MAX_FIELDS were left out.
    """

    fields: list[tuple[bytes, bytes]]  # name as written, value still folded
    by_name: dict[bytes, list[bytes]]  # lower-case name: its values in order
    malformed: bool = False
    cut: bool = False

    def first(self, name: bytes) -> bytes | None:
        """Return the raw value of the first field of this lower-case name, or None."""
        found = self.by_name.get(name)
        return None if found is None else found[0]

    def count(self, name: bytes) -> int:
        """Return the number of fields of this lower-case name."""
        return len(self.by_name.get(name, ()))


def read_header(mime: bytes) -> ReceivedHeader:
    """Return the fields of a message's header, in LF or CRLF lines."""
    end, _ = header_bounds(mime, 0, len(mime))
    head = mime[: min(end, MAX_HEADER)]
    fields: list[tuple[bytes, bytes]] = []
    by_name: dict[bytes, list[bytes]] = {}
    read_to, malformed, cut = -1, False, end > MAX_HEADER
    for field in _field(head):
        if len(fields) == MAX_FIELDS:
            cut = True
            break
        malformed = malformed or field.start() != read_to + 1
        name, value = field.groups()
        fields.append((name, value))
        by_name.setdefault(name.lower(), []).append(value)
        read_to = field.end()
    malformed = malformed or (not cut and read_to < len(head.rstrip(b"\r\n")))
    return ReceivedHeader(fields, by_name, malformed, cut)


def field_text(value: bytes, max_octets: int = 4_096) -> tuple[str, CharsetFlaw | None]:
    """Return a field's value as readable text without control characters, and the flaw of its characters.

    Reads only the first `max_octets`.
    """
    return shown(unfolded(value[:max_octets]))


def header_fields(header: ReceivedHeader) -> tuple[list[ReceivedField], bool]:
    """Return the readable fields, and True if some had to be left out to stay within MAX_HEADER octets of UTF-8."""
    found: list[ReceivedField] = []
    room = MAX_HEADER
    for name, value in header.fields:
        text, _ = field_text(value, MAX_HEADER)
        room -= len(name) + len(text.encode())
        if room < 0:
            return found, True
        found.append(ReceivedField(name.decode("ascii"), text))
    return found, False


def addresses(value: bytes) -> tuple[list[ReceivedAddress], set[str]]:
    """Return the entries of an address field, also those in groups, and the codes of the warnings about them."""
    found: list[ReceivedAddress] = []
    warnings: set[str] = set()
    for one in islice(listed(unfolded(value)), MAX_ADDRESSES + 1):
        if len(found) == MAX_ADDRESSES or one.doubt == TOO_MANY_WORDS:
            warnings.add("too_many_addresses")
        if len(found) == MAX_ADDRESSES:
            break
        if not one.readable:
            warnings.add("address_unreadable")
        name, flaw = display_name(one)
        if flaw is not None:
            warnings.add(flaw.value)
        found.append(ReceivedAddress(name[:MAX_NAME], one.address))
    return found, warnings


def date(value: bytes) -> datetime | None:
    """Return the time of a Date field in UTC; None if it is no date."""
    return read_date(field_text(value, _MAX_DATE)[0])


def message_ids(value: bytes) -> list[str]:
    """Return the message ids of a field without their angle brackets; of very many the first and the last."""
    text, _ = shown(unfolded(value))
    found = [_blanks("", one[1]) if one[1] else one[2][:MAX_ID] for one in _id(text) if _is_id(one[1], one[2])]
    return found if len(found) <= MAX_REFERENCES else [found[0], *found[1 - MAX_REFERENCES :]]


def _is_id(bracketed: str | None, bare: str) -> bool:
    if bracketed is None:  # a comment is none
        return "@" in bare[1:-1] and not (bare.startswith("(") or bare.endswith(")"))
    return bool(bracketed.strip()) and ("@" in bracketed or not any(map(str.isspace, bracketed)))


def message_id(value: bytes) -> str | None:
    """Return the message id of a field; its bare text if it lacks angle brackets, None if it is empty."""
    found = message_ids(value)
    if found:
        return found[0]
    return field_text(value)[0].strip("<> ")[:MAX_ID] or None
