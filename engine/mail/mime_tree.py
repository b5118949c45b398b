"""Divide a message into its MIME entities: headers, boundaries, parents and children (RFC 2045 2.4, RFC 2046 5.1).

It reads messages that the service composed, those from SMTP submission and those from the MX, which may be hostile. The
parser of the standard library recurses into nested parts, splits a 40 MB message into half a million lines and raises
six kinds of exceptions; this one works on offsets within fixed limits, and never raises. What exceeds a limit is one
entity, and `MimeTree.doubts` names what mail programs could divide in another way.
"""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from engine.mail.encoded_words import decoded
from engine.mail.parameters import MimeField, parse_field
from engine.mail.transfer_encoding import IDENTITY, known_encoding

MAX_DEPTH: Final = 20  # multiparts within multiparts; Postfix allows 100, mail programs write 4
MAX_PARTS: Final = 1_000  # Amazon SES refuses more than 500
MAX_HEADER: Final = 102_400  # octets read of one part's header, as in Postfix's header_size_limit
MAX_CANDIDATES: Final = 100_000  # lines of a message that begin like a delimiter
_MAX_LINE: Final = 2_048  # octets of a delimiter line
_MAX_READINGS: Final = 8  # of one boundary
_MAX_LIKE: Final = 1_000  # lines that begin like one, while its reading is chosen
# Types whose content is a message for some program (RFC 2046 5.2, RFC 5537 4.1, RFC 6532 3.7, MimeKit).
MESSAGES: Final = frozenset({
    "message/external-body", "message/global", "message/news", "message/partial", "message/rfc2822", "message/rfc822",
})  # fmt: skip

_field = re.compile(
    rb"^content-(type|transfer-encoding|disposition|id)[ \t]*:(.*(?:\r?\n[ \t].*)*)", re.IGNORECASE | re.MULTILINE
)
_field_lines = re.compile(rb"(?:[!-9;-~]++[ \t]*+:[^\n]*+\n?|[ \t][^\n]*+\n?)*").match
# A boundary, declared or not, with the header of a part behind it.
_PART: Final = rb"\n--[^\r\n]{1,1000}\r?\n(?:(?!--)[!-9;-~]++:.*\n|[ \t].*\n){0,20}?content-"
_part_like = re.compile(_PART, re.IGNORECASE).search
_is_part_like = re.compile(_PART, re.IGNORECASE).match
_blanks = re.compile(r"\s+").sub
_DEFAULT: Final = "text/plain"
_UNDIVIDED: Final = "application/octet-stream"
_MAJORS: Final = {"text": _DEFAULT, "message": "message/rfc822", "multipart": "multipart/mixed"}
_BINARY: Final = frozenset({"application", "audio", "font", "image", "model", "video"})
_NO_FIELD: Final = MimeField("", "")


class ReadLimit(StrEnum):
    """The limit that a message exceeds."""

    PARTS = "too_many_parts"
    DEPTH = "nested_too_deep"
    BOUNDARIES = "too_many_boundaries"


class Doubt(StrEnum):
    """The reason why mail programs may show other parts of a message than this reader."""

    NO_BOUNDARY = "boundary_missing"  # a multipart without a line of its boundary
    UNDECLARED = "boundary_undeclared"  # a text contains parts with a boundary that no multipart declares
    OUTSIDE = "text_outside_parts"  # before the first part, or after the last
    REPEATED = "part_field_repeated"  # a MIME field twice in one header
    MALFORMED = "part_header_malformed"  # lines that are no field
    CUT = "part_header_truncated"  # a header, a field or its parameters exceed a limit


class FoundDoubt(NamedTuple):
    """A doubt about the entity at an offset. `hides_part`: another reading may show a part that this tree lacks."""

    doubt: Doubt
    start: int
    octets: int = 0
    hides_part: bool = False


