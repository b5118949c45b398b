"""Convert 8-bit content of a client's message to quoted-printable or base64 before it is signed.

A server without 8BITMIME (RFC 6152) must not be given 8-bit content, and a conversion after signing would break the
signature, so RFC 6376 5.3 advises to convert first. `areas/emails/submitted.py` calls it once a message.
"""

import re
from typing import Final, NamedTuple

from engine.mail.encode import base64_body, shorter
from engine.mail.read import Entity, UnreadableMail, entities

# Their content must stay as it is (RFC 1847 2.1), or may not be encoded (RFC 2046 5.2, RFC 6532 3.7).
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
    """Return the message with every 8-bit part encoded; in whole CRLF lines, as `mime` has to be.

    Content and charset stay the same. A message stays as it is where encoding can't help or would do harm: 8-bit
    header fields (they need SMTPUTF8 anyway), signed or encrypted multiparts (RFC 1847 2.1), broken MIME. Linear in
    the size of the message but for nested multiparts, whose octets are looked at once a level (at most 20).
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
    """Return what to replace in one entity; raises UnreadableMail where the whole message has to stay as it is."""
    content = mime[entity.body : entity.end]
    if content.isascii():
        return []
    head = mime[entity.start : entity.body]
    if entity.kind.startswith(_UNTOUCHABLE) and entity.kind != "message/rfc822":
        raise UnreadableMail(f"A part of type {entity.kind} can't be encoded.")
    if not head.isascii() or (entity.kind.startswith("multipart/") and not entity.composite):
        raise UnreadableMail("8-bit header fields and a multipart without parts can't be encoded.")
    if entity.composite:
        return [_head(entity, head, b"7bit")] if _encoding_field.search(head) else []
    if entity.encoding not in ("", "7bit", "8bit", "binary"):
        raise UnreadableMail(f"A part that is declared {entity.encoding} holds 8-bit octets.")
    if entity.kind.startswith("text/"):
        encoding, encoded = shorter(content.replace(b"\r\n", b"\n"))
    else:
        encoding, encoded = "base64", base64_body(content)
    if entity.end == len(mime) and not encoded.endswith(b"\r\n"):
        encoded += b"\r\n"
    return [_head(entity, head, encoding.encode(), content), _Edit(entity.body, entity.end, encoded)]


def _head(entity: Entity, head: bytes, encoding: bytes, content: bytes | None = None) -> _Edit:
    """Return the entity's header with `encoding` declared, and with the fields that make it MIME where they lack."""
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
    """Name the charset of a text that declares none (RFC 1428 3 for what is not UTF-8)."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return b"unknown-8bit"
    return b"utf-8"
