"""The entities of a MIME tree: text bodies, attachments, and the multiparts around them (RFC 2045, 2046)."""

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from engine.mail.attachments import content_id, media_type
from engine.mail.encode import base64_body, text_body
from engine.mail.headers import FOLD_AT, folded, words_of

# A name of these stands in plain quotes, which every mail program reads; others take RFC 2231.
_plain_filename = re.compile(r"[A-Za-z0-9!#$&+._^`{}~()@,;:=\[\]'-]+(?: +[A-Za-z0-9!#$&+._^`{}~()@,;:=\[\]'-]+)*")
_UNRESERVED: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$&+-.^_`{}~"
_PERCENT: Final = tuple(chr(code) if code in _UNRESERVED else f"%{code:02X}" for code in range(256))
_SEGMENT: Final = 54  # with ` filename*99*=utf-8''` before and `;` behind, a line stays below FOLD_AT


class Attachment(Struct, frozen=True, kw_only=True):
    """One file to send. `cid` is what the HTML says after `cid:`."""

    filename: str
    content_type: str
    content: bytes
    disposition: Literal["attachment", "inline"] = "attachment"
    cid: str | None = None

    @property
    def embedded(self) -> bool:
        """True when the HTML shows it: inline and with a name to refer to."""
        return self.disposition == "inline" and self.cid is not None


class Entity(NamedTuple):
    """One node: its Content-* fields, each with CRLF, and the octets after the empty line in pieces."""

    head: str
    body: list[bytes]


def text_entity(subtype: str, text: str) -> Entity:
    """`text/plain` or `text/html` in UTF-8."""
    encoding, body = text_body(text)
    return Entity(f"Content-Type: text/{subtype}; charset=utf-8\r\nContent-Transfer-Encoding: {encoding}\r\n", [body])


def file_entity(file: Attachment) -> Entity:
    """An attachment in base64; raises BadContent for an impossible type or content id."""
    kind = media_type(file.content_type)
    if kind.startswith(("message/", "multipart/")):
        # RFC 2045 6.4 forbids base64 for these, and the file's octets must arrive as they are.
        kind = "application/octet-stream"
    head = (
        folded("Content-Type", words_of(" " + kind))
        + "Content-Transfer-Encoding: base64\r\n"
        + folded("Content-Disposition", _disposition(file))
    )
    if file.cid is not None:
        head += f"Content-ID: <{content_id(file.cid)}>\r\n"
    return Entity(head, [base64_body(file.content)])


def multipart(subtype: str, boundary: str, entities: Sequence[Entity], parameters: str = "") -> Entity:
    """The entities in one multipart; without a last CRLF, which belongs to what follows.

    `parameters` come before the boundary, each with a blank before and a semicolon behind it.
    """
    body: list[bytes] = []
    for entity in entities:
        body.append(f"--{boundary}\r\n{entity.head}\r\n".encode())
        body += entity.body
        body.append(b"\r\n")
    body.append(f"--{boundary}--".encode())
    return Entity(f'Content-Type: multipart/{subtype};{parameters} boundary="{boundary}"\r\n', body)


def _disposition(file: Attachment) -> list[str]:
    """The words of Content-Disposition (RFC 2183), the file name in quotes or in RFC 2231 segments."""
    kind = f" {file.disposition};"
    name = file.filename
    if _plain_filename.fullmatch(name) is not None:
        return [kind, f' filename="{name}"']
    escaped = [_PERCENT[code] for code in name.encode()]
    whole = "".join(escaped)
    if len(whole) <= FOLD_AT - len(" filename*=utf-8''"):
        return [kind, f" filename*=utf-8''{whole}"]
    segments = _segments(escaped)
    words = [f" filename*{place}*={segment};" for place, segment in enumerate(segments)]
    words[0] = f" filename*0*=utf-8''{segments[0]};"
    words[-1] = words[-1][:-1]
    return [kind, *words]


def _segments(escaped: list[str]) -> list[str]:
    """The escapes joined into segments of at most `_SEGMENT` characters, no escape divided."""
    segments, current = [], ""
    for piece in escaped:
        if len(current) + len(piece) > _SEGMENT:
            segments.append(current)
            current = ""
        current += piece
    segments.append(current)
    return segments
