"""Validate a send request and build the message to store.

Used by acceptance for the HTTP API. Pure: no lookup and no count. Checks run in the order of the contract; the first
one that fails is the answer.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import structs

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid, shown
from engine.base.extra_rows import ExtraRow
from engine.mail import attachments as files
from engine.mail.address import BadAddress, Mailbox, canonical, check_sender, parse_mailbox
from engine.mail.client_fields import is_owned
from engine.mail.compose import BadDraft, Composed, Draft, compose
from engine.mail.encoded_words import hidden_control
from engine.mail.feedback_headers import feedback_field
from engine.mail.headers import URL_LISTS
from engine.mail.parts import MailAttachment
from engine.mail.unsubscribe_links import UnsubscribeLink, with_link
from engine.sending.emails.types import (
    MAX_HEADER_NAME,
    MAX_HEADER_VALUE,
    MAX_RECIPIENTS,
    AttachmentIn,
    Content,
    MinTls,
    Prepared,
    PreparedRecipient,
    SendRequest,
    StoredAttachment,
    Timing,
)

Value = TypeVar("Value")

MAX_ENTRIES = 200  # in `to`, `cc` and `bcc` before duplicates are removed: parsing an unusual address takes 0.1 ms
MAX_HEADERS = 100
MAX_METADATA = 50
MAX_VARIABLES = 500
AT_ONCE = timedelta(seconds=60)  # a message scheduled less than this ahead is sent immediately
DEFAULT_STREAM = "transactional"
AUTO_UNSUBSCRIBE = "auto"  # `listUnsubscribe`: the service's own page and address
_FIELD_NAME = re.compile(r"[!-9;-~]+", re.ASCII)  # RFC 5322 2.2: printable ASCII except the colon
_LINE_BREAKERS = re.compile(r"[\r\n\x00]")
_LINK_ENDS = re.compile(r",\s*(?=<?(?:https:|mailto:)|$)")  # a comma inside a URL is part of it
# Entries of an address list. A quoted name may hold commas; an unclosed quote extends to the end, in linear time.
_ENTRIES = re.compile(r'(?:"(?:[^"\\]|\\.)*+"?|[^,"])+')
_UNSUBSCRIBE = re.compile(r"(?:https://|mailto:)[!-;=?-~]+")  # RFC 2369: a URI, so printable ASCII; no space, < or >


def sender_of(request: SendRequest) -> Mailbox:
    """Return the From mailbox of the request; its domain must be verified.

    Raises the 400 for `from`.
    """
    forbid_line_breaks("from", request.from_)
    try:
        return _sender(request.from_)
    except BadAddress as error:
        raise invalid("from", f"`from` can't be used as a sender address: {error}") from error


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
    max_bytes: int,
    feedback_key: bytes | None = None,
    cfbl: str = "",
    resent_from: UUID | None = None,
    answers: UUID | None = None,
    copy: tuple[UUID, UUID] | None = None,
    unsubscribe: UnsubscribeLink | None = None,
    extras: tuple[ExtraRow, ...] = (),
) -> Prepared:
    """Check the request and compose its message; raise the Refusal of the first check that fails.

    `content` and `timing` come from `content_of` (or a template) and `timing_of`, after `check_shape`. The Date header
    of a scheduled message is the time at which it is sent. `cfbl`: the fields of `feedback_headers.cfbl_fields`, or "".
    `unsubscribe`: a link to put into header and bodies in place of `listUnsubscribe`.
    """
    recipients = recipients_of(request)
    headers = checked_headers(request)
    reply_to, reply_to_text = _reply_to(request, headers.pop("reply-to", None))
    given = headers.pop("list-unsubscribe", None)
    if unsubscribe is None:
        list_unsubscribe, one_click = _unsubscribe(request, given)
    else:
        list_unsubscribe, one_click = unsubscribe.header, unsubscribe.one_click
        html, text = with_link(content.html, content.text, unsubscribe)
        content = structs.replace(content, html=html, text=text)
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
            list_unsubscribe=list_unsubscribe,
            one_click=one_click,
            feedback=_feedback(request, sender, content, account_id, feedback_key) + cfbl,
            attachments=tuple(attachments),
        )
    )
    if len(composed.mime) > max_bytes:
        raise too_large(max_bytes)
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
        smtputf8=composed.smtputf8,  # envelope addresses that need SMTPUTF8 are checked at delivery
        idempotency_key=request.idempotency_key,
        request_digest=request_digest(request) if request.idempotency_key else b"",
        template=content.template,
        template_version=content.template_version,
        scheduled_at=timing.scheduled_at,
        deliver_by=timing.deliver_by,
        min_tls=min_tls_to_store(request.min_tls),
        resent_from=resent_from,
        answers=answers,
        copy=copy,
        extras=extras,
    )


def _feedback(request: SendRequest, sender: Mailbox, content: Content, account: UUID, key: bytes | None) -> str:
    """Return the field Feedback-ID, "" if the installation has no `key`."""
    if key is None:
        return ""
    return feedback_field(key, account, content.template or "", stream_of(request), sender.domain)


def _composed(draft: Draft) -> Composed:
    try:
        return compose(draft)
    except BadDraft as error:
        raise invalid("body", f"The message can't be composed: {error}") from error


def stream_of(request: SendRequest) -> str:
    """Return the stream named in the request, or the default stream."""
    return request.stream or DEFAULT_STREAM


def min_tls_to_store(asked: MinTls | None) -> MinTls | None:
    """Return `minTls` as it is stored: None for `opportunistic`, which is the default."""
    return None if asked == "opportunistic" else asked


def content_of(request: SendRequest) -> Content:
    """Return the subject and bodies of a request without a template."""
    return Content(request.subject or "", request.text, request.html)


def check_shape(request: SendRequest) -> None:
    """Check which fields may be combined, and limits that the types can't express; raise the 400."""
    if request.template is None:
        given = (
            ("templateVersion", request.template_version),
            ("variables", request.variables),
            ("data", request.data),
        )
        for field, value in given:
            if value:
                raise invalid(field, f"`{field}` needs a `template`. Name a template or remove `{field}`.")
        if request.text is None and request.html is None:
            raise invalid("text", "The message has no content. Give `html`, `text`, or both, or name a `template`.")
    else:
        for field, text in (("html", request.html), ("text", request.text)):
            if text is not None:
                raise invalid(
                    field, f"`{field}` can't be combined with `template`, which supplies it. Remove one of the two."
                )
    for field, entries, limit in (
        ("headers", request.headers, MAX_HEADERS),
        ("metadata", request.metadata, MAX_METADATA),
        ("variables", request.variables, MAX_VARIABLES),
    ):
        if entries is not None and len(entries) > limit:
            raise invalid(field, f"`{field}` has {len(entries)} entries; at most {limit} are allowed.")
    if request.subject is not None:
        forbid_line_breaks("subject", request.subject)