class MimeEntity(Struct):
    """An entity, with offsets in the message.

    `message`: it has the header of a message. `limit`: the limit because of which it was not divided.
    """

    start: int
    body: int
    end: int
    content_type: MimeField
    disposition: MimeField
    kind: str  # "text/plain", in lower case
    encoding: str  # see `known_encoding`
    cid: str | None
    message: bool
    children: list["MimeEntity"]
    repeated: tuple[MimeField, ...] = ()  # second fields of type and disposition
    limit: ReadLimit | None = None

    @property
    def multipart(self) -> bool:
        """Return True if it is declared to have parts."""
        return self.kind.startswith("multipart/")


class MimeTree(Struct):
    """The entities of a message, the first limit that it exceeds, and doubts in order."""

    root: MimeEntity
    limit: ReadLimit | None
    doubts: list[FoundDoubt]


def read_tree(mime: bytes, *, into_messages: bool = False) -> MimeTree:
    """Divide a message; `into_messages` divides attached messages too."""
    reader = _TreeReader(mime, into_messages=into_messages)
    root = reader.message(0, len(mime), 0)
    return MimeTree(root, reader.limit, reader.doubts)


def walk(root: MimeEntity) -> Iterator[MimeEntity]:
    """Yield all entities in order, parents before children."""
    waiting = [root]
    while waiting:
        entity = waiting.pop()
        yield entity
        waiting += reversed(entity.children)


def header_bounds(mime: bytes, start: int, end: int) -> tuple[int, int]:
    """Return the offsets of the end of the header (without its last line end) and of the start of the content."""
    if mime.startswith((b"\r\n", b"\n"), start, end):
        return start, start + (2 if mime[start] == 0x0D else 1)
    at, size = mime.find(b"\n\r\n", start, end), 3
    bare = mime.find(b"\n\n", start, end if at < 0 else at + 1)
    if bare >= 0:
        at, size = bare, 2
    if at < 0:  # line ends that a relay doubled
        at, size = mime.find(b"\n\r\r\n", start, end), 4
    if at < 0:
        return end, end
    return (at - 1 if at > start and mime[at - 1] == 0x0D else at), at + size


class _Delimiter(NamedTuple):
    """A delimiter line: its preceding line feed, the offset after it, and the multipart that it belongs to."""

    feed: int
    after: int
    level: int
    closing: bool
    either: bool = False  # it could also close a multipart within that one, whose boundary is two dashes shorter


class _OpenEntity(NamedTuple):
    entity: MimeEntity
    boundary: bytes


