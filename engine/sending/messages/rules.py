"""Check list filters, format recipients and extract attachments of stored messages. Pure."""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from hashlib import sha256
from uuid import UUID

import msgspec
import orjson

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid, not_found
from engine.base.events import SETTLED, Status
from engine.base.list_filters import FIRST_ID, LAST_ID, first_id, narrowed, patterns, without_nul
from engine.mail.address import BadAddress, domain_name, parse_mailbox
from engine.mail.read import UnreadableMail, attachment
from engine.sending.messages.types import MessageFilters, MessageWithWaybill, RecipientRow, StoredFile

MAX_NAME, MAX_VALUE = 64, 512  # characters of a metadata entry
_SPECIALS = re.compile(r'[()<>\[\]:;@\\,."]')  # RFC 5322 3.2.3: these need quotes in a display name
_FILES = msgspec.json.Decoder(list[StoredFile])


def filters(
    *,
    before: UUID | None,
    status: str | None,
    to: str | None,
    search: str | None,
    domain: str | None,
    stream: str | None,
    tags: Sequence[str],
    metadata: str | None,
    since: str | None,
    until: str | None,
    source: str | None = None,
    template: str | None = None,
    recipient_domain: str | None = None,
    broadcast: str | None = None,
    scope: str | None = None,
    visible_domains: AbstractSet[str] | None = None,
    visible_streams: AbstractSet[str] | None = None,
) -> MessageFilters:
    """Return the filters of a list request; raise the 400 that names the invalid parameter.

    `visible_domains`, `visible_streams`: those that the caller may see, None for all.
    """
    for name, text in (("search", search), ("metadata", metadata), *(("tag", tag) for tag in tags)):
        without_nul(name, text or "")
    low = FIRST_ID if since is None else first_id("from", since)
    high = LAST_ID if until is None else first_id("until", until)
    return MessageFilters(
        low=low,
        high=high if before is None else min(high, before),
        status=status,
        to=None if to is None else _address(to),
        search=None if search is None else patterns(search),
        domains=narrowed(None if domain is None else _domain("domain", domain), visible_domains),
        streams=narrowed(stream, visible_streams),
        tags=orjson.dumps(list(tags)).decode() if tags else None,
        metadata=None if metadata is None else _entries(metadata),
        source=source,
        template=template,
        recipient_domain=None if recipient_domain is None else _domain("recipientDomain", recipient_domain),
        broadcast=None if broadcast is None else _broadcast(broadcast),
        scope=scope,
    )


def too_slow(wanted: MessageFilters) -> Refusal | None:
    """Return the 400 for a list that timed out, naming the filter to narrow; None if no filter causes it."""
    name = wanted.scans
    if name is None:
        return None
    return Refusal(
        ErrorType.INVALID_REQUEST,
        f"The filter `{name}` would read too many messages. Narrow the period with `from` and `until`, or add `to`.",
        field=name,
    )


def content_gone(*, forgets: bool) -> Refusal:
    """Return the 404 for a message whose content is not stored any more; `forgets` if the sender asked for that."""
    if not forgets:
        return not_found("message")
    return Refusal(
        ErrorType.NOT_FOUND,
        "The content was deleted once the message was final, because the message does not retain it.",
    )


def made_at(message: UUID) -> datetime:
    """Return the time of acceptance, in milliseconds, from the message id."""
    return clock.at_milliseconds(ids.milliseconds_of(message))


def waited_for(row: MessageWithWaybill) -> set[str]:
    """Return the recipients' domains for which a message waits in the queue. Broadcasts wait by intention: none."""
    if row.source == "broadcast" or row.status in {Status.SCHEDULED, *SETTLED}:
        return set()
    recipients = [RecipientRow(*fields) for fields in row.recipients]
    return {one.address.rpartition("@")[2] for one in recipients if Status(one.status) not in SETTLED}


def written(name: str | None, address: str) -> str:
    """Format a recipient as `a@b.example` or `Name <a@b.example>`; `parse_mailbox` reads it back."""
    if not name:
        return address
    if _SPECIALS.search(name):
        escaped = name.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}" <{address}>'
    return f"{name} <{address}>"


def files_of(attachments: str | None) -> list[StoredFile]:
    """Return the stored attachments of a message from their JSON."""
    return [] if attachments is None else _FILES.decode(attachments)


def content_of(mime: bytes, files: Sequence[StoredFile], wanted: StoredFile) -> bytes | None:
    """Return the bytes of a stored attachment, or None if the message no longer holds it.

    Composing puts inline images before other files, so the place in the request is only the first candidate; the
    SHA-256 taken at acceptance decides.
    """
    first = files.index(wanted)
    for place in (first, *(place for place in range(len(files)) if place != first)):
        for content in _read(mime, place):
            if len(content) == wanted.size_bytes and sha256(content).hexdigest() == wanted.sha256:
                return content
    return None


def _read(mime: bytes, place: int) -> Iterator[bytes]:
    try:
        yield attachment(mime, place)
    except UnreadableMail:
        return


def _address(text: str) -> str:
    try:
        mailbox = parse_mailbox(text)
    except BadAddress as error:
        raise invalid("to", f"`to` is not an email address: {error}") from None
    if mailbox.name or "<" in text:
        raise invalid("to", "`to` must be an address without a name, such as ann@example.com.")
    return mailbox.address


def _domain(name: str, text: str) -> str:
    try:
        return domain_name(text)
    except BadAddress as error:
        raise invalid(name, f"`{name}` is not a domain name: {error}") from None


def _broadcast(text: str) -> UUID:
    try:
        return ids.parse_id(ids.Kind.BROADCAST, text)
    except ids.WrongId as error:
        raise invalid("broadcast", f"`broadcast` is not the id of a broadcast: {error}.") from None


def _entries(text: str) -> list[str]:
    """Return `name:value` as JSON objects, one for each colon that could separate the two."""
    parts = text.split(":")
    pairs = [(":".join(parts[:place]), ":".join(parts[place:])) for place in range(1, len(parts))]
    found = [{name: value} for name, value in pairs if 1 <= len(name) <= MAX_NAME and len(value) <= MAX_VALUE]
    if not found:
        raise invalid(
            "metadata",
            f"`metadata` must have the form name:value, with at most {MAX_NAME} characters in the name and {MAX_VALUE} "
            "in the value.",
        )
    return [orjson.dumps(one).decode() for one in found]
