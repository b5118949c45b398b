"""Read stored MIME: the text, the HTML, the attachments.

It reads messages that the service composed, those from SMTP submission and those from the MX, which may be hostile. The
parser of the standard library recurses into nested parts, splits a 40 MB message into half a million lines and raises
six kinds of exceptions; this reader works on offsets within fixed limits, decodes only what is requested, and raises
only UnreadableMail. `parts` never raises: it returns what exceeds a limit as one part.
"""

import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from engine.mail.charsets import in_charset
from engine.mail.fields import decoded

MAX_DEPTH: Final = 20  # multiparts within multiparts; Postfix allows 100, mail programs write 4
MAX_PARTS: Final = 1_000  # Amazon SES refuses more than 500
SLICE: Final = 256 * 1024  # octets of base64 decoded at a time: 0.5 ms during which no other thread runs
MAX_HEADER: Final = 102_400  # octets read of one part's header, as in Postfix's header_size_limit
_MAX_VALUE: Final = 2_048  # octets read of one field
_MAX_PARAMETERS: Final = 32
_MAX_CANDIDATES: Final = 10_000  # lines per multipart that begin like a delimiter

_field = re.compile(
    rb"^content-(type|transfer-encoding|disposition|id)[ \t]*:(.*(?:\r?\n[ \t].*)*)", re.IGNORECASE | re.MULTILINE
)
_essence = re.compile(r"\s*([^\s/;]+/[^\s/;]+)").match
_parameter = re.compile(r';\s*([^\s=;"]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;]*)', re.DOTALL)
_unescaped = re.compile(r"\\(.)", re.DOTALL).sub
_after_delimiter = re.compile(rb"(--)?[ \t]*(?:\r?\n|\Z)").match
_NOT_BASE64: Final = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))
_IDENTITY: Final = frozenset({"", "7bit", "8bit", "binary"})
_UNDIVIDED: Final = "application/octet-stream"
_segment = re.compile(r"(\d{1,3})(\*?)").fullmatch


class UnreadableMail(ValueError):  # noqa: N818 - named for what was given
    """The message exceeds a limit of the reader, or has no such attachment."""


class ReadLimit(StrEnum):
    """The limit that a message exceeds."""

    PARTS = "too_many_parts"
    DEPTH = "nested_too_deep"
    BOUNDARIES = "too_many_boundaries"


_LIMIT_TEXTS: Final = {
    ReadLimit.PARTS: f"The message has more than {MAX_PARTS} parts.",
    ReadLimit.DEPTH: f"The message nests deeper than {MAX_DEPTH} multiparts.",
    ReadLimit.BOUNDARIES: "The message has too many lines that look like part boundaries.",
}


class Bodies(Struct, frozen=True):
    """The first plain text and the first HTML of a message, with LF line ends; None if there is none."""

    text: str | None
    html: str | None


class File(Struct, frozen=True):
    """An attachment of a received message.

    `names` lists all its file names, the one to show first: mail clients differ in which of them they use. Empty if it
    has none.
    """

    names: tuple[str, ...]
    content_type: str  # type/subtype in lower case
    content: bytes
    cid: str | None = None  # without its angle brackets


class Entity(NamedTuple):
    """A node of the MIME tree (RFC 2045 2.4), with offsets in the message.

    `composite`: multipart or message/rfc822, whose child entities follow. `message`: it has the header of a message.
    """

    start: int
    body: int
    end: int
    kind: str
    encoding: str  # as declared, in lower case; "" where nothing is
    composite: bool
    message: bool


class MailPart(NamedTuple):
    """A leaf of the MIME tree: its fields, and the offsets of its content in the message.

    `limit` is the limit because of which the reader did not divide this part, or an entity around it.
    """

    kind: str  # "text/plain"
    charset: str  # as declared; "" where none is
    encoding: str
    attached: bool
    start: int
    end: int
    names: tuple[str, ...] = ()
    cid: str | None = None
    inline: bool = False  # Content-Disposition says so
    limit: ReadLimit | None = None


