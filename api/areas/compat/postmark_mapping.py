"""Map Postmark's messages and errors to ours and back. Pure."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from api.areas.compat.field_names import (
    FieldNames,
    addresses_of,
    model_of,
    own_fields,
    refuse_unsupported,
    texts_of,
    with_reply_to,
)
from api.areas.compat.header_options import with_key
from api.areas.compat.schemas import PostmarkEmail, PostmarkError, PostmarkFile, PostmarkHeader, PostmarkSent
from engine.base.errors import ErrorType, Refusal, invalid, not_found
from engine.sending.emails.defaults import DEFAULT_STREAM
from engine.sending.emails.limits import MAX_TAG
from engine.sending.emails.types import Accepted, SendRequest

NAMES: Final = FieldNames(
    {
        "from": "From", "to": "To", "cc": "Cc", "bcc": "Bcc", "subject": "Subject", "html": "HtmlBody",
        "text": "TextBody", "replyTo": "ReplyTo", "headers": "Headers", "attachments": "Attachments", "tags": "Tag",
        "metadata": "Metadata", "stream": "MessageStream", "template": "TemplateAlias", "variables": "TemplateModel",
        "data": "TemplateModel",
    },
    {"filename": "Name", "contentType": "ContentType", "content": "Content", "cid": "ContentID"},
)  # fmt: skip
UNSUPPORTED: Final = {"TemplateId": "templates have no numbers. Name the template in `TemplateAlias`."}
THEIR_DEFAULT_STREAM: Final = "outbound"
NO_TRACKING: Final = "None"

# Error codes of https://postmarkapp.com/developer/api/overview#error-codes, with the HTTP status.
TOO_MANY: Final = 410
_ERRORS: Final[dict[ErrorType, tuple[int, int]]] = {
    ErrorType.INVALID_REQUEST: (422, 300),
    ErrorType.INVALID_ADDRESS: (422, 300),
    ErrorType.UNAUTHORIZED: (401, 10),
    ErrorType.FORBIDDEN: (401, 10),
    ErrorType.DOMAIN_NOT_VERIFIED: (422, 400),
    ErrorType.SUPPRESSED: (422, 406),
    ErrorType.ATTACHMENT_BLOCKED: (422, 411),
    ErrorType.TEMPLATE_ERROR: (422, 1101),
    ErrorType.PLAN_LIMIT_REACHED: (422, 405),
    ErrorType.DAILY_LIMIT_REACHED: (422, 405),
    ErrorType.MONTHLY_LIMIT_REACHED: (422, 405),
    ErrorType.ACCOUNT_SUSPENDED: (422, 413),
    ErrorType.UNSUPPORTED_MEDIA_TYPE: (415, 409),
    ErrorType.INVALID_STATE: (422, 300),
    ErrorType.RATE_LIMITED: (429, 429),
    ErrorType.PLATFORM_PAUSED: (503, 100),
    ErrorType.UNAVAILABLE: (503, 100),
}
_NOT_FOUND: Final = {
    not_found(noun).message: code for noun, code in (("message", 701), ("bounce", 407), ("stream", 1226))
}
_INVALID: Final = 300
_NOT_JSON: Final = 402


def send_request(email: PostmarkEmail) -> SendRequest:
    """Return our request for a message of Postmark; raise the 400 that names a field which can't be carried over."""
    refuse_unsupported({"TemplateId": email.template_id}, UNSUPPORTED)
    _refuse_tracking(email)
    key, headers = with_key(email.idempotency_key, _headers(email.headers or ()))
    reply_to, headers = with_reply_to(addresses_of(email.reply_to) or [], headers, "ReplyTo")
    stream = email.message_stream
    return NAMES.send_request({
        "from": email.from_,
        "to": addresses_of(email.to) or [],
        "cc": addresses_of(email.cc),
        "bcc": addresses_of(email.bcc),
        "subject": email.subject,
        "html": email.html_body or None,
        "text": email.text_body or None,
        "replyTo": reply_to,
        "headers": headers,
        "attachments": [_file(one) for one in email.attachments or ()] or None,
        "tags": _tags(email.tag),
        "metadata": texts_of(email.metadata),
        "stream": DEFAULT_STREAM if stream == THEIR_DEFAULT_STREAM else stream or None,
        "template": email.template_alias,
        "idempotencyKey": key,
        **model_of(email.template_model),
    })  # fmt: skip


