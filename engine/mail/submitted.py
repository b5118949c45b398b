"""Check and complete a message that a client composed, for SMTP submission and for `POST /v1/emails/raw`.

The message stays as the client wrote it, except that `Bcc`, the service's own fields (`X-Waybill-*`, `Feedback-ID`,
`CFBL-*`), those of Trace Context and those that only mail servers write (`client_fields`) are removed, and missing
mandatory fields are prepended.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Final

from msgspec import Struct

from engine.base import trace_context
from engine.mail.address import BadAddress, Mailbox, bare_address, check_sender, path_mailbox, unmapped_domain
from engine.mail.address_list import ListedMailbox, NotOneAddress, author, display_name, listed
from engine.mail.client_fields import is_foreign
from engine.mail.encoded_words import hidden_control, unfolded
from engine.mail.fields import MAX_HEADER, BadHeader, Field, divided, fields, text_of
from engine.mail.headers import date_field

MAX_LINE: Final = 998  # octets without CRLF: RFC 5321 4.5.3.1.6
MAX_HOPS: Final = 50  # Received fields, as Postfix's hopcount_limit
MAX_SUBJECT: Final = 998  # characters kept for the record
MAX_ENTRIES: Final = 1_000  # read of one address list
OPTION: Final = b"x-waybill-"
TRACE_FIELDS: Final = frozenset({b"traceparent", b"tracestate"})  # for this service; recipients need not know them

# RFC 5322 3.6 and RFC 2045 allow one each. Mail clients differ in which of two they use, so one could be checked and
# the other shown.
_SINGLE: Final = frozenset({
    b"from", b"sender", b"reply-to", b"to", b"cc", b"subject", b"date", b"message-id", b"mime-version",
    b"content-type", b"content-transfer-encoding", b"content-disposition",
})  # fmt: skip
_COMPLETED: Final = frozenset({b"date", b"message-id"})
_ANSWERED: Final = frozenset({
    b"reply-to", b"to", b"cc", b"mail-reply-to", b"mail-followup-to", b"errors-to", b"return-receipt-to",
    b"disposition-notification-to", b"x-confirm-reading-to",
})  # fmt: skip
_specials = re.compile(r'[()<>\[\]:;@\\,"]').search


class Flaw(StrEnum):
    """The kind of fault in a submitted message; it selects the SMTP reply code."""

    OCTETS = "octets"  # a bare CR or LF, NUL
    LINE = "line"  # too long
    HEADER = "header"
    CHARSET = "charset"  # a header outside ASCII without SMTPUTF8, or not in UTF-8
    SENDER = "sender"  # not exactly one From with one address
    LOOP = "loop"


class Unsendable(ValueError):  # noqa: N818 - named for what was given
    """The message can't be sent; the text says why and what to do."""

    def __init__(self, flaw: Flaw, message: str) -> None:
        super().__init__(message)
        self.flaw = flaw


class Option(Struct, frozen=True):
    """One `X-Waybill-*` field: its name as written, and its decoded text."""

    name: str
    text: str


class Mail(Struct, frozen=True):
    """A submitted message after checking.

    `kept` is the message without the removed fields; `header` holds its remaining fields in order, `blind` the removed
    Bcc fields. `smtputf8` is True if the header contains non-ASCII characters.
    """

    kept: bytes
    header: list[Field]
    sender: Mailbox
    options: list[Option]
    smtputf8: bool
    blind: list[Field] = []
    traceparent: str | None = None  # as engine.base.trace_context keeps it

    def value(self, name: bytes) -> bytes | None:
        """Return the raw value of a field that may occur once, by its lower-case name."""
        for field in self.header:
            if field.name == name:
                return field.value
        return None

    def text(self, name: bytes) -> str | None:
        """Return the value as readable text."""
        found = self.value(name)
        return None if found is None else text_of(found)

    def recipient_entries(self) -> Iterator[tuple[str, ListedMailbox]]:
        """Yield the entries of To, Cc and Bcc, each with the name of its field; an empty group names no recipient."""
        named = [field for name in (b"to", b"cc") for field in self.header if field.name == name]
        for field in (*named, *self.blind):
            for entry in listed(unfolded(field.value)):
                if entry.address or not entry.group:
                    yield field.name.decode().title(), entry

    def mailboxes(self, name: bytes) -> Iterator[Mailbox]:
        """Yield the mailboxes of To or Cc; entries that can't be parsed are skipped."""
        found = self.value(name)
        if found is None:
            return
        for entry in islice(listed(unfolded(found)), MAX_ENTRIES):
            try:
                yield Mailbox(display_name(entry)[0], path_mailbox(entry.address).address)
            except BadAddress:
                continue


