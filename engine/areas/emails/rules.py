"""From a send request to a message ready to be stored: every check that needs no count and no lookup.

Pure. The order is the order of business; the first check that fails is the answer.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any, TypeVar
from uuid import UUID

from msgspec import structs

from engine.areas.emails.types import (
    MAX_HEADER_NAME,
    MAX_HEADER_VALUE,
    MAX_RECIPIENTS,
    AttachmentIn,
    Content,
    LeastTls,
    Prepared,
    Recipient,
    SendRequest,
    StoredAttachment,
    Timing,
)
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail import attachments as files
from engine.mail.address import BadAddress, Mailbox, canonical, check_sender, parse_mailbox
from engine.mail.compose import BadDraft, Composed, Draft, compose
from engine.mail.parts import MailAttachment

Value = TypeVar("Value")

MAX_ENTRIES = 200  # in `to`, `cc` and `bcc` before repeated addresses are folded: parsing an odd one takes 0.1 ms
MAX_HEADERS = 100
MAX_METADATA = 50
MAX_VARIABLES = 500
AT_ONCE = timedelta(seconds=60)  # a time nearer than this is no schedule: the message goes out at once
DEFAULT_STREAM = "transactional"
OWNED_HEADERS = frozenset({
    "from", "to", "cc", "bcc", "subject", "date", "message-id", "sender", "return-path", "received",
    "dkim-signature", "mime-version", "authentication-results",
})  # fmt: skip
OWNED_PREFIXES = ("content-", "arc-")
_FIELD_NAME = re.compile(r"[!-9;-~]+", re.ASCII)  # RFC 5322 2.2: printable ASCII but the colon
_LINE_BREAKERS = re.compile(r"[\r\n\x00]")
_LINK_ENDS = re.compile(r",\s*(?=<?(?:https:|mailto:)|$)")  # a comma inside a URL is part of it
# An address list's entries: a quoted name may hold commas. One that never ends takes the rest, in linear time.
_ENTRIES = re.compile(r'(?:"(?:[^"\\]|\\.)*+"?|[^,"])+')
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
    content: Content,
    timing: Timing,
    *,
    account_id: UUID,
    message_id: UUID,
    source: str,
    at: datetime,
    most_bytes: int,
    resent_from: UUID | None = None,
) -> Prepared:
    """Check the request and compose its message; raises the Refusal of the first check that fails.

    `content` and `timing` come from `content_of` (or a template) and `timing_of`, after `check_shape`. A message
    for later is dated for later: its Date is the time it goes out at.
    """
    recipients = recipients_of(request)
    headers = checked_headers(request)
    reply_to, reply_to_text = _reply_to(request, headers.pop("reply-to", None))
    unsubscribe, one_click = _unsubscribe(request, headers.pop("list-unsubscribe", None))
    attachments = _attachments(request.attachments or ())
    _forbid_nul(request, content)
    public_id = ids.format_id(ids.Kind.MESSAGE, message_id)
    composed = _composed(
        Draft(
            message_id=f"{ids.body_of(public_id)}@{sender.domain}",
            date=timing.scheduled_at or at,
            sender=sender,
            to=tuple(one.mailbox for one in recipients if one.kind == "to"),
            cc=tuple(one.mailbox for one in recipients if one.kind == "cc"),
            reply_to=reply_to,
            subject=content.subject,
            text=content.text,
            html=content.html,
            headers=tuple(headers.values()),
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
        public_id=public_id,
        created_at=at,
        source=source,
        sender=request.from_,
        from_domain=sender.domain,
        reply_to=reply_to_text,
        subject=content.subject,
        stream=stream_of(request),
        tags=request.tags or [],
        metadata=request.metadata or {},
        attachments=[_stored(item) for item in attachments],
        recipients=recipients,
        mime=composed.mime,
        smtputf8=composed.smtputf8,  # what a transaction's own addresses need is looked at when it is made
        idempotency_key=request.idempotency_key,
        request_digest=request_digest(request) if request.idempotency_key else b"",
        template=content.template,
        template_version=content.template_version,
        scheduled_at=timing.scheduled_at,
        deliver_by=timing.deliver_by,
        min_tls=least_tls(request.min_tls),
        resent_from=resent_from,
    )


def _composed(draft: Draft) -> Composed:
    try:
        return compose(draft)
    except BadDraft as error:
        raise invalid("body", f"The message can't be composed: {error}") from error


def stream_of(request: SendRequest) -> str:
    """The stream that the request names, or the one that every account has."""
    return request.stream or DEFAULT_STREAM


def least_tls(asked: LeastTls | None) -> LeastTls | None:
    """What is kept of `minTls`: nothing of what holds without it."""
    return None if asked == "opportunistic" else asked


def content_of(request: SendRequest) -> Content:
    """What a request without a template says."""
    return Content(request.subject or "", request.text, request.html)


def check_shape(request: SendRequest) -> None:
    """What fields may stand together, and the bounds that the types can't express."""
    if request.template is None:
        for field, value in (("templateVersion", request.template_version), ("variables", request.variables)):
            if value:
                raise invalid(field, f"`{field}` goes with a `template`; name one, or leave it out.")
        if request.text is None and request.html is None:
            raise invalid("text", "Supply `html`, `text`, or both, or name a `template`.")
    else:
        for field, text in (("html", request.html), ("text", request.text)):
            if text is not None:
                raise invalid(field, f"`{field}` comes from the template; leave it out beside `template`.")
    for field, entries, most in (
        ("headers", request.headers, MAX_HEADERS),
        ("metadata", request.metadata, MAX_METADATA),
        ("variables", request.variables, MAX_VARIABLES),
    ):
        if entries is not None and len(entries) > most:
            raise invalid(field, f"`{field}` may have {most} entries at the most.")
    if request.subject is not None:
        forbid_line_breaks("subject", request.subject)


