"""Check the filters of lists of received messages, and choose attachments. Pure."""

from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from hashlib import sha256
from uuid import UUID

import msgspec

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.list_filters import FIRST_ID, LAST_ID, first_id, patterns, without_nul
from engine.mail.address import BadAddress, domain_name, parse_mailbox
from engine.mail.read import UnreadableMail
from engine.mail.received import received_attachment
from engine.mail.received_warnings import MailWarning
from engine.receiving.inbound_messages.types import ReceivedFile, ReceivedFilters, Routed

COPIES_KNOWN = timedelta(hours=24)  # within which the same bytes of a sender are not stored again
MAX_BULK = 100  # messages of one bulk change
WHAT = "received message"
EPOCH = date(1970, 1, 1)
MAX_DAYS = 1_000_000  # after EPOCH: in the year 4707
_DAY_MS = 86_400_000
_WARNINGS = msgspec.json.Decoder(list[MailWarning])
_FILES = msgspec.json.Decoder(list[ReceivedFile])


def filters(
    *,
    before: UUID | None,
    address: str | None,
    domain: str | None,
    domains: frozenset[str] | None,
    sender: str | None,
    search: str | None,
    body: str | None,
    read: bool | None,
    spam: bool | None,
    replies_to: str | None,
    since: str | None,
    until: str | None,
    routed: Routed,
) -> ReceivedFilters:
    """Return the filters of a list request; raise the 400 that names the invalid parameter."""
    low = FIRST_ID if since is None else first_id("from", since)
    high = LAST_ID if until is None else first_id("until", until)
    return ReceivedFilters(
        low=low,
        high=high if before is None else min(high, before),
        address=None if address is None else _address("address", address),
        domain=None if domain is None else _domain(domain),
        domains=domains,
        sender=None if sender is None else _address("sender", sender).lower(),
        search=None if search is None else patterns(without_nul("search", search)),
        body=None if body is None else patterns(without_nul("body", body)),
        read=read,
        spam=spam,
        replies_to=None if replies_to is None else _message("repliesTo", replies_to),
        routed=routed,
        all_time=since is None and until is None and before is None,
    )


def whole_days(low: UUID, high: UUID, at: datetime) -> tuple[date, date]:
    """Return the first UTC day that lies within the ids [low, high) as a whole, and the day after the last one.

    There are no such days if the first is not before the second. Days after tomorrow hold no messages.
    """
    begin = min(_day_count(low, _DAY_MS - 1), MAX_DAYS)
    end = min(_day_count(high), (at.date() - EPOCH).days + 2)
    return EPOCH + timedelta(days=begin), EPOCH + timedelta(days=end)


def first_id_of(day: date) -> UUID:
    """Return the smallest id of a UTC day."""
    return ids.floor_of((day - EPOCH).days * _DAY_MS)


def _day_count(message: UUID, later_ms: int = 0) -> int:
    return (ids.milliseconds_of(message) + later_ms) // _DAY_MS


def too_slow(wanted: ReceivedFilters) -> Refusal | None:
    """Return the 400 for a list that timed out, naming the filter to narrow; None if no filter causes it."""
    if wanted.text is None:
        return None
    return Refusal(
        ErrorType.INVALID_REQUEST,
        f"The filter `{wanted.text}` would read too many messages. Narrow the period with `from` and `until`, or "
        "add `address` or `sender`.",
        field=wanted.text,
    )


def received_at(message: UUID) -> datetime:
    """Return the time of a received message's commit, in milliseconds, from its id."""
    return clock.at_milliseconds(ids.milliseconds_of(message))


def thread_key(message_id: str) -> int:
    """Return the key of the conversation that the message with this Message-ID began."""
    return int.from_bytes(sha256(message_id.encode("utf-8", "replace")).digest()[:8], "big", signed=True)


def sent_thread_key(message: UUID, from_domain: str) -> int:
    """Return the key of the conversation that a sent message began."""
    return thread_key(f"{ids.encode(message)}@{from_domain}")