class _TreeReader:
    """Reads the tree of a message in one pass: holds the multiparts that are open, and the doubts found so far.

    A line is compared with the boundaries of all multiparts that are open, the innermost first, because programs write
    the same boundary for nested multiparts, and boundaries of which one begins like the other.
    """

    __slots__ = ("_candidates", "_count", "_into_messages", "_mime", "doubts", "limit")

    def __init__(self, mime: bytes, *, into_messages: bool) -> None:
        self._mime = mime
        self._into_messages = into_messages
        self._count = 0
        self._candidates = MAX_CANDIDATES
        self.limit: ReadLimit | None = None
        self.doubts: list[FoundDoubt] = []

    def message(self, start: int, end: int, depth: int) -> MimeEntity:
        """Return the tree of the message between two offsets; `depth` entities are around it."""
        opened = _OpenParts()
        root: MimeEntity | None = None
        at, either = start, False
        while True:
            parent = opened.innermost
            if self._count == MAX_PARTS:
                found = self._undivided(at, end)
                line = None
            else:
                self._count += 1
                line = self._next(opened, at - 1, end)
                found = self._entity(at, self._before(line, at, end), parent)
                line = self._divide(found, opened, line, end, depth)
            if parent is not None and not (either and self._is_blank(found)):
                parent.children.append(found)
            root = root or found
            while line is not None and line.closing:
                line = self._closed(opened, line, end)
            if line is None:
                break
            opened.end_within(line.level, self._before(line, 0, end))
            at, either = line.after, line.either
        opened.end_within(-1, end)
        return root

    def _divide(
        self, found: MimeEntity, opened: "_OpenParts", line: _Delimiter | None, end: int, depth: int
    ) -> _Delimiter | None:
        """Open a multipart, or read an attached message; return the next delimiter line."""
        if found.kind.startswith("text/") and opened.parts and _part_like(self._mime, found.body - 1, found.end):
            hides = self._begins_like(found, opened)
            self.doubts.append(FoundDoubt(Doubt.UNDECLARED, found.start, found.end - found.body, hides))
        inside = self._into_messages and found.kind in MESSAGES and found.encoding in IDENTITY
        if not (found.multipart or inside):
            return line
        if depth + len(opened.parts) == MAX_DEPTH:
            found.limit = ReadLimit.DEPTH
            self.limit = self.limit or ReadLimit.DEPTH
            return line
        if inside:
            found.children.append(self.message(found.body, found.end, depth + len(opened.parts) + 1))
            return line
        stop = end if line is None else line.after
        boundary = self._boundary(found, stop)
        if boundary:
            opened.open(found, boundary)
            first = self._next(opened, found.body - 1, end)
            if first is not None and first.level == len(opened.parts) - 1:
                self._preamble(found, first.feed)
                return first
            opened.drop()
        hides = bool(found.encoding not in IDENTITY or _part_like(self._mime, found.body - 1, found.end))
        self.doubts.append(FoundDoubt(Doubt.NO_BOUNDARY, found.start, found.end - found.body, hides))
        return line

    def _boundary(self, found: MimeEntity, stop: int) -> bytes:
        """Return the reading of the declared boundary that begins a line of the content; b"" without one."""
        readings = _boundaries(found.content_type)
        for place, reading in enumerate(readings, start=1):
            feed = self._first_line(reading, found.start, stop)
            if feed < 0:
                continue
            if feed + 1 < found.body:  # the empty line before the first delimiter is missing
                alone = self._entity(found.start, feed + 1, found)
                found.body, found.encoding, found.disposition = feed + 1, alone.encoding, alone.disposition
                self.doubts.append(FoundDoubt(Doubt.MALFORMED, found.start))
            if any(self._first_line(other, found.body, stop) >= 0 for other in readings[place:]):
                self.doubts.append(FoundDoubt(Doubt.UNDECLARED, found.start, found.end - found.body, hides_part=True))
            return reading
        return b""

    def _first_line(self, boundary: bytes, start: int, stop: int) -> int:
        """Return the offset before the first delimiter line; -1 without one among the first that begin like it."""
        line = b"\n--" + boundary
        feed = self._mime.find(line, max(start - 1, 0), stop)
        for _ in range(_MAX_LIKE):
            if feed < 0:
                break
            last = self._mime.find(b"\n", feed + 1, min(stop, feed + _MAX_LINE))
            after = min(stop, feed + _MAX_LINE) if last < 0 else last
            if self._mime[feed + len(line) : after].rstrip(b" \t\r\n") in {b"", b"--"}:
                break
            feed = self._mime.find(line, feed + 1, stop)
        return feed

    def _begins_like(self, found: MimeEntity, opened: "_OpenParts") -> bool:
        """Return True if a part in a text has a boundary that only begins like an open one: some readers take it."""
        for one in opened.parts:
            feed = self._mime.find(b"\n--" + one.boundary, found.body - 1, found.end)
            for _ in range(_MAX_LIKE):
                if feed < 0:
                    break
                if _is_part_like(self._mime, feed, found.end):
                    return True
                feed = self._mime.find(b"\n--" + one.boundary, feed + 1, found.end)
            if feed >= 0:
                return True
        return False

    def _closed(self, opened: "_OpenParts", line: _Delimiter, end: int) -> _Delimiter | None:
        """Close multiparts up to that of a closing delimiter; return the next delimiter line."""
        opened.end_within(line.level, self._before(line, 0, end))
        closed = opened.parts[-1]
        opened.drop()
        following = self._next(opened, line.after - 1, end)
        closed.entity.end = self._before(following, line.after, end)
        self._epilogue(closed, line.after)
        return following

    def _preamble(self, found: MimeEntity, end: int) -> None:
        if end - found.body > 10 and _part_like(self._mime, found.body - 1, end):
            self.doubts.append(FoundDoubt(Doubt.OUTSIDE, found.start, end - found.body, hides_part=True))

    def _epilogue(self, closed: _OpenEntity, start: int) -> None:
        if closed.entity.end - start < 3:
            return
        rest = self._mime[start : closed.entity.end].strip()
        if rest and set(rest.split()) != {b"--%b--" % closed.boundary}:
            hides = _part_like(self._mime, start - 1, closed.entity.end) is not None
            self.doubts.append(FoundDoubt(Doubt.OUTSIDE, closed.entity.start, len(rest), hides))

    def _next(self, opened: "_OpenParts", at: int, end: int) -> _Delimiter | None:
        """Return the next delimiter line of an open multipart."""
        needle, levels, mime = opened.needle, opened.levels, self._mime
        feed = mime.find(needle, max(at, 0), end) if levels else -1
        while feed >= 0:
            last = mime.find(b"\n", feed + 1, min(end, feed + _MAX_LINE))
            if last >= 0 or end - feed < _MAX_LINE:
                after = end if last < 0 else last + 1
                line = mime[feed + 3 : after].rstrip(b" \t\r\n")
                if (level := levels.get(line)) is not None:
                    return _Delimiter(
                        feed, after, level, closing=False, either=line[-2:] == b"--" and line[:-2] in levels
                    )
                if line.endswith(b"--") and (level := levels.get(line[:-2])) is not None:
                    return _Delimiter(feed, after, level, closing=True)
            self._candidates -= 1
            if self._candidates < 0:
                self.limit = self.limit or ReadLimit.BOUNDARIES
                return None
            feed = mime.find(needle, feed + 1, end)
        return None

    def _is_blank(self, found: MimeEntity) -> bool:
        return found.end - found.start < _MAX_LINE and not self._mime[found.start : found.end].strip()

    def _before(self, line: _Delimiter | None, start: int, end: int) -> int:
        """Return the end of the content before a delimiter line, whose line feed belongs to the delimiter."""
        if line is None:
            return end
        at = line.feed
        return max(start, at - 1 if at > start and self._mime[at - 1] == 0x0D else at)

    def _undivided(self, start: int, end: int) -> MimeEntity:
        self.limit = self.limit or ReadLimit.PARTS
        attached = MimeField("attachment", "")
        return MimeEntity(
            start, start, end, _NO_FIELD, attached, _UNDIVIDED, "", None, message=False, children=[],
            limit=ReadLimit.PARTS,
        )  # fmt: skip

    def _entity(self, start: int, end: int, parent: MimeEntity | None) -> MimeEntity:
        """Read the entity between two offsets from its header."""
        head_end, body = self._header(start, end, parent)
        head = self._mime[start : min(head_end, start + MAX_HEADER)].lstrip(
            b" \t"
        )  # some read a first line so indented
        fields: dict[bytes, bytes] = {}
        repeated: list[MimeField] = []
        for found in _field.finditer(head):
            name = found[1].lower()
            if name not in fields:
                fields[name] = found[2]
            elif name != b"id":
                repeated.append(parse_field(found[2]))
        content_type = parse_field(fields.get(b"type", b""))
        disposition = parse_field(fields[b"disposition"]) if b"disposition" in fields else _NO_FIELD
        encoding = _encoding(fields[b"transfer-encoding"]) if b"transfer-encoding" in fields else ""
        if repeated:
            self.doubts.append(FoundDoubt(Doubt.REPEATED, start, hides_part=True))
        if head_end - start > MAX_HEADER or content_type.cut or disposition.cut:
            self.doubts.append(FoundDoubt(Doubt.CUT, start, hides_part=True))
        default = "message/rfc822" if parent is not None and parent.kind == "multipart/digest" else _DEFAULT
        if parent is not None and not fields and default == _DEFAULT and self._mime[start:head_end].strip():
            # `Note: words` may be words without an empty line before them.
            body = start if body == end or self._mime[start] in b" \t" else body
            self.doubts.append(FoundDoubt(Doubt.MALFORMED, start, head_end - start))
        return MimeEntity(
            start, body, end, content_type, disposition, _kind(content_type, default), encoding,
            _content_id(fields.get(b"id")), message=parent is None, children=[], repeated=tuple(repeated),
        )  # fmt: skip

    def _header(self, start: int, end: int, parent: MimeEntity | None) -> tuple[int, int]:
        """Return the bounds of an entity's header; a part that does not begin with a field has none."""
        head_end, body = header_bounds(self._mime, start, end)
        if head_end == start or (parent is None and body < end):
            return head_end, body
        lines = _field_lines(self._mime, start, min(head_end, start + MAX_HEADER))
        fields_end = start if lines is None else lines.end()
        if fields_end >= min(head_end, start + MAX_HEADER):
            return head_end, body
        if fields_end == start or body == end:  # words without an empty line before them
            hides = fields_end == start and _field.search(self._mime, start, head_end) is not None
            if parent is not None:
                self.doubts.append(FoundDoubt(Doubt.MALFORMED, start, hides_part=hides))
            has_fields = parent is None or _field.search(self._mime, start, fields_end) is not None
            return (fields_end, fields_end) if has_fields else (start, start)
        self.doubts.append(FoundDoubt(Doubt.MALFORMED, start, head_end - fields_end))
        return head_end, body