class _Node(NamedTuple):
    """An entity with the offsets of its children; `message`: it has the header of a message."""

    start: int
    part: MailPart
    boundary: bytes  # b"": no multipart
    inner: Sequence[tuple[int, int]] = ()
    message: bool = False


def bodies(mime: bytes) -> Bodies:
    """Return the text and HTML that a recipient sees, with replacement characters for bytes that can't be decoded.

    Raises UnreadableMail beyond MAX_DEPTH or MAX_PARTS.
    """
    text: str | None = None
    html: str | None = None
    for part in _leaves(mime):
        if part.attached:
            continue
        if part.kind == "text/plain" and text is None:
            text = _text(mime, part)
        elif part.kind == "text/html" and html is None:
            html = _text(mime, part)
        if text is not None and html is not None:
            break
    return Bodies(text, html)


def attachment(mime: bytes, index: int) -> bytes:
    """Return the decoded content of attachment `index` (from 0, in the order of the MIME text).

    For a composed message, that is `Composed.places[i]` of the draft's attachment `i`. Raises UnreadableMail if there
    is no such attachment.
    """
    if index >= 0:
        for part in islice((part for part in _leaves(mime) if part.attached), index, None):
            return _content(mime, part)
    raise UnreadableMail(f"The message has no attachment number {index}.")


def files(mime: bytes) -> Iterator[File]:
    """Yield all attachments with their content, in the order of `attachment`. Raises UnreadableMail."""
    for part in _leaves(mime):
        if part.attached:
            yield File(part.names, part.kind, _content(mime, part), part.cid)


def parts(mime: bytes) -> Iterator[MailPart]:
    """Yield all leaves in order, and what exceeds a limit as an attached leaf; never raises.

    A multipart without a delimiter line is treated as plain text.
    """
    limit: ReadLimit | None = None
    for node in _nodes(mime):
        limit = limit or node.part.limit
        if not node.inner:
            leaf = _leaf(node)
            yield leaf if limit is None else leaf._replace(limit=limit)
            limit = None


def content(mime: bytes, part: MailPart, max_octets: int | None = None) -> tuple[bytes, bool]:
    """Return the decoded content of a part, and True if its encoding is damaged; never raises.

    Decodes only the first `max_octets` octets of the encoded content if given.
    """
    end = part.end if max_octets is None else min(part.end, part.start + max_octets - max_octets % 4)
    raw = mime[part.start : end]
    if part.encoding == "base64":
        return _from_base64(raw)
    if part.encoding == "quoted-printable":
        return binascii.a2b_qp(raw), False
    return raw, part.encoding not in _IDENTITY


def entities(mime: bytes) -> Iterator[Entity]:
    """Yield all entities, parents before children, also those of attached messages. Raises UnreadableMail."""
    for node in _nodes(mime, into_messages=True):
        part = _within_limits(node)
        yield Entity(node.start, part.start, part.end, part.kind, part.encoding, bool(node.inner), node.message)


def _leaves(mime: bytes) -> Iterator[MailPart]:
    """Yield all leaves in order. Raises UnreadableMail."""
    for node in _nodes(mime):
        _within_limits(node)
        if not node.inner:
            yield _leaf(node)


def _leaf(node: _Node) -> MailPart:
    if node.boundary and node.part.limit is None:
        return node.part._replace(kind="text/plain")
    return node.part


def _within_limits(node: _Node) -> MailPart:
    if node.part.limit is not None:
        raise UnreadableMail(_LIMIT_TEXTS[node.part.limit])
    return node.part


