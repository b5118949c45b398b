"""A message that a client composed itself: checked octet by octet, read as far as sending needs, completed.

What the client wrote is kept as it is. Only `Bcc`, `Return-Path` and the service's own `X-Waybill-*` fields are
taken out, and what the standards demand of a message and this one lacks is put before it.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from engine.mail.address import BadAddress, Mailbox, check_sender
from engine.mail.fields import MAX_HEADER, BadHeader, Field, divided, entries, fields, hidden_control, mailbox, text_of
from engine.mail.headers import date_field

MAX_LINE: Final = 998  # octets without CRLF: RFC 5321 4.5.3.1.6
MAX_HOPS: Final = 50  # Received fields, as Postfix's hopcount_limit
MAX_SUBJECT: Final = 998  # characters kept for the record
MAX_ENTRIES: Final = 1_000  # of one address list looked at
OPTION: Final = b"x-waybill-"

_REMOVED: Final = frozenset({b"bcc", b"resent-bcc", b"return-path"})
# RFC 5322 3.6 and RFC 2045 allow one each. Readers differ over which of two they take, so that one could be
# checked and the other shown.
_SINGLE: Final = frozenset({
    b"from", b"sender", b"reply-to", b"to", b"cc", b"subject", b"date", b"message-id", b"mime-version",
    b"content-type", b"content-transfer-encoding", b"content-disposition",
})  # fmt: skip
_COMPLETED: Final = frozenset({b"date", b"message-id"})
_specials = re.compile(r'[()<>\[\]:;@\\,"]').search
_plain_address = re.compile(rb"\s*<?([A-Za-z0-9._+-]+@[A-Za-z0-9.-]+)>?\s*").fullmatch


class Flaw(StrEnum):
    """What kind of thing is wrong with a message."""

    OCTETS = "octets"  # a bare CR or LF, NUL
    LINE = "line"  # too long
    HEADER = "header"
    CHARSET = "charset"  # a header outside ASCII without SMTPUTF8, or not in UTF-8
    SENDER = "sender"  # not exactly one From with one address
    LOOP = "loop"


class Unsendable(ValueError):  # noqa: N818 - named for what was given
    """The octets can't be sent on; the sentence says why and what to do."""

    def __init__(self, flaw: Flaw, message: str) -> None:
        super().__init__(message)
        self.flaw = flaw


class Option(Struct, frozen=True):
    """One `X-Waybill-*` field: its name as it was written, and its decoded text."""

    name: str
    text: str


class Mail(Struct, frozen=True):
    """A client's message as read.

    `kept` is the message without what is taken out; `header` its fields in order, those taken out left away.
    `smtputf8` says that the header holds more than ASCII.
    """

    kept: bytes
    header: list[Field]
    sender: Mailbox
    options: list[Option]
    smtputf8: bool

    def value(self, name: bytes) -> bytes | None:
        """The raw value of a field that may occur once, by its lower-case name."""
        for field in self.header:
            if field.name == name:
                return field.value
        return None

    def text(self, name: bytes) -> str | None:
        """The same as people read it."""
        found = self.value(name)
        return None if found is None else text_of(found)

    def mailboxes(self, name: bytes) -> Iterator[Mailbox]:
        """The mailboxes of To or Cc; what can't be read as one is passed over."""
        found = self.value(name)
        if found is None:
            return
        plain = _plain_address(found)
        listed = entries(found.replace(b"\r\n", b"").decode("utf-8", "replace")) if plain is None else ()
        if plain is not None:
            yield Mailbox("", plain[1].decode())
        for _, entry in zip(range(MAX_ENTRIES), listed, strict=False):
            try:
                yield mailbox(entry)
            except BadAddress:
                continue


def read(octets: bytes, *, smtputf8: bool) -> Mail:
    """Check and read a message in CRLF lines, as it came; raises Unsendable.

    `smtputf8`: the client announced that its header may hold UTF-8 (RFC 6531). Takes microseconds for a small
    message; a large one (over 256 KB) takes milliseconds and belongs in a thread.
    """
    check_octets(octets)
    head_end, body_at = divided(octets)
    head = octets[:head_end]
    try:
        header = fields(octets, head_end)
    except BadHeader as error:
        raise Unsendable(Flaw.HEADER, str(error)) from error
    in_ascii = head.isascii()
    if not in_ascii:
        _check_charset(head, announced=smtputf8)
    _check_counts(header)
    _check_words(header)
    kept_fields, removed = _sorted(header)
    kept = octets
    if removed:
        start, pieces = 0, []
        for field in removed:
            pieces.append(octets[start : field.start])
            start = field.end
        kept = b"".join((*pieces, octets[start:]))
    if head_end == body_at:  # RFC 5322 3.5: without an empty line there is no body, and nothing to put one after
        kept += b"\r\n"
    options = [
        Option(octets[field.start : field.start + len(field.name)].decode("ascii"), text_of(field.value, MAX_HEADER))
        for field in removed
        if field.name.startswith(OPTION)
    ]
    return Mail(kept, kept_fields, _sender(header), options, not in_ascii)