class _OpenParts:
    """The multiparts that are open, outermost first, and their boundaries."""

    __slots__ = ("levels", "needle", "parts")

    def __init__(self) -> None:
        self.parts: list[_OpenEntity] = []
        self.levels: dict[bytes, int] = {}
        self.needle = b""

    @property
    def innermost(self) -> MimeEntity | None:
        """Return the multipart to which the next entity belongs."""
        return self.parts[-1].entity if self.parts else None

    def open(self, entity: MimeEntity, boundary: bytes) -> None:
        """Add a multipart inside the others."""
        self.parts.append(_OpenEntity(entity, boundary))
        self._changed()

    def drop(self) -> None:
        """Remove the innermost multipart."""
        self.parts.pop()
        self._changed()

    def end_within(self, level: int, end: int) -> None:
        """Remove all multiparts within that of `level`; they end at this offset."""
        if len(self.parts) > level + 1:
            for one in self.parts[level + 1 :]:
                one.entity.end = end
            del self.parts[level + 1 :]
            self._changed()

    def _changed(self) -> None:
        boundaries = [one.boundary for one in self.parts]
        self.levels = {boundary: level for level, boundary in enumerate(boundaries)}
        self.needle = b"\n--" + _common_beginning(boundaries)


def _common_beginning(boundaries: Sequence[bytes]) -> bytes:
    if not boundaries:
        return b""
    first, last = min(boundaries), max(boundaries)
    same = next((at for at in range(min(len(first), len(last))) if first[at] != last[at]), min(len(first), len(last)))
    return first[:same]


