"""Canonicalize header fields and bodies as DKIM and ARC do (RFC 6376 3.4, RFC 8617 4.1). Pure.

Everything is linear in the message: whole-body replacements instead of a loop over lines.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final

MAX_HEADER: Final = 262_144  # octets; Postfix's header_size_limit is 102,400
MAX_LINES: Final = 10_000
SLICE: Final = 256 * 1024  # octets of a body canonicalized at a time: 0.5 ms during which no other thread runs
_STEP: Final = 16 * 1024  # octets canonicalized behind a blank, before the next blank is looked for

_unfold = re.compile(rb"\r\n(?=[ \t])").sub
_at_field_starts = re.compile(rb"\r\n(?![ \t])").split
_signature_value = re.compile(rb"(;[ \t\r\n]*b[ \t\r\n]*=)[^;]*").sub


class HeaderTooLarge(ValueError):  # noqa: N818 - named for what was given
    """The header exceeds MAX_HEADER or MAX_LINES."""


def head_and_body(mime: bytes) -> tuple[bytes, bytes]:
    """Split a message at its first empty line into header fields with their CRLF, and body."""
    head_end, body_at = divided(mime)
    return mime[:head_end], mime[body_at:]


def divided(mime: bytes) -> tuple[int, int]:
    """Return where the header fields of a message end and where its body begins."""
    if mime.startswith(b"\r\n"):
        return 0, 2
    end = mime.find(b"\r\n\r\n")
    return (len(mime), len(mime)) if end < 0 else (end + 2, end + 4)


def relaxed_body(body: bytes) -> bytes:
    """Return the relaxed body (RFC 6376 3.4.4), over which the body hash is computed.

    A body without a final CRLF gets one, as it does on the wire.
    """
    if not body.endswith(b"\r\n"):
        body += b"\r\n"
    body = _relaxed_blanks(body) if len(body) <= SLICE else b"".join(map(_relaxed_blanks, _slices(body)))
    if not body.endswith(b"\r\n\r\n"):
        return b"" if body == b"\r\n" else body
    end = _text_end(body)
    return body[:end] + b"\r\n" if end else b""


def relaxed_body_hash(mime: bytes, body_at: int) -> bytes:
    """Return the SHA-256 of the relaxed body of a message, which begins at `body_at`.

    Base64 and other text without blanks is hashed as it stands: 1 MB takes little more than its hash, during which
    other threads run.
    """
    may_end_in_empty_lines = not mime.endswith(b"\r\n") or mime.endswith((b"\r\n\r\n", b" \r\n", b"\t\r\n"))
    if len(mime) - body_at <= _STEP or may_end_in_empty_lines:
        return sha256(relaxed_body(mime[body_at:])).digest()
    hashed, view, start = sha256(), memoryview(mime), body_at
    while start < len(mime):
        blank = _first_blank(mime, start)
        line = mime.rfind(b"\r\n", start, blank) + 2 if blank < len(mime) else blank
        if line > start + 1:  # a line end was found
            hashed.update(view[start:line])
            start = line
        if start < len(mime):
            end = mime.index(b"\r\n", min(max(start + _STEP, blank), len(mime) - 2)) + 2
            hashed.update(_relaxed_blanks(mime[start:end]))
            start = end
    return hashed.digest()


def _first_blank(mime: bytes, start: int) -> int:
    """Return the place of the first blank or tab from `start` on, or the length of the message."""
    blank = mime.find(b" ", start)
    blank = len(mime) if blank < 0 else blank
    tab = mime.find(b"\t", start, blank)
    return blank if tab < 0 else tab


def _relaxed_blanks(lines: bytes) -> bytes:
    """Return whole lines with single blanks, and none at their ends."""
    if b"\t" in lines:
        lines = lines.replace(b"\t", b" ")
    while b"  " in lines:  # halves every run: 24 rounds for 10 MB of blanks
        lines = lines.replace(b"  ", b" ")
    if b" \r\n" in lines:
        lines = lines.replace(b" \r\n", b"\r\n")
    return lines


def _slices(body: bytes) -> Iterator[bytes]:
    """Yield a body, which ends with CRLF, in slices of whole lines: in a thread, other threads run between them."""
    start = 0
    while start < len(body):
        end = body.index(b"\r\n", min(start + SLICE, len(body) - 2)) + 2
        yield body[start:end]
        start = end


def simple_body(body: bytes) -> bytes:
    """Return the simple body (RFC 6376 3.4.3): empty lines at the end are reduced to one CRLF."""
    if not body.endswith(b"\r\n"):
        return body + b"\r\n"
    return body[: _text_end(body)] + b"\r\n" if body.endswith(b"\r\n\r\n") else body


def _text_end(body: bytes) -> int:
    """Return the offset at which the final run of CRLF begins."""
    text = body.rstrip(b"\r\n")
    return len(text) + _bare_end(body[len(text) :])


def _bare_end(tail: bytes) -> int:
    """Return how many octets of a tail of CR and LF precede its last run of CRLF; 0 in well-formed mail."""
    if tail.count(b"\r\n") * 2 == len(tail):
        return 0
    end = len(tail)
    while tail.endswith(b"\r\n", 0, end):
        end -= 2
    return end


def relaxed_lines(head: bytes) -> bytes:
    """Unfold header fields and reduce runs of blanks to one (RFC 6376 3.4.2); a blank may remain at either end of a
    name or value.
    """
    if b"\r\n " in head or b"\r\n\t" in head:
        head = _unfold(b"", head)
    if b"\t" in head:
        head = head.replace(b"\t", b" ")
    while b"  " in head:
        head = head.replace(b"  ", b" ")
    return head


def relaxed_field(raw: bytes) -> bytes:
    """Return one field in relaxed form, without CRLF."""
    name, _, value = relaxed_lines(raw).partition(b":")
    return b"%b:%b" % (name.rstrip(b" ").lower(), value.strip(b" "))


def without_signature(raw: bytes) -> bytes:
    """Return a signature field with an empty `b=` (RFC 6376 3.5)."""
    name, colon, value = raw.partition(b":")
    # The semicolon in front makes the first tag begin as the others do: `re` finds a fixed octet five times as fast.
    return name + colon + _signature_value(rb"\1", b";" + value, count=1)[1:]


class CanonicalHeader:
    """The header fields of one message, split once and canonicalized at first use, for all its signatures.

    `raw` holds the fields without their last CRLF, `names` their names in lower case; a line without a colon has the
    name b"". Raises HeaderTooLarge.
    """

    def __init__(self, head: bytes) -> None:
        if len(head) > MAX_HEADER or head.count(b"\r\n") > MAX_LINES:
            raise HeaderTooLarge(f"the header has more than {MAX_HEADER} octets or {MAX_LINES} lines")
        self.raw = _at_field_starts(head.removesuffix(b"\r\n")) if head else []
        self.names = [_name(raw) for raw in self.raw]
        self._places: dict[bytes, list[int]] = {}
        for place, name in enumerate(self.names):
            self._places.setdefault(name, []).append(place)
        self._relaxed: list[bytes] | None = None

    def places(self, name: bytes) -> list[int]:
        """Return the indexes of the fields with this lower-case name, from top to bottom."""
        return self._places.get(name, [])

    def value(self, place: int) -> bytes:
        """Return the value of a field, still folded."""
        return self.raw[place].partition(b":")[2]

    def relaxed(self) -> list[bytes]:
        """Return all fields in relaxed form, each with CRLF."""
        if self._relaxed is None:
            lines = relaxed_lines(b"\r\n".join(self.raw)).split(b"\r\n")
            values = [line.partition(b":")[2].strip(b" ") for line in lines]
            self._relaxed = [b"%b:%b\r\n" % pair for pair in zip(self.names, values, strict=True)]
        return self._relaxed

    def selected(self, names: Iterable[bytes], *, relaxed: bool) -> bytes:
        """Return the fields that `h=` names in canonical form; of repeated fields the last comes first (RFC 6376
        5.4.2). A name without a field left adds nothing.
        """
        used: dict[bytes, int] = {}
        chosen: list[int] = []
        for name in names:
            places = self._places.get(name)
            if places is not None:
                count = used.get(name, 0) + 1
                if count <= len(places):
                    used[name] = count
                    chosen.append(places[-count])
        if relaxed:
            fields = self.relaxed()
            return b"".join([fields[place] for place in chosen])
        return b"".join([self.raw[place] + b"\r\n" for place in chosen])


def _name(raw: bytes) -> bytes:
    name, colon, _ = raw.partition(b":")
    return name.rstrip(b" \t").lower() if colon else b""


class SignedMessage:
    """A message under verification: its header, and each body hash that its signatures need, computed once.

    Raises HeaderTooLarge.
    """

    def __init__(self, mime: bytes) -> None:
        head, self.body = head_and_body(mime)
        self.header = CanonicalHeader(head)
        self._canonical: dict[bool, bytes] = {}
        self._hashes: dict[tuple[bool, int | None], bytes] = {}

    def canonical_body(self, *, relaxed: bool) -> bytes:
        """Return the canonical body."""
        body = self._canonical.get(relaxed)
        if body is None:
            body = self._canonical[relaxed] = (relaxed_body if relaxed else simple_body)(self.body)
        return body

    def body_hash(self, length: int | None, *, relaxed: bool) -> bytes:
        """Return the SHA-256 of the canonical body, or of its first `length` octets."""
        found = self._hashes.get((relaxed, length))
        if found is None:
            body = memoryview(self.canonical_body(relaxed=relaxed))
            found = self._hashes[relaxed, length] = sha256(body if length is None else body[:length]).digest()
        return found