def _nodes(mime: bytes, *, into_messages: bool = False) -> Iterator[_Node]:
    """Walk the tree in order without recursion; `into_messages` descends into message/rfc822.

    A node whose part has a `limit` stands for itself and for all that could not be divided.
    """
    waiting = [(0, len(mime), 0, True)]
    nodes = 0
    while waiting:
        start, end, depth, message = waiting.pop()
        nodes += 1
        if nodes > MAX_PARTS:
            last = waiting[0][1] if waiting else end
            rest = MailPart(_UNDIVIDED, "", "", attached=True, start=start, end=last, limit=ReadLimit.PARTS)
            yield _Node(start, rest, b"")
            return
        node = _node(mime, start, end)
        part, inside = node.part, into_messages and node.part.kind == "message/rfc822"
        if (node.boundary or inside) and depth == MAX_DEPTH:
            yield node._replace(part=part._replace(attached=True, limit=ReadLimit.DEPTH), message=message)
            continue
        if node.boundary:
            inner, limit = _divided(mime, part, node.boundary)
            if limit is not None:
                part = part._replace(limit=limit)
            node = _Node(start, part, node.boundary, inner, message)
        elif message or inside:
            node = node._replace(inner=[(part.start, part.end)] if inside else (), message=message)
        yield node
        waiting += [(a, b, depth + 1, inside) for a, b in reversed(node.inner)]


def _node(mime: bytes, start: int, end: int) -> _Node:
    """Read the entity between two offsets from its header."""
    head_end, body = header_bounds(mime, start, end)
    head = mime[start : min(head_end, start + MAX_HEADER)]
    fields: dict[bytes, str] = {}
    for found in _field.finditer(head):
        fields.setdefault(found[1].lower(), found[2][:_MAX_VALUE].decode("utf-8", "replace"))
    kind, parameters = _content_type(fields.get(b"type", ""))
    declared = fields.get(b"disposition", "")
    disposition = declared.lower()
    encoding = fields.get(b"transfer-encoding", "").strip().lower()
    boundary = b""
    if kind.startswith("multipart/"):
        boundary = parameters.get("boundary", "").rstrip().encode("ascii", "replace")
        kind = kind if boundary else "text/plain"
    attached = (
        disposition.lstrip().startswith("attachment")
        or "filename" in disposition
        or any(name.startswith("name") for name in parameters)
        or (not boundary and kind not in {"text/plain", "text/html"})
    )
    charset = parameters.get("charset", "")
    names = _names(_parameters(declared), parameters) if attached else ()
    cid = fields[b"id"].strip().removeprefix("<").removesuffix(">") if attached and b"id" in fields else None
    inline = disposition.lstrip().startswith("inline")
    return _Node(start, MailPart(kind, charset, encoding, attached, body, end, names, cid or None, inline), boundary)


def header_bounds(mime: bytes, start: int, end: int) -> tuple[int, int]:
    """Return the offsets of the end of the header (without its last line end) and of the start of the content."""
    if mime.startswith((b"\r\n", b"\n"), start, end):
        return start, start + (2 if mime[start] == 0x0D else 1)
    at, size = mime.find(b"\n\r\n", start, end), 3
    bare = mime.find(b"\n\n", start, end if at < 0 else at + 1)
    if bare >= 0:
        at, size = bare, 2
    if at < 0:
        return end, end
    return (at - 1 if at > start and mime[at - 1] == 0x0D else at), at + size


def _content_type(value: str) -> tuple[str, dict[str, str]]:
    """Return the lower-case type/subtype and its parameters by lower-case name; text/plain if the type is invalid."""
    essence = _essence(value)
    if essence is None:
        return "text/plain", {}
    return essence[1].lower(), _parameters(value, essence.end())


def _parameters(value: str, start: int = 0) -> dict[str, str]:
    """Return the parameters by lower-case name; the first one counts if a name repeats."""
    parameters: dict[str, str] = {}
    for found in islice(_parameter.finditer(value, start), _MAX_PARAMETERS):
        content = found[2].strip()
        if content.startswith('"'):
            content = _unescaped(r"\1", content[1:-1])
        parameters.setdefault(found[1].lower(), content)
    return parameters


def _names(disposition: Mapping[str, str], content_type: Mapping[str, str]) -> tuple[str, ...]:
    """Return the file names of an attachment from Content-Disposition (RFC 2183 2.3), then from Content-Type."""
    found: list[str] = []
    for parameters, word in ((disposition, "filename"), (content_type, "name")):
        extended = _extended(parameters, word)
        plain = parameters.get(word)
        for name in (extended, None if plain is None else decoded(plain)):
            if name and name not in found:
                found.append(name)
    return tuple(found)


