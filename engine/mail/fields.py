"""Parse the header of a submitted message: the fields with their offsets, and their text decoded.

Written for hostile mail, too: every function is linear in its input and has one exception.
"""

import re
from typing import Final, NamedTuple

from engine.mail.encoded_words import shown, unfolded

MAX_HEADER: Final = 102_400  # octets of the whole header, as in Postfix's header_size_limit
MAX_FIELDS: Final = 1_000

_field_name = re.compile(rb"([!-9;-~]+)[ \t]*").fullmatch  # RFC 5322 2.2; blanks before the colon: 4.5.8


class BadHeader(ValueError):  # noqa: N818 - named for what was given
    """The bytes are not a header (RFC 5322 2.2), or exceed MAX_HEADER or MAX_FIELDS; the message says why."""


class Field(NamedTuple):
    """A header field: `name` in lower case, `value` without its last CRLF, and its offsets in the message."""

    name: bytes
    value: bytes
    start: int
    end: int


def divided(mime: bytes) -> tuple[int, int]:
    """Return the offsets of the end of the header (last CRLF included) and of the body; without an empty line there is
    no body.
    """
    if mime.startswith(b"\r\n"):
        return 0, 2
    end = mime.find(b"\r\n\r\n")
    return (len(mime), len(mime)) if end < 0 else (end + 2, end + 4)


def fields(mime: bytes, head_end: int) -> list[Field]:
    """Return the fields of a header with CRLF lines, in order. Raises BadHeader."""
    if head_end > MAX_HEADER:
        raise BadHeader(f"The header has {head_end} octets; the limit is {MAX_HEADER}.")
    found: list[Field] = []
    name, start, value_at, at = b"", 0, 0, 0
    for line in mime[:head_end].removesuffix(b"\r\n").split(b"\r\n") if head_end else ():
        if line[:1] in (b" ", b"\t"):
            # A line of blanks ends the header for some mail clients and not for others (RFC 5322 3.2.2).
            if not at or not line.strip(b" \t"):
                raise BadHeader("The header begins with a folded line, or contains a line of blanks only.")
        else:
            if at:
                found.append(Field(name, mime[value_at : at - 2], start, at))
            name, colon = _name(line)
            start, value_at = at, at + colon
            if len(found) >= MAX_FIELDS:
                raise BadHeader(f"The header has more than {MAX_FIELDS} fields.")
        at += len(line) + 2
    if at:
        found.append(Field(name, mime[value_at : at - 2], start, at))
    return found


def _name(line: bytes) -> tuple[bytes, int]:
    """Return the name of a field in lower case, and the offset of its value in the line. Raises BadHeader."""
    name, colon, _ = line.partition(b":")
    match = _field_name(name)
    if match is None or not colon:
        shown = line[:40].decode("ascii", "backslashreplace")
        raise BadHeader(f"A line of the header isn't a field: {shown!r}. An empty line must end the header.")
    return match[1].lower(), len(name) + 1


def text_of(value: bytes, max_octets: int = 4_096) -> str:
    """Return a field's value as readable text: unfolded, encoded words decoded, no control characters.

    Only the first `max_octets` are read. The result is valid UTF-8 without NUL, so it can be stored.
    """
    return shown(unfolded(value[:max_octets]))[0]