def complete(mail: Mail, *, message_id: str, at: datetime, received: str = "") -> bytes:
    """The message to store: `received` (a whole field, or nothing), `Date` and `Message-ID` where they are missing,
    then what the client wrote. `message_id` has no angle brackets; `at` is aware."""
    present = {field.name for field in mail.header}
    before = received
    if b"date" not in present:
        before += date_field(at)
    if b"message-id" not in present:
        before += f"Message-ID: <{message_id}>\r\n"
    return before.encode() + mail.kept if before else mail.kept


def written(one: Mailbox) -> str:
    """A mailbox as the record shows it: `Name <name@example.com>`, the name quoted where it must be."""
    if not one.name:
        return one.address
    name = one.name
    if _specials(name) is not None:
        name = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{name} <{one.address}>"


def check_octets(octets: bytes) -> None:
    """Only whole CRLFs, no NUL, no line above MAX_LINE; raises Unsendable.

    A bare CR or LF ends a line for some servers and not for others: passed on, it could end the message early
    at one of them and begin another in our name.
    """
    pairs = octets.count(b"\r\n")
    if octets.count(b"\n") != pairs or octets.count(b"\r") != pairs:
        raise Unsendable(Flaw.OCTETS, "The message holds a bare CR or LF; every line must end with CRLF.")
    if b"\0" in octets:
        raise Unsendable(Flaw.OCTETS, "The message holds NUL; encode binary content in base64.")
    at = 0
    most = MAX_LINE + 2
    while len(octets) - at > most:  # from line end to line end, as far as one long line may reach
        end = octets.rfind(b"\n", at, at + most)
        if end < 0:
            raise Unsendable(Flaw.LINE, f"A line is longer than {MAX_LINE} octets; encode long lines.")
        at = end + 1


def _check_charset(head: bytes, *, announced: bool) -> None:
    if not announced:
        raise Unsendable(
            Flaw.CHARSET, "The header holds characters outside ASCII; encode them (RFC 2047) or send with SMTPUTF8."
        )
    try:
        head.decode()
    except UnicodeDecodeError as error:
        raise Unsendable(Flaw.CHARSET, "The header is not in UTF-8.") from error


def _check_counts(header: list[Field]) -> None:
    seen: set[bytes] = set()
    hops = 0
    for field in header:
        if field.name in seen and field.name != b"from":
            raise Unsendable(Flaw.HEADER, f"The header has more than one {field.name.decode()} field; one is allowed.")
        if field.name in _SINGLE:
            seen.add(field.name)
        hops += field.name == b"received"
    if hops > MAX_HOPS:
        raise Unsendable(Flaw.LOOP, f"The message went through {hops} servers; it seems to run in a loop.")


def _check_words(header: list[Field]) -> None:
    for field in header:
        control = hidden_control(field.value)
        if control is not None:
            name = field.name.decode()
            raise Unsendable(
                Flaw.HEADER, f"An encoded word in {name} holds a control character (U+{ord(control):04X}); take it out."
            )


def _sorted(header: list[Field]) -> tuple[list[Field], list[Field]]:
    """(fields that stay, fields that are taken out). An empty Date or Message-ID counts as missing."""
    stay: list[Field] = []
    out: list[Field] = []
    for field in header:
        empty = field.name in _COMPLETED and not field.value.strip(b" \t\r\n")
        (out if empty or field.name in _REMOVED or field.name.startswith(OPTION) else stay).append(field)
    return stay, out


def _sender(header: list[Field]) -> Mailbox:
    """The one From mailbox: whom the reader sees, and whose domain must be verified."""
    values = [field.value for field in header if field.name == b"from"]
    if len(values) != 1:
        raise Unsendable(Flaw.SENDER, f"The message has {len(values) or 'no'} From fields; it must have exactly one.")
    listed = list(entries(values[0].replace(b"\r\n", b"").decode("utf-8", "replace")))
    if len(listed) != 1:
        raise Unsendable(Flaw.SENDER, f"From holds {len(listed) or 'no'} addresses; it must hold exactly one.")
    try:
        found = mailbox(listed[0])
        check_sender(found)
    except BadAddress as error:
        raise Unsendable(Flaw.SENDER, f"From is not an address we can send as: {error}") from error
    return found