def timing_of(scheduled_at: str | None, deliver_by: str | None, at: datetime, *, give_up_s: float) -> Timing:
    """When a request of moment `at` wants its message sent; raises the 400 of a time that can't be.

    How far ahead it may lie is for the account's plan to say, and is not looked at here.
    """
    wanted = None if scheduled_at is None else _moment("scheduledAt", scheduled_at)
    later = wanted if wanted is not None and wanted > at + AT_ONCE else None
    if deliver_by is None:
        return Timing(later)
    end = _moment("deliverBy", deliver_by)
    if end <= at:
        raise invalid("deliverBy", "`deliverBy` must lie in the future.")
    if wanted is not None and end <= wanted:
        raise invalid("deliverBy", "`deliverBy` must lie after `scheduledAt`.")
    if end > (later or at) + timedelta(seconds=give_up_s):
        hours = f"{give_up_s / 3600:g}"
        raise invalid("deliverBy", f"`deliverBy` may lie {hours} hours after the send at the most: no try is later.")
    return Timing(later, end)


def _moment(field: str, text: str) -> datetime:
    """A time in whole milliseconds, as all of ours are."""
    try:
        found = clock.parse_iso(text)
    except ValueError as error:
        raise invalid(
            field, f"`{field}` must be a time such as 2026-11-20T08:00:00Z or 2026-11-20T09:00:00+01:00: {error}."
        ) from None
    return found.replace(microsecond=found.microsecond // 1000 * 1000)


def recipients_of(request: SendRequest) -> list[Recipient]:
    """All recipients once each, in the order to, cc, bcc; refuses a bad address by name and more than 50."""
    to = [request.to] if isinstance(request.to, str) else request.to
    cc, bcc = request.cc or [], request.bcc or []
    if len(to) + len(cc) + len(bcc) > MAX_ENTRIES:
        raise _too_many("to")
    found: dict[str, Recipient] = {}
    for kind, texts in (("to", to), ("cc", cc), ("bcc", bcc)):
        for index, text in enumerate(texts):
            field = kind if kind == "to" and isinstance(request.to, str) else f"{kind}[{index}]"
            forbid_line_breaks(field, text)
            mailbox = _recipient(text, field)
            key = canonical(mailbox.address)
            if key not in found:
                found[key] = Recipient(len(found), kind, mailbox, key)
                if len(found) > MAX_RECIPIENTS:
                    raise _too_many(kind)
    return list(found.values())


def _too_many(field: str) -> Refusal:
    return invalid(field, f"`to`, `cc` and `bcc` together hold at most {MAX_RECIPIENTS} addresses.")


def checked_headers(request: SendRequest) -> dict[str, tuple[str, str]]:
    """Custom headers (name, value) in order, by lower-case name.

    Refuses what the service itself writes, what could start another header, and a name given twice.
    """
    found: dict[str, tuple[str, str]] = {}
    if not request.headers:
        return found
    unsubscribe = request.list_unsubscribe
    also_fields = {"reply-to": request.reply_to}
    also_fields |= {"list-unsubscribe": unsubscribe, "list-unsubscribe-post": unsubscribe}  # RFC 8058 3.1: one of each
    for name, value in request.headers.items():
        field = f"headers.{name[:MAX_HEADER_NAME]}"
        if not _FIELD_NAME.fullmatch(name):
            raise invalid(field, f"{name!r} can't be a header name: use printable ASCII without spaces or a colon.")
        if len(name) > MAX_HEADER_NAME:
            raise invalid(field, f"A header name may have {MAX_HEADER_NAME} characters at the most.")
        if len(value) > MAX_HEADER_VALUE:
            raise invalid(field, f"A header's value may have {MAX_HEADER_VALUE} characters at the most.")
        folded = name.lower()
        if folded in OWNED_HEADERS or folded.startswith(OWNED_PREFIXES):
            raise invalid(field, f"The service writes {name} itself; it can't be set in `headers`.")
        if also_fields.get(folded):
            raise invalid(field, f"{name} stands in `headers` and in a field of its own; give it once.")
        if folded in found:
            raise invalid(field, f"{name} and {found[folded][0]} are one header; give it once.")
        forbid_line_breaks(field, value)
        found[folded] = (name, value)
    return found


def forbid_line_breaks(field: str, text: str) -> None:
    """CR, LF and NUL never reach a header."""
    if _LINE_BREAKERS.search(text):
        raise invalid(field, f"`{field}` must not hold CR, LF or NUL.")


def too_large(limit: int) -> Refusal:
    """The message is larger than this server takes."""
    return Refusal(ErrorType.PAYLOAD_TOO_LARGE, f"The message may have {limit} bytes at the most.", limit=limit)


# What an absent field means: a request that spells it out is the same request.
_MEANT: dict[str, object] = {
    "cc": [], "bcc": [], "subject": "", "headers": {}, "stream": DEFAULT_STREAM, "tags": [], "metadata": {},
    "attachments": [],
}  # fmt: skip


_EMPTY_IS_ABSENT = frozenset({"reply_to", "list_unsubscribe", "variables"})

# Fields of the first version, which every stored digest covers whether or not they are given. A later field counts only
# where a request gives it: a replay across the upgrade that adds the field still has the digest of the first request.
_FIRST_FIELDS = frozenset({
    "from_", "to", "cc", "bcc", "subject", "text", "html", "reply_to", "headers", "list_unsubscribe", "stream",
    "template", "template_version", "variables", "tags", "metadata", "idempotency_key", "scheduled_at", "deliver_by",
    "attachments",
})  # fmt: skip


def request_digest(request: SendRequest) -> bytes:
    """Return 16 bytes that tell whether a replayed idempotency key came with the same request."""
    hashed = blake2b(digest_size=16)
    for field, default in zip(request.__struct_fields__, _defaults(type(request)), strict=True):
        value = getattr(request, field)
        if field not in _FIRST_FIELDS:
            value = least_tls(value) if field == "min_tls" else value
            if value is None or value == default:
                continue
        hashed.update(repr(_canonical(field, value)).encode("utf-8", "surrogatepass"))
        hashed.update(b"\0")
    return hashed.digest()


def _canonical(field: str, value: Any) -> object:
    """Return one value for all ways to write the same content of a field."""
    if value is None:
        return _MEANT.get(field)
    if field in _EMPTY_IS_ABSENT:
        return value or None
    if field == "attachments":
        return [
            (one.filename, one.content_type, one.content, one.disposition or "attachment", one.cid or None)
            for one in value
        ]
    return value


@lru_cache
def _defaults(request: type[SendRequest]) -> tuple[object, ...]:
    return tuple(field.default for field in structs.fields(request))


def composing_bytes(request: SendRequest) -> int:
    """Return about how many octets are gone through to compose and digest this request."""
    parts = [len(request.text or ""), len(request.html or "")]
    parts += [len(one.content) for one in request.attachments or ()]
    parts += [len(value) for given in (request.variables, request.headers, request.metadata) if given
              for value in given.values()]  # fmt: skip
    return sum(parts)


@lru_cache(maxsize=10_000)
def _sender(text: str) -> Mailbox:
    found = parse_mailbox(text)
    check_sender(found)
    return found


def _recipient(text: str, field: str) -> Mailbox:
    try:
        return parse_mailbox(text)
    except BadAddress as error:
        raise Refusal(
            ErrorType.INVALID_ADDRESS, f"`{field}` is not an address: {error}", address=text, field=field
        ) from error


def _reply_to(request: SendRequest, header: tuple[str, str] | None) -> tuple[tuple[Mailbox, ...], str | None]:
    """Where answers go, and how the request wrote it: `replyTo`, or one or several addresses in a header."""
    if header is not None:
        field, text = f"headers.{header[0]}", header[1]
        entries = _ENTRIES.findall(text) or [""]
    elif request.reply_to:
        field, text = "replyTo", request.reply_to
        forbid_line_breaks(field, text)
        entries = [text]
    else:
        return (), None
    try:
        return tuple(parse_mailbox(entry.strip(" \t")) for entry in entries), text
    except BadAddress as error:
        raise invalid(field, f"`{field}` is not an address: {error}") from error


def _unsubscribe(request: SendRequest, header: tuple[str, str] | None) -> tuple[str | None, bool]:
    """The header's value and whether RFC 8058 one-click applies: only an https URL can take the POST.

    A List-Unsubscribe in `headers` is kept as it was given; its links would be lost in encoded words, so it must
    be ASCII. The customer's own List-Unsubscribe-Post then stands beside it, or nothing does.
    """
    if header is not None:
        name, value = header
        if not value.strip(" ") or not value.isascii() or not value.isprintable():
            raise invalid(f"headers.{name}", f"{name} must hold links in printable ASCII; percent-encode the rest.")
        return value.strip(" "), False
    if not request.list_unsubscribe:
        return None, False
    forbid_line_breaks("listUnsubscribe", request.list_unsubscribe)
    links = [part.strip().removeprefix("<").removesuffix(">") for part in _LINK_ENDS.split(request.list_unsubscribe)]
    for link in links:
        if not _UNSUBSCRIBE.fullmatch(link):
            raise invalid("listUnsubscribe", "`listUnsubscribe` takes an https URL and/or a mailto, comma-separated.")
    return ", ".join(f"<{link}>" for link in links), any(link.startswith("https:") for link in links)


def _attachments(items: Sequence[AttachmentIn]) -> list[MailAttachment]:
    found = [_attachment(item, index) for index, item in enumerate(items)]
    known: set[str] = set()
    for index, one in enumerate(found):
        if one.cid is None:
            continue
        if one.cid in known:
            raise invalid(f"attachments[{index}].cid", f"The cid {one.cid!r} stands on two attachments.")
        known.add(one.cid)
    return found


def _attachment(item: AttachmentIn, index: int) -> MailAttachment:
    field = f"attachments[{index}]"
    for name, value in (("filename", item.filename), ("contentType", item.content_type), ("cid", item.cid or "")):
        forbid_line_breaks(f"{field}.{name}", value)
    content_type = _readable(f"{field}.contentType", files.media_type, item.content_type)
    cid = _readable(f"{field}.cid", files.content_id, item.cid) if item.cid else None
    extension = files.blocked_extension(item.filename)
    if extension is not None:
        raise Refusal(
            ErrorType.ATTACHMENT_BLOCKED,
            f"Mailbox providers refuse {extension} files; send a link instead.",
            filename=item.filename,
        )
    content = _readable(f"{field}.content", files.decode_content, item.content)
    return MailAttachment(
        filename=item.filename, content_type=content_type, content=content,
        disposition=item.disposition or "attachment", cid=cid,
    )  # fmt: skip


def _readable(field: str, read: Callable[[str], Value], text: str) -> Value:
    try:
        return read(text)
    except files.BadContent as error:
        raise invalid(field, f"`{field}`: {error}") from error


def _stored(item: MailAttachment) -> StoredAttachment:
    return StoredAttachment(
        ids.format_id(ids.Kind.ATTACHMENT, ids.uuid7()),
        item.filename,
        item.content_type,
        len(item.content),
        sha256(item.content).hexdigest(),
    )


def _forbid_nul(request: SendRequest, content: Content) -> None:
    """Postgres stores no NUL, and no mail may carry one (RFC 5321 4.5.2)."""
    for field, text in (("text", content.text), ("html", content.html), ("idempotencyKey", request.idempotency_key)):
        if text is not None and "\0" in text:
            raise invalid(field, f"`{field}` must not hold NUL.")
    for index, tag in enumerate(request.tags or ()):
        if "\0" in tag:
            raise invalid(f"tags[{index}]", "A tag must not hold NUL.")
    for name, value in (request.metadata or {}).items():
        if "\0" in name or "\0" in value:
            field = "metadata" if "\0" in name else f"metadata.{name}"
            raise invalid(field, f"`{field}` must not hold NUL.")
