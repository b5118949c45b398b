"""From a send request to a message ready to be stored: every check that needs no count and no lookup.

Pure. The order is the order of business; the first check that fails is the answer.
"""

import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import TypeVar
from uuid import UUID

from engine.areas.emails.types import (
    MOST_RECIPIENTS,
    AttachmentIn,
    Prepared,
    Recipient,
    SendRequest,
    StoredAttachment,
)
from engine.base import ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail import attachments as files
from engine.mail.address import BadAddress, Mailbox, canonical, parse_mailbox
from engine.mail.compose import BadDraft, Composed, Draft, compose
from engine.mail.parts import Attachment

Value = TypeVar("Value")

MOST_ENTRIES = 200  # in `to`, `cc` and `bcc` before repeated addresses are folded: parsing an odd one takes 0.1 ms
MOST_HEADERS = 100
MOST_METADATA = 50
OWNED_HEADERS = frozenset({
    "from", "to", "cc", "bcc", "subject", "date", "message-id", "sender", "return-path", "received",
    "dkim-signature", "mime-version", "authentication-results",
})  # fmt: skip
OWNED_PREFIXES = ("content-", "arc-")
_FIELD_NAME = re.compile(r"[!-9;-~]+", re.ASCII)  # RFC 5322 2.2: printable ASCII but the colon
_LINE_BREAKERS = re.compile(r"[\r\n\x00]")
_LINK_ENDS = re.compile(r",\s*(?=<?(?:https:|mailto:)|$)")  # a comma inside a URL is part of it
_UNSUBSCRIBE = re.compile(r"(?:https://|mailto:)[!-;=?-~]+")  # RFC 2369: a URI, so printable ASCII; no space, < or >


def sender_of(request: SendRequest) -> Mailbox:
    """The From mailbox; its domain is the one that must be verified."""
    forbid_line_breaks("from", request.from_)
    try:
        return _sender(request.from_)
    except BadAddress as error:
        raise invalid("from", f"`from` is not an address we can send as: {error}") from error


def prepare(
    request: SendRequest,
    sender: Mailbox,
    *,
    account_id: UUID,
    message_id: UUID,
    source: str,
    at: datetime,
    most_bytes: int,
) -> Prepared:
    """Check the request and compose its message; raises the Refusal of the first check that fails."""
    check_shape(request)
    recipients = recipients_of(request)
    reply_to = _reply_to(request)
    headers = checked_headers(request)
    unsubscribe, one_click = _unsubscribe(request)
    attachments = [_attachment(item, index) for index, item in enumerate(request.attachments)]
    _forbid_nul(request)
    composed = _composed(
        Draft(
            message_id=f"{ids.encode(message_id)}@{sender.domain}",
            date=at,
            sender=sender,
            to=tuple(one.mailbox for one in recipients if one.kind == "to"),
            cc=tuple(one.mailbox for one in recipients if one.kind == "cc"),
            reply_to=(reply_to,) if reply_to else (),
            subject=request.subject,
            text=request.text,
            html=request.html,
            headers=headers,
            list_unsubscribe=unsubscribe,
            one_click=one_click,
            attachments=tuple(attachments),
        )
    )
    if len(composed.mime) > most_bytes:
        raise too_large(most_bytes)
    return Prepared(
        account_id=account_id,
        id=message_id,
        public_id=ids.format_id(ids.Kind.MESSAGE, message_id),
        created_at=at,
        source=source,
        sender=request.from_,
        from_domain=sender.domain,
        reply_to=request.reply_to,
        subject=request.subject,
        stream=request.stream,
        tags=request.tags,
        metadata=request.metadata,
        attachments=[_stored(item) for item in attachments],
        recipients=recipients,
        mime=composed.mime,
        smtputf8=composed.smtputf8,  # what a transaction's own addresses need is looked at when it is made
        idempotency_key=request.idempotency_key,
        request_digest=request_digest(request) if request.idempotency_key else b"",
    )


def _composed(draft: Draft) -> Composed:
    try:
        return compose(draft)
    except BadDraft as error:
        raise invalid("body", f"The message can't be composed: {error}") from error


def check_shape(request: SendRequest) -> None:
    """What fields may stand together, and the bounds that the types can't express."""
    for field, value in (
        ("template", request.template),
        ("templateVersion", request.template_version),
        ("variables", request.variables),
        ("scheduledAt", request.scheduled_at),
    ):
        if value is not None:
            raise invalid(field, f"`{field}` is not available on this server yet; leave it out.")
    if request.text is None and request.html is None:
        raise invalid("text", "Supply `html`, `text`, or both.")
    if len(request.headers) > MOST_HEADERS:
        raise invalid("headers", f"At most {MOST_HEADERS} custom headers fit on a message.")
    if len(request.metadata) > MOST_METADATA:
        raise invalid("metadata", f"At most {MOST_METADATA} metadata entries fit on a message.")
    forbid_line_breaks("subject", request.subject)


def recipients_of(request: SendRequest) -> list[Recipient]:
    """All recipients once each, in the order to, cc, bcc; refuses a bad address by name and more than 50."""
    to = [request.to] if isinstance(request.to, str) else request.to
    if len(to) + len(request.cc) + len(request.bcc) > MOST_ENTRIES:
        raise _too_many("to")
    found: dict[str, Recipient] = {}
    for kind, texts in (("to", to), ("cc", request.cc), ("bcc", request.bcc)):
        for index, text in enumerate(texts):
            field = kind if kind == "to" and isinstance(request.to, str) else f"{kind}[{index}]"
            forbid_line_breaks(field, text)
            mailbox = _recipient(text, field)
            key = canonical(mailbox.address)
            if key not in found:
                found[key] = Recipient(len(found), kind, mailbox, key)
                if len(found) > MOST_RECIPIENTS:
                    raise _too_many(kind)
    return list(found.values())