def _boundaries(content_type: MimeField) -> list[bytes]:
    """Return the readings of the boundary; a value that was folded counts also without its blanks."""
    found: dict[bytes, None] = {}
    for reading in content_type.readings("boundary"):
        for form in (reading, _blanks(" ", reading), _blanks("", reading), reading.strip("'"), decoded(reading)):
            octets = form.rstrip().encode("cp1252" if content_type.flaw else "utf-8", "replace")
            if octets:
                found.setdefault(octets)
    return list(found)[:_MAX_READINGS]


def _kind(content_type: MimeField, default: str) -> str:
    if content_type.minor:
        return f"{content_type.major}/{content_type.minor}"
    if content_type.major in _BINARY:
        return _UNDIVIDED
    return _MAJORS.get(content_type.major, default if not content_type.major else _DEFAULT)


def _content_id(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = value[:_MAX_LINE].decode("utf-8", "replace").strip()
    bracketed = text.partition("<")[2].partition(">")
    return (bracketed[0] if bracketed[1] else text.removeprefix("<").strip('"')) or None


def _encoding(value: bytes) -> str:
    """Return the transfer encoding; one that is not declared as a word, such as `<base64>`, without the signs."""
    return known_encoding(parse_field(value).major or value[:_MAX_LINE].decode("latin-1").lower().strip("<>[]= \t\r\n"))
