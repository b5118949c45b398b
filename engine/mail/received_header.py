"""Read the header of a received message: fields, addresses, dates, message ids. Never raises; linear in the input.

`engine.mail.fields` is strict, because it reads what customers submit. Here every message has to end as a row in the
mailbox, so each function returns what it could read, and names what it could not.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Final

from msgspec import Struct

from engine.mail.charsets import CharsetFlaw, decode_text
from engine.mail.fields import decoded, entries
from engine.mail.mime_tree import MAX_HEADER, header_bounds

MAX_FIELDS: Final = 1_000
MAX_ADDRESSES: Final = 1_000  # read of one field
MAX_NAME: Final = 320  # characters of a display name
MAX_ADDRESS: Final = 320  # characters: RFC 3696 3, 64 for the local part and 255 for the domain
MAX_ID: Final = 998  # characters of a message id: one line (RFC 5322 2.1.1)
MAX_REFERENCES: Final = 100
_MAX_ENTRY: Final = 4_096  # characters read of one entry of an address list
_MAX_DATE: Final = 200  # characters read of Date

_field = re.compile(rb"^([!-9;-~]++)[ \t]*+:(.*+(?:\n[ \t].*+)*+)", re.MULTILINE).finditer
_folds = re.compile(rb"\r?\n(?=[ \t])").sub
_controls = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+").sub
_plain = re.compile(r"[^\s<>()\[\],;:@\\\"]+@[^\s<>()\[\],;:@\\\"]+").fullmatch
_unusual = re.compile(r'(?:"(?:[^"\\]|\\.)*+"|[^\s<>()@"]+)@(?:\[[^\s<>\[\]]*+\]|[^\s<>()@"\[\]]+)').fullmatch
_quoted_name = re.compile(r'"((?:[^"\\]|\\.)*+)"').fullmatch
_escaped = re.compile(r"\\(.)").sub
_old_form = re.compile(r"([^\s()]+)\s*+\(([^()]*)\)").fullmatch
_comment = re.compile(r"\([^()]*+\)").sub
_id = re.compile(r"<([^<>\s]{1,998}+)>").findall
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_month = rf"({'|'.join(_MONTHS)})[a-z]{{0,6}}\.?"
_time = r"(\d{1,2})\s*[:.]\s*(\d{2})(?:\s*[:.]\s*(\d{2}))?(?:\.\d{1,9})?"
_date = re.compile(
    rf"(?:[^\W\d]{{2,12}}\.?,?\s*)?(\d{{1,2}})[\s-]+{_month},?[\s-]+(\d{{2,4}}),?\s+{_time}\s*([+-]\d{{4}}|[a-z]{{1,5}})?",
    re.IGNORECASE,
).match
# The form of C's asctime, which some programs write: `Sun Nov 22 15:20:26 2026`.
_asctime = re.compile(rf"[a-z]{{3}},?\s+{_month}\s+(\d{{1,2}})\s+{_time}\s+(\d{{4}})", re.IGNORECASE).match
_ZONES: Final = {"edt": -4, "est": -5, "cdt": -5, "cst": -6, "mdt": -6, "mst": -7, "pdt": -7, "pst": -8}  # RFC 5322 4.3


class ReceivedAddress(Struct, frozen=True):
    """An address of a received message as its sender wrote it.

    `name` is "" if there is none. `address` is "" if the entry contains no address: `name` then is the entry.
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
    octets = value[:max_octets]
    if b"\n" in octets:
        octets = _folds(b"", octets)
    text, flaw = decode_text(octets, "")
    if "=?" in text:
        text = decoded(text)
    return (text if text.isprintable() else _controls(" ", text)).strip(), flaw


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


def addresses(value: bytes) -> tuple[list[ReceivedAddress], bool]:
    """Return the mailboxes of an address field, also those in groups, and True if there are more than MAX_ADDRESSES."""
    text, _ = decode_text(_folds(b"", value), "")
    text = text if text.isprintable() else _controls(" ", text)
    found = [_address(entry) for entry in islice(_entries(text), MAX_ADDRESSES + 1)]
    return found[:MAX_ADDRESSES], len(found) > MAX_ADDRESSES