def _too_many(field: str) -> Refusal:
    return invalid(field, f"`to`, `cc` and `bcc` together hold at most {MOST_RECIPIENTS} addresses.")


def checked_headers(request: SendRequest) -> tuple[tuple[str, str], ...]:
    """Custom headers in order; refuses what the service itself writes, and what could start another header."""
    unsubscribe = request.list_unsubscribe
    also_fields = {"reply-to": request.reply_to}
    also_fields |= {"list-unsubscribe": unsubscribe, "list-unsubscribe-post": unsubscribe}  # RFC 8058 3.1: one of each
    for name, value in request.headers.items():
        field = f"headers.{name}"
        if not _FIELD_NAME.fullmatch(name):
            raise invalid("headers", f"{name!r} can't be a header name: use printable ASCII without spaces or a colon.")
        folded = name.lower()
        if folded in OWNED_HEADERS or folded.startswith(OWNED_PREFIXES):
            raise invalid(field, f"The service writes {name} itself; it can't be set in `headers`.")
        if also_fields.get(folded):
            raise invalid(field, f"{name} stands in `headers` and in a field of its own; give it once.")
        forbid_line_breaks(field, value)
    return tuple(request.headers.items())


def forbid_line_breaks(field: str, text: str) -> None:
    """CR, LF and NUL never reach a header."""
    if _LINE_BREAKERS.search(text):
        raise invalid(field, f"`{field}` must not hold CR, LF or NUL.")


def too_large(limit: int) -> Refusal:
    """The message is larger than this server takes."""
    return Refusal(ErrorType.PAYLOAD_TOO_LARGE, f"The message may have {limit} bytes at the most.", limit=limit)


def request_digest(request: SendRequest) -> bytes:
    """16 bytes that tell whether a replayed idempotency key came with the same request."""
    hashed = blake2b(digest_size=16)
    for field in request.__struct_fields__:
        hashed.update(repr(getattr(request, field)).encode("utf-8", "surrogatepass"))
        hashed.update(b"\0")
    return hashed.digest()


@lru_cache(maxsize=10_000)
def _sender(text: str) -> Mailbox:
    return parse_mailbox(text)


def _recipient(text: str, field: str) -> Mailbox:
    try:
        return parse_mailbox(text)
    except BadAddress as error:
        raise Refusal(
            ErrorType.INVALID_ADDRESS, f"`{field}` is not an address: {error}", address=text, field=field
        ) from error


def _reply_to(request: SendRequest) -> Mailbox | None:
    if not request.reply_to:
        return None
    forbid_line_breaks("replyTo", request.reply_to)
    try:
        return parse_mailbox(request.reply_to)
    except BadAddress as error:
        raise invalid("replyTo", f"`replyTo` is not an address: {error}") from error


def _unsubscribe(request: SendRequest) -> tuple[str | None, bool]:
    """The header's value and whether RFC 8058 one-click applies: only an https URL can take the POST."""
    if not request.list_unsubscribe:
        return None, False
    forbid_line_breaks("listUnsubscribe", request.list_unsubscribe)
    links = [part.strip().removeprefix("<").removesuffix(">") for part in _LINK_ENDS.split(request.list_unsubscribe)]
    for link in links:
        if not _UNSUBSCRIBE.fullmatch(link):
            raise invalid("listUnsubscribe", "`listUnsubscribe` takes an https URL and/or a mailto, comma-separated.")
    return ", ".join(f"<{link}>" for link in links), any(link.startswith("https:") for link in links)


def _attachment(item: AttachmentIn, index: int) -> Attachment:
    field = f"attachments[{index}]"
    for name, value in (("filename", item.filename), ("contentType", item.content_type), ("cid", item.cid or "")):
        forbid_line_breaks(f"{field}.{name}", value)
    content_type = _readable(f"{field}.contentType", files.media_type, item.content_type)
    cid = None if item.cid is None else _readable(f"{field}.cid", files.content_id, item.cid)
    extension = files.blocked_extension(item.filename)
    if extension is not None:
        raise Refusal(
            ErrorType.ATTACHMENT_BLOCKED,
            f"Mailbox providers refuse {extension} files; send a link instead.",
            filename=item.filename,
        )
    content = _readable(f"{field}.content", files.decode_content, item.content)
    return Attachment(
        filename=item.filename, content_type=content_type, content=content, disposition=item.disposition, cid=cid
    )


def _readable(field: str, read: Callable[[str], Value], text: str) -> Value:
    try:
        return read(text)
    except files.BadContent as error:
        raise invalid(field, f"`{field}`: {error}") from error


def _stored(item: Attachment) -> StoredAttachment:
    return StoredAttachment(
        ids.format_id(ids.Kind.ATTACHMENT, ids.uuid7()),
        item.filename,
        item.content_type,
        len(item.content),
        sha256(item.content).hexdigest(),
    )


def _forbid_nul(request: SendRequest) -> None:
    """Postgres stores no NUL, and no mail may carry one (RFC 5321 4.5.2)."""
    for field, text in (("text", request.text), ("html", request.html), ("idempotencyKey", request.idempotency_key)):
        if text is not None and "\0" in text:
            raise invalid(field, f"`{field}` must not hold NUL.")
    for index, tag in enumerate(request.tags):
        if "\0" in tag:
            raise invalid(f"tags[{index}]", "A tag must not hold NUL.")
    for name, value in request.metadata.items():
        if "\0" in name or "\0" in value:
            raise invalid("metadata", "Metadata must not hold NUL.")
