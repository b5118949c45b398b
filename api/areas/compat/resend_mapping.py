"""Map Resend's messages and errors to ours and back. Pure."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from mimetypes import MimeTypes
from typing import Any, Final

from msgspec import Struct

from api.areas.compat.field_names import FieldNames, model_of, own_fields, refuse_unsupported, texts_of, with_reply_to
from api.areas.compat.header_options import metadata_of, tags_of, with_key
from api.areas.compat.schemas import OneOrMore, ResendEmail, ResendError, ResendFile, ResendSent, ResendTag
from engine.base import clock
from engine.base.errors import ErrorType, Refusal, invalid
from engine.sending.emails.types import Accepted, SendRequest

NAMES: Final = FieldNames(
    {
        **{name: name for name in ("from", "to", "cc", "bcc", "subject", "html", "text", "headers", "attachments")},
        "replyTo": "reply_to", "scheduledAt": "scheduled_at", "metadata": "tags", "template": "template.id",
        "variables": "template.variables", "data": "template.variables", "tags": "headers.X-Tags",
    },
    {"contentType": "content_type", "cid": "content_id"},
)  # fmt: skip
UNSUPPORTED: Final = {"topic_id": "Waybill has no topics. Use a stream."}
OCTETS: Final = "application/octet-stream"
_TYPES: Final = MimeTypes()  # of Python itself, not of the host

_UNPROCESSABLE: Final = (422, "validation_error")
_ERRORS: Final[dict[ErrorType, tuple[int, str]]] = {
    ErrorType.INVALID_REQUEST: _UNPROCESSABLE,
    ErrorType.INVALID_ADDRESS: _UNPROCESSABLE,
    ErrorType.SUPPRESSED: _UNPROCESSABLE,
    ErrorType.TEMPLATE_ERROR: _UNPROCESSABLE,
    ErrorType.ATTACHMENT_BLOCKED: (422, "invalid_attachment"),
    ErrorType.UNAUTHORIZED: (403, "invalid_api_key"),
    ErrorType.FORBIDDEN: (401, "restricted_api_key"),
    ErrorType.RATE_LIMITED: (429, "rate_limit_exceeded"),
    ErrorType.PLATFORM_PAUSED: (429, "rate_limit_exceeded"),
    ErrorType.DAILY_LIMIT_REACHED: (429, "daily_quota_exceeded"),
    ErrorType.MONTHLY_LIMIT_REACHED: (429, "monthly_quota_exceeded"),
    ErrorType.UNAVAILABLE: (503, "application_error"),
    ErrorType.NOT_FOUND: (404, "not_found"),
    ErrorType.METHOD_NOT_ALLOWED: (405, "method_not_allowed"),
    ErrorType.INVALID_STATE: _UNPROCESSABLE,
}


def send_request(email: ResendEmail) -> SendRequest:
    """Return our request for a message of Resend; raise the 400 that names a field which can't be carried over."""
    refuse_unsupported({"topic_id": email.topic_id}, UNSUPPORTED)
    key, headers = with_key(email.idempotency_key, email.headers)
    reply_to, headers = with_reply_to(_listed(email.reply_to) or [], headers, "reply_to")
    template = email.template
    return NAMES.send_request({
        "from": email.from_,
        "to": email.to,
        "cc": _listed(email.cc),
        "bcc": _listed(email.bcc),
        "subject": email.subject,
        "html": email.html,
        "text": None if email.text == "" and email.html else email.text,
        "replyTo": reply_to,
        "headers": headers,
        "attachments": [_file(one, place) for place, one in enumerate(email.attachments or ())] or None,
        "tags": tags_of(email.headers),
        "metadata": _metadata(email.tags or (), texts_of(metadata_of(email.headers))),
        "scheduledAt": None if email.scheduled_at is None else moment(email.scheduled_at),
        "template": None if template is None else template.id,
        "idempotencyKey": key,
        **model_of(None if template is None else template.variables),
    })  # fmt: skip


def error_of(
    refusal: Refusal,
    own: dict[str, Any],
    has_key: bool,  # noqa: FBT001 - api.http.operation.ErrorForm
) -> tuple[int, Struct]:
    """Return the HTTP status and the body of a refusal; `own` is our `error`."""
    status, name = _status_and_name(refusal, has_key=has_key)
    return status, ResendError(status, name, refusal.message, own)


def _status_and_name(refusal: Refusal, *, has_key: bool) -> tuple[int, str]:
    if refusal.kind is ErrorType.UNAUTHORIZED and not has_key:
        return 401, "missing_api_key"
    if refusal.kind is ErrorType.INVALID_REQUEST:
        if refusal.message == f"`{refusal.fields.get('field')}` is required.":
            return 422, "missing_required_field"
        if refusal.fields.get("field") == "body":
            return 400, "validation_error"
    return _ERRORS.get(refusal.kind, (refusal.status, "validation_error"))


def _listed(value: OneOrMore | None) -> list[str] | None:
    return [value] if isinstance(value, str) else value or None


def sent(accepted: Accepted) -> ResendSent:
    """Return the result of an accepted message."""
    return ResendSent(id=accepted.id, **own_fields(accepted))


def _metadata(tags: Sequence[ResendTag], of_header: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the entries of the tags, and those of the header field X-Metadata that no tag names."""
    found: dict[str, str] = {}
    for place, tag in enumerate(tags):
        if tag.name in found:
            raise invalid(f"tags[{place}].name", f"Two tags have the name {tag.name[:100]!r}. Give it once.")
        found[tag.name] = tag.value or ""
    return {**(of_header or {}), **found} or None


def moment(text: str) -> str:
    """Return a time of Resend's `scheduled_at`, which is one of ours too; raise the 400 for words like `in 1 hour`."""
    try:
        clock.parse_iso(text)
    except ValueError:
        raise invalid(
            "scheduled_at",
            f"`scheduled_at` is {text[:60]!r}. Only times in ISO 8601 with an offset are supported here, such as "
            "2026-11-20T08:00:00Z.",
        ) from None
    return text


def _file(file: ResendFile, place: int) -> dict[str, Any]:
    field = f"attachments[{place}]"
    if file.path is not None:
        raise invalid(
            f"{field}.path", f"`{field}.path` is not supported here: Waybill fetches no files. Send `content` instead."
        )
    if file.content is None or file.filename is None:
        missing = "filename" if file.filename is None else "content"
        raise invalid(f"{field}.{missing}", f"`{field}.{missing}` is required.")
    if None not in (file.content_id, file.inline_content_id) and file.content_id != file.inline_content_id:
        raise invalid(
            f"{field}.inline_content_id",
            f"`{field}.inline_content_id` and `content_id` differ. They name the same thing: give one of the two.",
        )
    cid = file.content_id or file.inline_content_id
    return {
        "filename": file.filename,
        "contentType": file.content_type or _TYPES.guess_type(file.filename)[0] or OCTETS,
        "content": file.content if isinstance(file.content, str) else b64encode(bytes(file.content)).decode(),
        **({"cid": cid, "disposition": "inline"} if cid else {}),
    }