def date(value: bytes) -> datetime | None:
    """Return the time of a Date field in UTC (RFC 5322 3.3 and 4.3, asctime, ISO 8601); None if it is no date.

    A time without a zone, or with one that is not defined, is taken as UTC (RFC 5322 4.3).
    """
    text = _comment("", field_text(value, _MAX_DATE)[0]).strip()
    try:
        at = _rfc_5322(text) or _asctime_date(text) or datetime.fromisoformat(text)
        return at.replace(tzinfo=at.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def message_ids(value: bytes) -> list[str]:
    """Return the message ids of a field without their angle brackets; of very many the first and the last."""
    text, _ = decode_text(_folds(b"", value), "")
    found: list[str] = _id(_controls(" ", text) if not text.isprintable() else text)
    return found if len(found) <= MAX_REFERENCES else [found[0], *found[1 - MAX_REFERENCES :]]


def message_id(value: bytes) -> str | None:
    """Return the message id of a field; its bare text if it lacks angle brackets, None if it is empty."""
    found = message_ids(value)
    if found:
        return found[0]
    return field_text(value)[0].strip("<> ")[:MAX_ID] or None


def _entries(text: str) -> Iterator[str]:
    if _plain(text.strip()) is not None:  # the usual case
        yield text.strip()
        return
    yield from entries(text)


def _address(entry: str) -> ReceivedAddress:
    """Read one entry of an address list."""
    if len(entry) <= MAX_ADDRESS and _plain(entry) is not None:
        return ReceivedAddress("", _with_lower_domain(entry))
    entry = entry[:_MAX_ENTRY]
    name, bracket, address = entry.rstrip(" \t>").rpartition("<")
    if bracket and (found := _bare(address)):
        return ReceivedAddress(_name(name), found)
    old = _old_form(entry)
    if old is not None and (found := _bare(old[1])):
        return ReceivedAddress(_name(old[2]), found)
    found = _bare(_comment(" ", entry) if "(" in entry else entry)
    return ReceivedAddress("", found) if found else ReceivedAddress(_name(entry), "")


def _bare(address: str) -> str:
    """Return an address without a source route (RFC 5322 4.4); "" if it is none."""
    address = address.strip()
    if address.startswith("@"):
        address = address.rpartition(":")[2]
    if len(address) > MAX_ADDRESS or _unusual(address) is None:
        return ""
    return _with_lower_domain(address)


def _with_lower_domain(address: str) -> str:
    local, _, domain = address.rpartition("@")
    return f"{local}@{domain.lower()}"


def _name(text: str) -> str:
    text = text.strip(" \t")
    quoted = _quoted_name(text)
    if quoted is not None:
        text = _escaped(r"\1", quoted[1]) if "\\" in text else quoted[1]
    if "=?" in text:
        text = decoded(text)
    return (text if text.isprintable() else _controls(" ", text)).strip()[:MAX_NAME]


def _rfc_5322(text: str) -> datetime | None:
    found = _date(text)
    if found is None:
        return None
    day, month, year, hour, minute, second, zone = found.groups()
    number = int(year)
    if len(year) < 4:  # RFC 5322 4.3
        number += 1900 if len(year) == 3 or number >= 50 else 2000
    return _at(number, month, day, hour, minute, second).replace(tzinfo=_zone(zone or ""))


def _asctime_date(text: str) -> datetime | None:
    found = _asctime(text)
    if found is None:
        return None
    month, day, hour, minute, second, year = found.groups()
    return _at(int(year), month, day, hour, minute, second)


def _at(year: int, month: str, day: str, hour: str, minute: str, second: str | None) -> datetime:
    seconds = min(int(second or 0), 59)  # 60 is a leap second
    return datetime(year, _MONTHS.index(month.lower()) + 1, int(day), int(hour), int(minute), seconds)  # noqa: DTZ001


def _zone(zone: str) -> timezone:
    if zone[:1] in {"+", "-"}:
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5]))
        return timezone(-offset if zone[0] == "-" else offset)
    return timezone(timedelta(hours=_ZONES.get(zone.lower(), 0)))
