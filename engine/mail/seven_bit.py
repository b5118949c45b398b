"""Convert 8-bit content of submitted messages to quoted-printable or base64 before signing.

A server without 8BITMIME (RFC 6152) must not receive 8-bit content, and converting after signing would break the
signature, so RFC 6376 5.3 advises to convert first. `engine/sending/emails/submitted.py` calls it once per message.
"""

import re
from typing import Final, NamedTuple

from engine.mail.encode import base64_body, shorter
from engine.mail.read import Entity, UnreadableMail, entities

# Their content must not change (RFC 1847 2.1), or must not be encoded (RFC 2046 5.2, RFC 6532 3.7).
_UNTOUCHABLE: Final = ("multipart/signed", "multipart/encrypted", "message/")
_encoding_field = re.compile(
    rb"^content-transfer-encoding[ \t]*:.*(?:\r\n[ \t].*)*(?:\r\n|\Z)", re.IGNORECASE | re.MULTILINE
)
_type_field = re.compile(rb"^content-type[ \t]*:", re.IGNORECASE | re.MULTILINE).search
_version_field = re.compile(rb"^mime-version[ \t]*:", re.IGNORECASE | re.MULTILINE).search


class _Edit(NamedTuple):
    start: int
    end: int
    octets: bytes


def to_seven_bit(mime: bytes) -> bytes:
    """Return the message with every 8-bit part encoded. `mime` must have CRLF line ends.

    Content and charset stay the same. A message is returned unchanged if encoding can't help or would do harm: 8-bit
    header fields (they need SMTPUTF8 anyway), signed or encrypted multiparts (RFC 1847 2.1), broken MIME. Linear in the
    size of the message, except that nested multiparts are read once per level (at most 20).
    """
    if mime.isascii():
        return mime
    try:
        edits = [edit for entity in entities(mime) for edit in _edits(mime, entity)]
    except UnreadableMail:
        return mime
    pieces: list[bytes] = []
    at = 0
    for edit in sorted(edits):
        pieces += (mime[at : edit.start], edit.octets)
        at = edit.end
    converted = b"".join((*pieces, mime[at:]))
    return converted if converted.isascii() else mime


def _edits(mime: bytes, entity: Entity) -> list[_Edit]:
    """Return the replacements in one entity. Raises UnreadableMail if the whole message must stay unchanged."""
    content = mime[entity.body : entity.end]
    if content.isascii():
        return []
    head = mime[entity.start : entity.body]
    if entity.kind.startswith(_UNTOUCHABLE) and entity.kind != "message/rfc822":
        raise UnreadableMail(f"A part of type {entity.kind} can't be encoded.")
    if not head.isascii() or (entity.kind.startswith("multipart/") and not entity.composite):
        raise UnreadableMail("8-bit header fields and a multipart without parts can't be encoded.")
    if not head.endswith(b"\r\n\r\n") and head != b"\r\n":
        raise UnreadableMail("A part without an empty line below its header can't be encoded.")
    if entity.composite:
        return [_head(entity, head, b"7bit")] if _encoding_field.search(head) else []
    if entity.encoding:
        raise UnreadableMail(f"A part that is declared {entity.encoding} holds 8-bit octets.")
    if entity.kind.startswith("text/"):
        encoding, encoded = shorter(content.replace(b"\r\n", b"\n"))
    else:
        encoding, encoded = "base64", base64_body(content)
    if entity.end == len(mime) and not encoded.endswith(b"\r\n"):
        encoded += b"\r\n"
    return [_head(entity, head, encoding.encode(), content), _Edit(entity.body, entity.end, encoded)]


def _head(entity: Entity, head: bytes, encoding: bytes, content: bytes | None = None) -> _Edit:
    """Return the entity's header with `encoding` declared, and with MIME fields that are missing."""
    field = b"Content-Transfer-Encoding: %b\r\n" % encoding
    kept, count = _encoding_field.subn(field, head[:-2])  # without the empty line
    if count > 1:
        raise UnreadableMail("A part declares its encoding twice.")
    added = b"" if count else field
    if content is not None and _type_field(head) is None:
        added += b"Content-Type: text/plain; charset=%b\r\n" % _charset(content)
    if entity.message and _version_field(head) is None:
        added += b"MIME-Version: 1.0\r\n"
    return _Edit(entity.start, entity.body, kept + added + b"\r\n")


def _charset(content: bytes) -> bytes:
    """Return the charset to declare for a text without one (RFC 1428 3 if it is not UTF-8)."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return b"unknown-8bit"
    return b"utf-8"
