"""Take received reports apart: the text for people, the fields for programs, the returned message.

Bounces and complaints come from every kind of software, and from attackers. The walk goes through `read.entities` and
within its limits; what lies beyond them is left out, and nothing raises. Used by `delivery_reports.py` and
`feedback_reports.py`.
"""

import codecs
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from engine.mail.charsets import in_charset
from engine.mail.encoded_words import decoded
from engine.mail.html_text import html_to_text
from engine.mail.parameters import parse_field
from engine.mail.read import Entity, UnreadableMail, entities
from engine.mail.transfer_encoding import decode

MAX_READ: Final = 1024 * 1024  # octets of a report; what it says stands before the returned message
MAX_PARTS: Final = 100
MAX_TEXT: Final = 200_000  # characters of one part
MAX_HEADER: Final = 102_400  # octets
MAX_FIELDS: Final = 1_000
MAX_VALUE: Final = 4_096  # characters of one field
MAX_LEVEL: Final = 4  # messages within messages

RETURNED: Final = frozenset({"message/rfc822", "message/global", "message/partial"})
RETURNED_HEADERS: Final = frozenset({
    "text/rfc822-headers", "message/rfc822-headers", "message/global-headers", "text/rfc822-header",
})  # fmt: skip

_blank_line = re.compile(rb"\r?\n[ \t]*\r?\n").search
_field_line = re.compile(r"([!-9;-~]{1,80})[ \t]*:[ \t]*(.*)", re.DOTALL).match
_UTF_16: Final = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

Head = Mapping[str, list[str]]


class ReportPart(NamedTuple):
    """A leaf of a report, or the header of an attached message.

    `level` counts the attached messages around it; `opens`: it is the header of the message at this level.
    """

    kind: str
    level: int
    head: Head
    text: str
    opens: bool = False


def report_parts(raw: bytes) -> list[ReportPart]:
    """Return the parts of a report in order, at most MAX_PARTS of them; the first is the header of the report."""
    raw = raw[:MAX_READ]
    if b"\n" not in raw:  # line ends of old Macintosh software
        raw = raw.replace(b"\r", b"\n")
    parts: list[ReportPart] = []
    for part in _parts(raw, 0):
        parts.append(part)
        if len(parts) >= MAX_PARTS:
            break
    return parts


def _parts(raw: bytes, level: int) -> Iterator[ReportPart]:
    """Yield the parts of a message; attached messages in a transfer encoding are decoded and read likewise."""
    ends: list[int] = []
    last_end = 0
    for entity in _readable(raw):
        while ends and entity.start >= ends[-1]:
            ends.pop()
        if entity.start < last_end:  # inside an encoded message that was read already
            continue
        depth = level + len(ends)
        head = read_head(raw[entity.start : entity.body])
        if entity.message:
            yield ReportPart(entity.kind, depth, head, "", opens=True)
        if entity.kind in RETURNED and not entity.composite:
            last_end = entity.end
            yield from _attached(raw, entity, depth)
        elif entity.composite:
            if entity.kind in RETURNED:
                ends.append(entity.end)
        else:
            yield ReportPart(entity.kind, depth, head, _text(raw, entity, head))


def _attached(raw: bytes, entity: Entity, depth: int) -> Iterator[ReportPart]:
    if depth + 1 < MAX_LEVEL:
        yield from _parts(_content(raw, entity), depth + 1)


def _readable(raw: bytes) -> Iterator[Entity]:
    """Yield entities until a limit of the reader is exceeded."""
    with suppress(UnreadableMail):
        yield from entities(raw)


def _content(raw: bytes, entity: Entity) -> bytes:
    return decode(raw[entity.body : entity.end], entity.encoding)[0]


def _text(raw: bytes, entity: Entity, head: Head) -> str:
    """Return the text of a part with LF line ends, HTML reduced to its text; "" for anything but text."""
    readable = entity.kind.startswith(("text/", "message/")) or "report" in entity.kind
    if not readable:
        return ""
    octets = _content(raw, entity)[: MAX_TEXT * 2]
    text = to_text(octets, parse_field(first(head, "content-type").encode()).value("charset") or "utf-8")
    return html_to_text(text) if entity.kind == "text/html" else text


def to_text(octets: bytes, charset: str = "utf-8") -> str:
    """Decode octets to text with LF line ends; what is no UTF-8 counts as Latin-1 if nothing else is declared."""
    mark = _UTF_16.get(octets[:2])
    if mark is None and octets[:400:2].count(0) + octets[1:400:2].count(0) > len(octets[:400]) // 3:
        mark = "utf-16-le" if octets[1:2] == b"\0" else "utf-16-be"
    if mark is not None and not charset.lower().startswith("utf-16"):
        charset = mark
    text = in_charset(octets, charset)
    if "\ufffd" in text and charset.lower() in {"utf-8", "us-ascii", "ascii"}:
        text = octets.decode("latin-1")
    return text[:MAX_TEXT].lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def read_head(octets: bytes) -> Head:
    """Return the fields of a header by lower-case name; lines that are no fields are skipped."""
    octets = octets[:MAX_HEADER].lstrip(b"\r\n")
    end = _blank_line(octets)
    return head_of(to_text(octets[: end.start()] if end else octets))


def head_of(text: str) -> Head:
    """Return the fields in a text of header lines, unfolded, with encoded words decoded."""
    found: dict[str, list[str]] = {}
    for name, value in field_lines(text.split("\n")):
        found.setdefault(name, []).append(decoded(value) if "=?" in value else value)
    return found


def field_lines(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield name (lower case) and value of each field in lines, unfolded; at most MAX_FIELDS."""
    name, pieces = "", list[str]()
    count = 0
    for line in lines:
        if line[:1] in {" ", "\t"} and name:
            if len(pieces) < 100:
                pieces.append(line.strip())
            continue
        if name:
            yield name, " ".join(pieces)[:MAX_VALUE]
            count += 1
            name = ""
        field = _field_line(line[:MAX_VALUE])
        if field is not None and count < MAX_FIELDS:
            name, pieces = field[1].lower(), [field[2].strip()]
    if name:
        yield name, " ".join(pieces)[:MAX_VALUE]


def first(head: Head, name: str) -> str:
    """Return the first field of that name; "" without one."""
    values = head.get(name)
    return values[0] if values else ""