def sent(email: PostmarkEmail, accepted: Accepted, at: str) -> PostmarkSent:
    """Return the result of an accepted message; `at` is the time of the answer."""
    return PostmarkSent(
        to=email.to,
        cc=email.cc or None,
        bcc=email.bcc or None,
        submitted_at=at,
        message_id=accepted.id,
        error_code=0,
        message="OK",
        **own_fields(accepted),
    )


def template_request(email: PostmarkEmail) -> SendRequest:
    """Return our request for a message of the endpoints for templates, which must name one."""
    if email.template_alias is None:
        refuse_unsupported({"TemplateId": email.template_id}, UNSUPPORTED)
        raise invalid("TemplateAlias", "`TemplateAlias` is required.")
    return send_request(email)


def refused(refusal: Refusal) -> PostmarkSent:
    """Return the result of a message of a batch that was refused."""
    _, code = _status_and_code(refusal)
    return PostmarkSent(error_code=code, message=refusal.message, error=refusal.envelope()["error"])


def error_of(
    refusal: Refusal,
    own: dict[str, Any],
    has_key: bool,  # noqa: ARG001, FBT001 - api.http.operation.ErrorForm
) -> tuple[int, Struct]:
    """Return the HTTP status and the body of a refusal; `own` is our `error`."""
    status, code = _status_and_code(refusal)
    return status, PostmarkError(code, refusal.message, own)


def too_many(count: int, limit: int) -> Refusal:
    """Return the refusal of a batch with too many messages."""
    return Refusal(
        ErrorType.INVALID_REQUEST,
        f"The batch has {count} messages; the limit is {limit}. Send several batches.",
        field="messages",
        limit=limit,
    )


def _status_and_code(refusal: Refusal) -> tuple[int, int]:
    if refusal.kind is ErrorType.INVALID_REQUEST:
        field = refusal.fields.get("field")
        if field == "messages":
            return 422, TOO_MANY
        if field == "body":
            return 422, _NOT_JSON
    if refusal.kind is ErrorType.NOT_FOUND:
        return 404, _NOT_FOUND.get(refusal.message, _INVALID)
    return _ERRORS.get(refusal.kind, (refusal.status, _INVALID))


def _refuse_tracking(email: PostmarkEmail) -> None:
    if email.track_opens:
        raise invalid("TrackOpens", "`TrackOpens` is true, but Waybill does not track opens. Set it to false.")
    if email.track_links not in (None, "", NO_TRACKING):
        raise invalid(
            "TrackLinks",
            f"`TrackLinks` is {email.track_links[:50]!r}, but Waybill does not rewrite links. Set it to `None`.",
        )
    if email.inline_css and email.template_alias is None:
        raise invalid("InlineCss", "`InlineCss` is true, but Waybill sends styles as they are. Set it to false.")


def _tags(tag: str | None) -> list[str] | None:
    if tag and len(tag) > MAX_TAG:
        raise invalid("Tag", f"`Tag` has {len(tag)} characters; the limit is {MAX_TAG}. Shorten it.")
    return [tag] if tag else None


def _headers(fields: Sequence[PostmarkHeader]) -> dict[str, str]:
    found: dict[str, str] = {}
    for place, one in enumerate(fields):
        if one.name in found:
            raise invalid(f"Headers[{place}].Name", f"`Headers` contains {one.name[:100]!r} twice. Give it once.")
        found[one.name] = one.value
    return found


def _file(file: PostmarkFile) -> dict[str, Any]:
    cid = (file.content_id or "").removeprefix("cid:")
    is_inline = bool(cid) and cid != file.content_id
    return {
        "filename": file.name,
        "contentType": file.content_type,
        "content": file.content,
        **({"cid": cid} if cid else {}),
        **({"disposition": "inline"} if is_inline else {}),
    }