def timing_of(scheduled_at: str | None, deliver_by: str | None, at: datetime, *, give_up_s: float) -> Timing:
    """Return when the message is sent and when its delivery is given up; raise the 400 for an invalid time.

    `at` is the time of the request. The plan's limit for `scheduledAt` is checked elsewhere.
    """
    wanted = None if scheduled_at is None else _moment("scheduledAt", scheduled_at)
    later = wanted if wanted is not None and wanted > at + AT_ONCE else None
    if deliver_by is None:
        return Timing(later)
    end = _moment("deliverBy", deliver_by)
    if end <= at:
        raise invalid(
            "deliverBy", f"`deliverBy` is {deliver_by}, which is in the past. Give a later time or remove it."
        )
    if wanted is not None and end <= wanted:
        raise invalid("deliverBy", f"`deliverBy` ({deliver_by}) must be later than `scheduledAt` ({scheduled_at}).")
    if end > (later or at) + timedelta(seconds=give_up_s):
        hours = f"{give_up_s / 3600:g}"
        raise invalid("deliverBy", f"`deliverBy` can be at most {hours} hours after the send; retries stop then.")
    return Timing(later, end)


def _moment(field: str, text: str) -> datetime:
    """Parse a time and cut it to whole milliseconds."""
    try:
        found = clock.parse_iso(text)
    except ValueError as error:
        raise invalid(
            field, f"`{field}` is not a time such as 2026-11-20T08:00:00Z or 2026-11-20T09:00:00+01:00: {error}."
        ) from None
    return found.replace(microsecond=found.microsecond // 1000 * 1000)


def recipients_of(request: SendRequest) -> list[PreparedRecipient]:
    """Return each recipient once, in the order to, cc, bcc.

    Raises the refusal that names the invalid address, and the 400 for more than 50 recipients.
    """
    to = [request.to] if isinstance(request.to, str) else request.to
    cc, bcc = request.cc or [], request.bcc or []
    if len(to) + len(cc) + len(bcc) > MAX_ENTRIES:
        raise _too_many("to")
    found: dict[str, PreparedRecipient] = {}
    for kind, texts in (("to", to), ("cc", cc), ("bcc", bcc)):
        for index, text in enumerate(texts):
            field = kind if kind == "to" and isinstance(request.to, str) else f"{kind}[{index}]"
            forbid_line_breaks(field, text)
            mailbox = _recipient(text, field)
            key = canonical(mailbox.address)
            if key not in found:
                found[key] = PreparedRecipient(len(found), kind, mailbox, key)
                if len(found) > MAX_RECIPIENTS:
                    raise _too_many(kind)
    return list(found.values())


def sole_recipient(request: SendRequest) -> PreparedRecipient:
    """Return the recipient of a message with `listUnsubscribe` `auto`; raise the 400 if it can't have such a link."""
    if stream_of(request) == DEFAULT_STREAM:
        raise invalid(
            "listUnsubscribe",
            f"`listUnsubscribe` can't be `auto` on the stream {DEFAULT_STREAM!r}, whose mail people can't unsubscribe "
            "from. Send on another stream or remove it.",
        )
    recipients = recipients_of(request)
    if len(recipients) > 1:
        raise invalid(
            "listUnsubscribe",
            f"`listUnsubscribe` can't be `auto` for {len(recipients)} recipients, because each link belongs to one "
            "person. Send each of them a message of their own.",
        )
    return recipients[0]


def _too_many(field: str) -> Refusal:
    return invalid(
        field,
        f"`to`, `cc` and `bcc` may have at most {MAX_RECIPIENTS} addresses together. Split the message into several.",
    )


def checked_headers(request: SendRequest) -> dict[str, tuple[str, str]]:
    """Return the custom headers (name, value) in order, keyed by lower-case name.

    Raises the 400 for a header that Waybill writes itself, for a line break, and for a name given twice.
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
            raise invalid(field, f"{shown(name)!r} is not a header name. Use printable ASCII without spaces or colons.")
        if len(name) > MAX_HEADER_NAME:
            raise invalid(field, f"The header name has {len(name)} characters; at most {MAX_HEADER_NAME} are allowed.")
        if len(value) > MAX_HEADER_VALUE:
            raise invalid(
                field, f"The value of {name} has {len(value)} characters; at most {MAX_HEADER_VALUE} are allowed."
            )
        folded = name.lower()
        if is_owned(folded):
            raise invalid(field, f"The service writes {name} itself. Remove it from `headers`.")
        if also_fields.get(folded):
            raise invalid(field, f"{name} is set in `headers` and in its own field. Set it in one of the two.")
        if folded in found:
            raise invalid(field, f"{name} and {found[folded][0]} are the same header. Give it once.")
        forbid_line_breaks(field, value)
        if hidden_control(value.encode("utf-8", "replace")) is not None:
            raise invalid(field, f"{name} contains an encoded word with a control character. Remove it.")
        if folded in URL_LISTS and not (value.strip(" ") and value.isascii() and value.isprintable()):
            # Encoded words would break the links.
            raise invalid(field, f"{name} must hold links in printable ASCII. Percent-encode other characters.")
        found[folded] = (name, value)
    return found


def forbid_line_breaks(field: str, text: str) -> None:
    """Raise the 400 if `text`, which goes into a header, holds CR, LF or NUL."""
    if _LINE_BREAKERS.search(text):
        raise invalid(field, f"`{field}` contains a line break (CR or LF) or NUL. Remove it.")


def too_large(limit: int) -> Refusal:
    """Return the 413 for a message larger than `limit` bytes."""
    return Refusal(
        ErrorType.PAYLOAD_TOO_LARGE,
        f"The message is larger than {limit} bytes. Send smaller attachments, or links to the files.",
        limit=limit,
    )


# Values equal to an absent field: a request that states the default has the same digest.
_MEANT: dict[str, object] = {
    "cc": [], "bcc": [], "subject": "", "headers": {}, "stream": DEFAULT_STREAM, "tags": [], "metadata": {},
    "attachments": [],
}  # fmt: skip


_DATA_ENCODER = msgspec.json.Encoder(order="deterministic")  # the order of members has no meaning
_EMPTY_IS_ABSENT = frozenset({"reply_to", "list_unsubscribe", "variables"})

# Fields of the first version, which every stored digest covers whether or not they are given. A later field counts only
# where a request gives it: a replay across the upgrade that adds the field still has the digest of the first request.
_FIRST_FIELDS = frozenset({
    "from_", "to", "cc", "bcc", "subject", "text", "html", "reply_to", "headers", "list_unsubscribe", "stream",
    "template", "template_version", "variables", "tags", "metadata", "idempotency_key", "scheduled_at", "deliver_by",
    "attachments",
})  # fmt: skip


def request_digest(request: SendRequest) -> bytes:
    """Return 16 bytes that are equal for two requests with the same content.

    Compared when an idempotency key is replayed.
    """
    hashed = blake2b(digest_size=16)
    for field, default in zip(request.__struct_fields__, _defaults(type(request)), strict=True):
        value = getattr(request, field)
        if field not in _FIRST_FIELDS:
            value = _later_field(field, value)
            if value is None or value == default:
                continue
        hashed.update(repr(_canonical(field, value)).encode("utf-8", "surrogatepass"))
        hashed.update(b"\0")
    return hashed.digest()


def _later_field(field: str, value: Any) -> Any:
    """Return one value for all ways to write a field that the first version did not have; None if absent."""
    if field == "min_tls":
        return min_tls_to_store(value)
    if field == "data":
        return _DATA_ENCODER.encode(value) if value else None
    return value


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
    """Return about how many bytes must be read to compose and digest this request."""
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
            ErrorType.INVALID_ADDRESS, f"`{field}` is not an email address: {error}", address=text, field=field
        ) from error


def _reply_to(request: SendRequest, header: tuple[str, str] | None) -> tuple[tuple[Mailbox, ...], str | None]:
    """Return the Reply-To mailboxes and their text as written, from `replyTo` or from the header."""
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
        raise invalid(field, f"`{field}` is not an email address: {error}") from error


def _unsubscribe(request: SendRequest, header: tuple[str, str] | None) -> tuple[str | None, bool]:
    """Return the List-Unsubscribe value, and True if RFC 8058 one-click applies.

    One-click needs an https URL that takes the POST. A List-Unsubscribe in `headers` is kept as written. The caller
    then writes List-Unsubscribe-Post in `headers`, too, or the message has none.
    """
    if header is not None:
        return header[1].strip(" "), False
    if not request.list_unsubscribe:
        return None, False
    forbid_line_breaks("listUnsubscribe", request.list_unsubscribe)
    links = [part.strip().removeprefix("<").removesuffix(">") for part in _LINK_ENDS.split(request.list_unsubscribe)]
    for link in links:
        if not _UNSUBSCRIBE.fullmatch(link):
            raise invalid(
                "listUnsubscribe",
                "`listUnsubscribe` must be `auto`, or an https URL, a mailto link, or both, separated by a comma.",
            )
    return ", ".join(f"<{link}>" for link in links), any(link.startswith("https:") for link in links)


def _attachments(items: Sequence[AttachmentIn]) -> list[MailAttachment]:
    found = [_attachment(item, index) for index, item in enumerate(items)]
    known: set[str] = set()
    for index, one in enumerate(found):
        if one.cid is None:
            continue
        if one.cid in known:
            raise invalid(f"attachments[{index}].cid", f"Two attachments have the cid {one.cid!r}. Make it unique.")
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
            f"Mailbox providers refuse {extension} files. Send a link instead.",
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
    """Raise the 400 if a text holds NUL: PostgreSQL can't store it and mail can't carry it (RFC 5321 4.5.2)."""
    for field, text in (("text", content.text), ("html", content.html), ("idempotencyKey", request.idempotency_key)):
        if text is not None and "\0" in text:
            raise invalid(field, f"`{field}` contains NUL (U+0000). Remove it.")
    for index, tag in enumerate(request.tags or ()):
        if "\0" in tag:
            raise invalid(f"tags[{index}]", "The tag contains NUL (U+0000). Remove it.")
    for name, value in (request.metadata or {}).items():
        if "\0" in name or "\0" in value:
            field = "metadata" if "\0" in name else f"metadata.{name}"
            raise invalid(field, f"`{field}` contains NUL (U+0000). Remove it.")