def read(octets: bytes, *, smtputf8: bool) -> Mail:
    """Check and parse a message with CRLF lines. Raises Unsendable.

    `smtputf8`: the client announced that its header may contain UTF-8 (RFC 6531). Takes microseconds for a small
    message; a large one (over 256 KB) takes milliseconds, so read it in a thread.
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
    if not in_ascii:
        _check_domains(header)
    sender = _sender(header)
    kept_fields, removed = _sorted(header, sender.domain)
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
    blind = [field for field in removed if field.name == b"bcc"]
    return Mail(kept, kept_fields, sender, options, not in_ascii, blind, _traceparent(removed))


def with_crlf(octets: bytes) -> bytes:
    """Return the message with CRLF lines if all its lines end in LF alone; any other message as it is."""
    return octets if b"\r" in octets else octets.replace(b"\n", b"\r\n")


def complete(
    mail: Mail, *, message_id: str, at: datetime, received: str = "", feedback: str = "", cfbl: str = ""
) -> bytes:
    """Return the message to store: `received`, then `Date` and `Message-ID` if missing, `feedback` and `cfbl`, then the
    client's message.

    `received`, `feedback` (Feedback-ID) and `cfbl` (CFBL-Address, CFBL-Feedback-ID) are complete fields or "".
    `message_id` has no angle brackets, and `at` is aware.
    """
    present = {field.name for field in mail.header}
    before = received
    if b"date" not in present:
        before += date_field(at)
    if b"message-id" not in present:
        before += f"Message-ID: <{message_id}>\r\n"
    before += feedback + cfbl
    return before.encode() + mail.kept if before else mail.kept


def written(one: Mailbox) -> str:
    """Format a mailbox for the message record: `Name <name@example.com>`, with the name quoted if necessary."""
    if not one.name:
        return one.address
    name = one.name
    if _specials(name) is not None:
        name = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{name} <{one.address}>"


def check_octets(octets: bytes) -> None:
    """Raise Unsendable for a bare CR or LF, NUL, or a line longer than MAX_LINE.

    Some servers treat a bare CR or LF as a line end and others do not: it could end the message early at one of them
    and smuggle in another message in our name.
    """
    if len(octets) - len(octets.translate(None, b"\r\n")) != 2 * octets.count(b"\r\n"):
        raise Unsendable(Flaw.OCTETS, "The message contains a bare CR or LF; every line must end with CRLF.")
    if b"\0" in octets:
        raise Unsendable(Flaw.OCTETS, "The message contains NUL; encode binary content in base64.")
    at = 0
    longest = MAX_LINE + 2
    while len(octets) - at > longest:  # jumps to the last line end within the longest line
        end = octets.rfind(b"\n", at, at + longest)
        if end < 0:
            raise Unsendable(Flaw.LINE, f"A line is longer than {MAX_LINE} octets; encode long lines.")
        at = end + 1


def _check_charset(head: bytes, *, announced: bool) -> None:
    if not announced:
        raise Unsendable(
            Flaw.CHARSET, "The header contains characters outside ASCII; encode them (RFC 2047) or send with SMTPUTF8."
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
        raise Unsendable(
            Flaw.LOOP, f"The message has passed {hops} servers, more than {MAX_HOPS}; this is a mail loop."
        )


def _check_words(header: list[Field]) -> None:
    for field in header:
        control = hidden_control(field.value)
        if control is not None:
            name = field.name.decode()
            raise Unsendable(
                Flaw.HEADER,
                f"An encoded word in {name} contains a control character (U+{ord(control):04X}); remove it.",
            )


def _check_domains(header: list[Field]) -> None:
    """Raise Unsendable for a domain that recipients' programs would have to map: an answer could go elsewhere."""
    for field in header:
        if field.name in _ANSWERED and not field.value.isascii():
            try:
                for entry in islice(listed(unfolded(field.value)), MAX_ENTRIES):
                    unmapped_domain(entry.address.rpartition("@")[2])
            except BadAddress as error:
                raise Unsendable(Flaw.HEADER, f"{field.name.decode().title()}: {error}") from error


def _sorted(header: list[Field], from_domain: str) -> tuple[list[Field], list[Field]]:
    """Return the fields to keep and those to remove. An empty Date or Message-ID counts as missing."""
    stay: list[Field] = []
    out: list[Field] = []
    for field in header:
        empty = field.name in _COMPLETED and not field.value.strip(b" \t\r\n")
        ours = field.name == b"bcc" or field.name.startswith(OPTION) or field.name in TRACE_FIELDS
        (out if empty or ours or is_foreign(field, from_domain) else stay).append(field)
    return stay, out


def _traceparent(removed: list[Field]) -> str | None:
    values = [text_of(field.value) for field in removed if field.name == b"traceparent"]
    return trace_context.read(values[0]) if len(values) == 1 else None


def _sender(header: list[Field]) -> Mailbox:
    """Return the single From mailbox: recipients see it, and its domain must be verified."""
    values = [field.value for field in header if field.name == b"from"]
    if len(values) != 1:
        raise Unsendable(Flaw.SENDER, f"The message has {len(values) or 'no'} From fields; it must have exactly one.")
    try:
        found = author(unfolded(values[0]))
        bare_address(found.address)  # other than a recipient's, its local part may not need quotes
        check_sender(found)
    except NotOneAddress as error:
        raise Unsendable(Flaw.SENDER, str(error)) from error
    except BadAddress as error:
        raise Unsendable(Flaw.SENDER, f"From is not an address we can send as: {error}") from error
    return found
