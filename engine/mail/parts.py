"""Encode the entities of a MIME tree: text bodies, attachments, and the multiparts around them (RFC 2045, 2046)."""

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from engine.mail.attachments import content_id, media_type
from engine.mail.encode import base64_pieces, text_body
from engine.mail.headers import FOLD_AT, folded, quoted_words, words_of

# File names of these characters are quoted, which every mail client reads; others are encoded by RFC 2231.
_plain_filename = re.compile(r"[A-Za-z0-9!#$&+._^`{}~()@,;:=\[\]'-]+(?: +[A-Za-z0-9!#$&+._^`{}~()@,;:=\[\]'-]+)*")
_has_name = re.compile(r";\s*name\*?=", re.IGNORECASE).search
_UNRESERVED: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$&+-.^_`{}~"
_PERCENT: Final = tuple(chr(code) if code in _UNRESERVED else f"%{code:02X}" for code in range(256))
_SEGMENT: Final = 54  # with ` filename*99*=utf-8''` before and `;` behind, a line stays below FOLD_AT


class MailAttachment(Struct, frozen=True, kw_only=True):
    """A file to send. `cid` is the content id by which the HTML refers to it (`cid:…`)."""

    filename: str
    content_type: str
    content: bytes
    disposition: Literal["attachment", "inline"] = "attachment"
    cid: str | None = None

    @property
    def embedded(self) -> bool:
        """Return True if the HTML can show it: it is inline and has a content id."""
        return self.disposition == "inline" and self.cid is not None


class EncodedEntity(NamedTuple):
    """An encoded MIME entity: its Content-* fields, each with CRLF, and the pieces of its body."""

    head: str
    body: list[bytes]


def text_entity(subtype: str, text: str) -> EncodedEntity:
    """Encode text as `text/plain` or `text/html` in UTF-8."""
    encoding, body = text_body(text)
    return EncodedEntity(
        f"Content-Type: text/{subtype}; charset=utf-8\r\nContent-Transfer-Encoding: {encoding}\r\n", [body]
    )


def file_entity(file: MailAttachment) -> EncodedEntity:
    """Encode an attachment in base64. Raises BadContent for an invalid media type or content id."""
    kind = media_type(file.content_type)
    if kind.startswith(("message/", "multipart/")):
        # RFC 2045 6.4 forbids base64 for these, and the file's octets must arrive as they are.
        kind = "application/octet-stream"
    head = (
        folded("Content-Type", _typed(kind, file.filename))
        + "Content-Transfer-Encoding: base64\r\n"
        + folded("Content-Disposition", _disposition(file))
    )
    if file.cid is not None:
        head += f"Content-ID: <{content_id(file.cid)}>\r\n"
    return EncodedEntity(head, base64_pieces(file.content))


def multipart(subtype: str, boundary: str, entities: Sequence[EncodedEntity], parameters: str = "") -> EncodedEntity:
    """Join entities into a multipart, without the final CRLF, which belongs to what follows.

    `parameters` come before the boundary, each with a leading blank and a trailing semicolon.
    """
    body: list[bytes] = []
    for entity in entities:
        body.append(f"--{boundary}\r\n{entity.head}\r\n".encode())
        body += entity.body
        body.append(b"\r\n")
    body.append(f"--{boundary}--".encode())
    return EncodedEntity(f'Content-Type: multipart/{subtype};{parameters} boundary="{boundary}"\r\n', body)


def _typed(kind: str, filename: str) -> list[str]:
    """Return the words of Content-Type, with the file name for clients that can't read it in Content-Disposition."""
    words = words_of(" " + kind)
    if _plain_filename.fullmatch(filename) is not None or _has_name(kind):
        return words
    words[-1] += ";"
    return words + quoted_words("name", filename)


def _disposition(file: MailAttachment) -> list[str]:
    """Return the words of Content-Disposition (RFC 2183), with the file name quoted or in RFC 2231 segments."""
    kind = f" {file.disposition};"
    name = file.filename
    if _plain_filename.fullmatch(name) is not None:
        return [kind, f' filename="{name}"']
    escaped = [_PERCENT[code] for code in name.encode()]
    joined = "".join(escaped)
    if len(joined) <= FOLD_AT - len(" filename*=utf-8''"):
        return [kind, f" filename*=utf-8''{joined}"]
    segments = _segments(escaped)
    words = [f" filename*{place}*={segment};" for place, segment in enumerate(segments)]
    words[0] = f" filename*0*=utf-8''{segments[0]};"
    words[-1] = words[-1][:-1]
    return [kind, *words]


def _segments(escaped: list[str]) -> list[str]:
    """Join escapes into segments of at most `_SEGMENT` characters without dividing an escape."""
    segments, current = [], ""
    for piece in escaped:
        if len(current) + len(piece) > _SEGMENT:
            segments.append(current)
            current = ""
        current += piece
    segments.append(current)
    return segments