def files_of(attachments: str) -> list[ReceivedFile]:
    """Return the stored attachments of a message from their JSON."""
    return _FILES.decode(attachments)


def check_download(file: ReceivedFile, *, scanner_required: bool) -> None:
    """Raise the 422 for an infected attachment, and for one that was not scanned where a scan is required."""
    if file.scan == "infected":
        raise infected(f"The attachment contains {file.signature or 'malicious code'}, so it can't be downloaded.")
    if file.scan == "failed" and scanner_required:
        raise Refusal(
            ErrorType.ATTACHMENT_BLOCKED,
            "The virus scan of this attachment failed, and this instance only serves scanned attachments. Ask its "
            "operator.",
            filename=file.filename,
        )


def content_gone() -> Refusal:
    """Return the 404 for the content of a message whose route does not retain it."""
    return Refusal(
        ErrorType.NOT_FOUND,
        "The content was deleted once the message was posted or forwarded, because its route does not retain it.",
    )


def check_raw(files: Collection[ReceivedFile], warnings: str, *, scanner_required: bool) -> None:
    """Raise the 422 for the bytes of a message that is infected, or has an attachment that may not be downloaded.

    `warnings`: the stored ones, as JSON.
    """
    if is_infected((), warnings):
        raise infected("The message contains malicious code, so it can't be downloaded.")
    for file in files:
        check_download(file, scanner_required=scanner_required)


def check_forwardable(files: Collection[ReceivedFile], warnings: str, *, scanner_required: bool) -> None:
    """Raise the 422 for a message that is never forwarded: infected, or not scanned where a scan is required.

    `warnings`: the stored ones, as JSON.
    """
    if is_infected(files, warnings):
        found = next((file.signature for file in files if file.scan == "infected"), None)
        raise infected(f"The message contains {found or 'malicious code'}, so it can't be forwarded.")
    if scanner_required and (unscanned := next((file for file in files if file.scan == "failed"), None)) is not None:
        raise Refusal(
            ErrorType.ATTACHMENT_BLOCKED,
            "The virus scan of an attachment failed, and this instance only forwards scanned attachments. Read the "
            "message in the mailbox.",
            filename=unscanned.filename,
        )


def is_infected(files: Collection[ReceivedFile], warnings: str) -> bool:
    """Return True if an attachment is infected, or the message itself, such as in its text (a warning says so)."""
    return any(file.scan == "infected" for file in files) or any(
        warning.code == "infected" for warning in _WARNINGS.decode(warnings)
    )


def infected(sentence: str) -> Refusal:
    """Return the 422 `attachment_infected`."""
    return Refusal(ErrorType.ATTACHMENT_INFECTED, sentence)


def content_of(mime: bytes, files: Sequence[ReceivedFile], wanted: ReceivedFile) -> bytes | None:
    """Return the bytes of a stored attachment, or None if the message does not contain them.

    A later version of the reader may divide a message in another way: the SHA-256 taken at arrival decides.
    """
    first = files.index(wanted)
    for index in (first, *(index for index in range(len(files)) if index != first)):
        try:
            content = received_attachment(mime, index)
        except UnreadableMail:
            continue
        if sha256(content).hexdigest() == wanted.sha256:
            return content
    return None


def _address(name: str, text: str) -> str:
    if text.startswith("*@"):  # a catch-all address
        return f"*@{_domain(text[2:], name)}"
    try:
        mailbox = parse_mailbox(text)
    except BadAddress as error:
        raise invalid(name, f"`{name}` is not an email address: {error}") from None
    if mailbox.name or "<" in text:
        raise invalid(name, f"`{name}` must be an address without a name, such as ann@example.com.")
    return mailbox.address


def _domain(text: str, name: str = "domain") -> str:
    try:
        return domain_name(text)
    except BadAddress as error:
        raise invalid(name, f"`{name}` is not a domain name: {error}") from None


def _message(name: str, text: str) -> UUID:
    try:
        return ids.parse_id(ids.Kind.MESSAGE, text)
    except ids.WrongId:
        raise invalid(name, f"`{name}` must be the id of a message, msg_….") from None
