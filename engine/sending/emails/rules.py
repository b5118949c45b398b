"""Validate a send request and build the message to store.

Used by acceptance for the HTTP API. Pure: no lookup and no count. Checks run in the order that the reference of the
API gives; the first one that fails is the answer.
"""

from msgspec import structs

from engine.base import ids, trace_context
from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail.address import Mailbox
from engine.mail.compose import BadDraft, Composed, Draft, compose
from engine.mail.unsubscribe_links import with_link
from engine.sending.emails.attachments import attachments_of, described
from engine.sending.emails.content_retention import content_hours_of
from engine.sending.emails.defaults import min_tls_to_store, stream_of
from engine.sending.emails.headers import checked_headers, forbid_line_breaks
from engine.sending.emails.limits import MAX_HEADERS, MAX_METADATA, MAX_VARIABLES
from engine.sending.emails.recipients import recipients_of, reply_to_of
from engine.sending.emails.request_digest import request_digest
from engine.sending.emails.types import Content, MessageFacts, Prepared, SendRequest, Timing
from engine.sending.emails.unsubscribe import list_unsubscribe_of


def prepare(
    request: SendRequest,
    sender: Mailbox,
    content: Content,
    timing: Timing,
    facts: MessageFacts,
) -> Prepared:
    """Check the request and compose its message; raise the Refusal of the first check that fails.

    `content` and `timing` come from `content_of` (or a template) and `timing_of`, after `check_shape`. The Date header
    of a scheduled message is the time at which it is sent.
    """
    recipients = recipients_of(request)
    headers = checked_headers(request)
    reply_to, reply_to_text = reply_to_of(request, headers.pop("reply-to", None))
    given = headers.pop("list-unsubscribe", None)
    traceparent = trace_context.read(headers.pop("traceparent", ("", None))[1]) or facts.traceparent
    headers.pop("tracestate", None)
    if facts.unsubscribe is None:
        list_unsubscribe, one_click = list_unsubscribe_of(request, given)
    else:
        list_unsubscribe, one_click = facts.unsubscribe.header, facts.unsubscribe.one_click
        html, text = with_link(content.html, content.text, facts.unsubscribe)
        content = structs.replace(content, html=html, text=text)
    attachments = [*attachments_of(request.attachments or ()), *content.files]
    _forbid_nul(request, content)
    public_id = ids.format_id(ids.Kind.MESSAGE, facts.message_id)
    stream = stream_of(request)
    composed = _composed(
        Draft(
            message_id=f"{ids.body_of(public_id)}@{sender.domain}",
            date=timing.scheduled_at or facts.at,
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
            feedback=facts.feedback(content.template or "", stream, sender.domain) + facts.cfbl,
            attachments=tuple(attachments),
        )
    )
    if len(composed.mime) > facts.max_bytes:
        raise too_large(facts.max_bytes)
    return Prepared(
        account_id=facts.account_id,
        id=facts.message_id,
        public_id=public_id,
        created_at=facts.at,
        source=facts.source,
        sender=request.from_,
        from_domain=sender.domain,
        reply_to=reply_to_text,
        subject=content.subject,
        stream=stream,
        tags=request.tags or [],
        metadata=request.metadata or {},
        attachments=[described(one.filename, one.content_type, one.content) for one in attachments],
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
        resent_from=facts.resent_from,
        answers=facts.answers,
        traceparent=traceparent,
        content_hours=content_hours_of(
            retain=request.retain_content, until=request.content_until, default=facts.stream_content_hours
        ),
        copy=facts.copy,
        extras=facts.extras,
    )


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
            raise invalid(field, f"`{field}` has {len(entries)} entries; the limit is {limit}. Remove some.")
    if request.subject is not None:
        forbid_line_breaks("subject", request.subject)


def too_large(limit: int) -> Refusal:
    """Return the 413 for a message larger than `limit` bytes."""
    return Refusal(
        ErrorType.PAYLOAD_TOO_LARGE,
        f"The message is larger than {limit} bytes. Send smaller attachments, or links to the files.",
        limit=limit,
    )


def composing_bytes(request: SendRequest) -> int:
    """Return about how many bytes must be read to compose and digest this request."""
    parts = [len(request.text or ""), len(request.html or "")]
    parts += [len(one.content) for one in request.attachments or ()]
    parts += [len(value) for given in (request.variables, request.headers, request.metadata) if given
              for value in given.values()]  # fmt: skip
    return sum(parts)


def _composed(draft: Draft) -> Composed:
    try:
        return compose(draft)
    except BadDraft as error:
        raise invalid("body", f"The message can't be composed: {error}") from error


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