def _extended(parameters: Mapping[str, str], word: str) -> str | None:
    """Decode a parameter in the forms of RFC 2231: `word*`, or `word*0`, `word*1*` and so on joined."""
    unsegmented = parameters.get(f"{word}*")
    segments = {0: (unsegmented, True)} if unsegmented is not None else {}
    for name, value in () if segments else parameters.items():
        if name.startswith(f"{word}*") and (numbered := _segment(name[len(word) + 1 :])) is not None:
            segments[int(numbered[1])] = (value, bool(numbered[2]))
    if 0 not in segments:
        return None
    charset, octets = "utf-8", b""
    for place in sorted(segments):
        value, escaped = segments[place]
        if escaped and place == 0 and value.count("'") >= 2:
            charset, _, value = value.split("'", 2)
        octets += unquote_to_bytes(value) if escaped else value.encode()
    return in_charset(octets, charset or "utf-8")


def _divided(mime: bytes, part: MailPart, boundary: bytes) -> tuple[list[tuple[int, int]], ReadLimit | None]:
    """Return the offsets of the entities between the delimiter lines of a multipart (RFC 2046 5.1.1).

    The last entity is all of the rest if there are too many.
    """
    line = b"\n--" + boundary
    entities: list[tuple[int, int]] = []
    opened, limit = -1, None
    for at, after, closing in _delimiters(mime, part, line):
        if after < 0 or len(entities) > MAX_PARTS:
            limit = ReadLimit.BOUNDARIES if after < 0 else ReadLimit.PARTS
            break
        if opened >= 0:
            before = at - 1 if at > opened and mime[at - 1] == 0x0D else at
            entities.append((opened, max(opened, before)))
        opened = after
        if closing:
            return entities, None
    if opened >= 0 or limit:  # cut off before its closing delimiter
        entities.append((max(opened, part.start), part.end))
    return entities, limit


def _delimiters(mime: bytes, part: MailPart, line: bytes) -> Iterator[tuple[int, int, bool]]:
    """Yield per delimiter line: the offset of its preceding line feed, the offset after it, and True if it closes.

    The offset after it is -1 where the reader stops because too many lines look like delimiters.
    """
    at = part.start - 1 if mime.startswith(line[1:], part.start, part.end) else -1
    if at < 0:
        at = mime.find(line, part.start, part.end)
    for _ in range(_MAX_CANDIDATES):
        if at < 0:
            return
        found = _after_delimiter(mime, at + len(line), part.end)
        if found is not None:
            yield at, found.end(), found[1] is not None
        # The line feed that ends one delimiter line may begin the next.
        at = mime.find(line, at + len(line), part.end)
    yield at, -1, False


def _content(mime: bytes, part: MailPart) -> bytes:
    return content(mime, part)[0]


def _from_base64(raw: bytes) -> tuple[bytes, bool]:
    """Decode as much as possible: skip foreign characters, drop an incomplete end; True if the end is incomplete."""
    for decode in (_sliced_base64, binascii.a2b_base64):
        with suppress(binascii.Error):
            return decode(raw), False
    letters = raw.translate(None, _NOT_BASE64)
    size = len(letters) - (len(letters) % 4 == 1)
    return binascii.a2b_base64(letters[:size] + b"=" * (-size % 4)), True


def _sliced_base64(raw: bytes) -> bytes:
    """Decode slices of whole lines: in a thread, other threads run between two of them. Raises binascii.Error also
    where lines end within a group of four characters.
    """
    pieces: list[bytes] = []
    start = 0
    while start < len(raw):
        end = raw.find(b"\n", start + SLICE) + 1 or len(raw)
        padded = raw.find(b"=", start, end) >= 0  # decoding ends at the padding, wherever it is
        pieces.append(binascii.a2b_base64(raw[start:] if padded else raw[start:end]))
        start = len(raw) if padded else end
    return b"".join(pieces)


def _text(mime: bytes, part: MailPart) -> str:
    """Decode a part to text with LF line ends that can be encoded in UTF-8 again."""
    text = in_charset(_content(mime, part), part.charset)
    return text.replace("\r\n", "\n").replace("\r", "\n")
