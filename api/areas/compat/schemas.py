"""The requests and replies of Resend and Postmark, as their public documentation describes them.

Resend: https://resend.com/docs/api-reference/emails/send-email, `…/send-batch-emails`, `…/errors`. Postmark:
https://postmarkapp.com/developer/api/email-api, `…/api/overview#error-codes`. An optional field that is null is an
absent one: the clients of both services send nulls.
"""

from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from engine.sending.emails.limits import MAX_ATTACHMENTS, MAX_RECIPIENTS

MAX_RESEND_BATCH = 100
MAX_POSTMARK_BATCH = 500

Values = dict[str, str | int | float | bool]
Model = dict[str, Any]
OneOrMore = str | list[str]
ByteValue = Annotated[int, Meta(ge=0, le=255)]


def says(description: str, *examples: Any) -> Meta:
    """Return the description of a property, with examples."""
    return Meta(description=description, examples=list(examples))


_OWN_NAMES: Final = {
    "error": "error", "idempotency_key": "idempotencyKey", "own_status": "status", "body_differs": "bodyDiffers",
}  # fmt: skip


def postmark_name(name: str) -> str:
    """Return Postmark's name of a field: `HtmlBody`, but `ContentID` and `MessageID`. Our own keep their names."""
    if name in _OWN_NAMES:
        return _OWN_NAMES[name]
    words = "".join(word.capitalize() for word in name.split("_"))
    return words.removesuffix("Id") + "ID" if name in {"content_id", "message_id", "id"} else words


REFUSED: Final = "Refused unless null or absent"
_ERROR: Final = {"type": "invalid_request", "message": "`to` is required.", "field": "to"}
OwnError = Annotated[
    dict[str, Any], says("The `error` that `POST /v1/emails` would return: type, message, field", _ERROR)
]

# Our own fields in the other services' messages and results.
IdempotencyKey = Annotated[
    str | None, says("Waybill's own: a repeated message with this key is sent once; 1 to 255 characters", "receipt-7")
]
Duplicate = Annotated[
    str | None, says("Waybill's own: `duplicate` if the key was used before, and `id` is that message", "duplicate")
]
BodyDiffers = Annotated[
    bool, Meta(description="Waybill's own: true if the message with this key had other content", examples=[True])
]
UndecodedResend = Annotated[Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/ResendEmail"})]
UndecodedPostmark = Annotated[Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/PostmarkEmail"})]


class ResendFile(Struct, forbid_unknown_fields=True, kw_only=True):
    """A file of a Resend message."""

    filename: Annotated[str | None, says("The file's name; required", "invoice.pdf")] = None
    content: Annotated[
        str | list[ByteValue] | None,
        says("The file in base64, or its octets as a list of numbers; required", "aGVsbG8="),
    ] = None
    content_type: Annotated[
        str | None, says("The media type; null: by the ending of `filename`", "application/pdf")
    ] = None
    content_id: Annotated[
        str | None, says("The name by which `cid:` links show the file inline; null: an attachment", "logo")
    ] = None
    inline_content_id: Annotated[str | None, says("The older name of `content_id`", "logo")] = None
    path: Annotated[Any, says(f"{REFUSED}: Waybill fetches no files; send `content`", None)] = None


class ResendTag(Struct, forbid_unknown_fields=True):
    """A tag of a Resend message; it becomes an entry of `metadata`."""

    name: Annotated[str, says("The entry's name, up to 64 characters, once in a message", "category")]
    value: Annotated[str | None, says("The entry's value, up to 512 characters; null: empty", "receipt")] = None


class ResendTemplate(Struct, forbid_unknown_fields=True):
    """A template of this account, with its values."""

    id: Annotated[str, says("The id of a template of this account", "receipt")]
    variables: Annotated[
        Model | None,
        says("Values of the template: texts and numbers, also lists and objects for its sections", {"name": "Ann"}),
    ] = None


class ResendEmail(
    Struct, forbid_unknown_fields=True, kw_only=True, rename={"from_": "from", "idempotency_key": "idempotencyKey"}
):
    """A message in the form of Resend's `POST /emails`."""

    from_: Annotated[str, says("The sender, at a verified domain", "Shop <shop@example.com>")]
    to: Annotated[OneOrMore, says(f"The recipients; with `cc` and `bcc` up to {MAX_RECIPIENTS}", "ann@example.net")]
    subject: Annotated[str | None, says("The subject, up to 998 characters", "Your receipt")] = None
    bcc: Annotated[OneOrMore | None, says("The recipients that no other one sees", ["log@example.com"])] = None
    cc: Annotated[OneOrMore | None, says("The recipients of a copy", ["bob@example.net"])] = None
    reply_to: Annotated[
        OneOrMore | None,
        says("The addresses that replies go to; several become a Reply-To header", "help@example.com"),
    ] = None
    html: Annotated[str | None, says("The content in HTML", "<p>Thank you</p>")] = None
    text: Annotated[
        str | None, says("The content as text; never made from `html`, and empty beside `html`: none", "Thank you")
    ] = None
    headers: Annotated[dict[str, str] | None, says("Further header fields", {"X-Order": "7"})] = None
    attachments: Annotated[
        Annotated[list[ResendFile], Meta(max_length=MAX_ATTACHMENTS)] | None, says("The files", [])
    ] = None
    tags: Annotated[
        list[ResendTag] | None, says("The entries of `metadata`", [{"name": "category", "value": "receipt"}])
    ] = None
    scheduled_at: Annotated[
        str | None,
        says(
            "The time to send, in ISO 8601 with `Z` or an offset; words such as `in 1 hour` are refused",
            "2026-11-20T08:00:00Z",
        ),
    ] = None
    template: Annotated[ResendTemplate | None, says("A template instead of `html` and `text`", {"id": "receipt"})] = (
        None
    )
    topic_id: Annotated[Any, says(f"{REFUSED}: Waybill has no topics; use a stream", None)] = None
    idempotency_key: IdempotencyKey = None


class ResendSent(
    Struct, kw_only=True, omit_defaults=True, rename={"own_status": "status", "body_differs": "bodyDiffers"}
):
    """The id of a message that was accepted."""

    id: Annotated[str, says("The message", "msg_01m83bkgj1f3vt13eb7tpw8q5h")]
    own_status: Duplicate = None
    body_differs: BodyDiffers = False


class ResendBatchError(Struct):
    """Why a message of a batch was refused."""

    index: Annotated[int, says("The place of the message in the batch, from 0", 1)]
    message: Annotated[str, says("The message that a single send would return", "`to` is required.")]


class ResendBatchSent(Struct):
    """The messages of a batch that were accepted."""

    data: Annotated[list[ResendSent], says("The ids of the accepted messages, in order", [])]
    errors: Annotated[
        list[ResendBatchError] | UnsetType,
        says("The refused messages; given with `x-batch-validation: permissive` only", []),
    ] = UNSET


class ResendError(Struct, rename="camel"):
    """An error as Resend writes it, beside the `error` that every operation here answers with."""

    status_code: Annotated[int, says("The HTTP status", 422)]
    name: Annotated[str, says("Resend's name of the error", "missing_required_field")]
    message: Annotated[str, says("What is wrong, and what to do", "`to` is required.")]
    error: OwnError


class PostmarkFile(Struct, forbid_unknown_fields=True, kw_only=True, rename=postmark_name):
    """A file of a Postmark message."""

    name: Annotated[str, says("The file's name", "invoice.pdf")]
    content: Annotated[str, says("The file in base64", "aGVsbG8=")]
    content_type: Annotated[str, says("The media type", "application/pdf")]
    content_id: Annotated[
        str | None, says("The name for `cid:` links; `cid:` before it makes the file an inline one", "cid:logo")
    ] = None


class PostmarkHeader(Struct, forbid_unknown_fields=True, rename=postmark_name):
    """A header field of a Postmark message."""

    name: Annotated[str, says("The field's name, once in a message", "X-Order")]
    value: Annotated[str, says("The field's value", "7")]


class PostmarkEmail(Struct, forbid_unknown_fields=True, kw_only=True, rename=postmark_name):
    """A message in the form of Postmark's `POST /email`."""

    from_: Annotated[str, says("The sender, at a verified domain", "Shop <shop@example.com>")]
    to: Annotated[
        str,
        says(f"The recipients, separated by commas; with `Cc` and `Bcc` up to {MAX_RECIPIENTS}", "ann@example.net"),
    ]
    cc: Annotated[str | None, says("The recipients of a copy, separated by commas", "bob@example.net")] = None
    bcc: Annotated[
        str | None, says("The recipients that no other one sees, separated by commas", "log@example.com")
    ] = None
    subject: Annotated[str | None, says("The subject, up to 998 characters", "Your receipt")] = None
    tag: Annotated[str | None, says("The one tag of the message, up to 64 characters", "receipt")] = None
    html_body: Annotated[str | None, says("The content in HTML", "<p>Thank you</p>")] = None
    text_body: Annotated[str | None, says("The content as text", "Thank you")] = None
    reply_to: Annotated[
        str | None, says("The addresses that replies go to, separated by commas", "help@example.com")
    ] = None
    metadata: Annotated[
        Values | None, says("The message's metadata; numbers become text as JSON writes them", {"order": "7"})
    ] = None
    headers: Annotated[
        list[PostmarkHeader] | None, says("Further header fields", [{"Name": "X-Order", "Value": "7"}])
    ] = None
    attachments: Annotated[
        Annotated[list[PostmarkFile], Meta(max_length=MAX_ATTACHMENTS)] | None, says("The files", [])
    ] = None
    message_stream: Annotated[
        str | None, says("A stream of this account; `outbound`, Postmark's default, is `transactional`", "outbound")
    ] = None
    template_alias: Annotated[
        str | None, says("A template of this account by its id, instead of the bodies", "receipt")
    ] = None
    template_model: Annotated[
        Model | None,
        says("Values of the template: texts and numbers, also lists and objects for its sections", {"name": "Ann"}),
    ] = None
    track_opens: Annotated[
        bool | None, Meta(description="Refused if true: Waybill does not track", examples=[False])
    ] = None
    track_links: Annotated[str | None, says("Refused unless `None`: Waybill does not rewrite links", "None")] = None
    inline_css: Annotated[
        bool | None,
        Meta(
            description="Refused if true: Waybill sends styles as they are. Ignored with a template: Postmark's "
            "default is true there, and clients send it unasked",
            examples=[False],
        ),
    ] = None
    template_id: Annotated[Any, says(f"{REFUSED}: templates have no numbers; name `TemplateAlias`", None)] = None
    idempotency_key: IdempotencyKey = None


class PostmarkSent(Struct, kw_only=True, rename=postmark_name, omit_defaults=True):
    """The result of one message."""

    error_code: Annotated[int, says("0 for an accepted message, else Postmark's code of the error", 0)]
    message: Annotated[str, says("`OK`, or what is wrong and what to do", "OK")]
    to: Annotated[str | None, says("The recipients as sent", "ann@example.net")] = None
    cc: Annotated[str | None, says("The recipients of a copy as sent", "bob@example.net")] = None
    bcc: Annotated[str | None, says("The hidden recipients as sent", "log@example.com")] = None
    submitted_at: Annotated[str | None, says("The time of the response", "2026-11-20T08:00:00.000Z")] = None
    message_id: Annotated[str | None, says("The message", "msg_01m83bkgj1f3vt13eb7tpw8q5h")] = None
    error: Annotated[dict[str, Any] | None, says("The `error` that `POST /v1/emails` would return", _ERROR)] = None
    own_status: Duplicate = None
    body_differs: BodyDiffers = False


_TEMPLATE_EXAMPLE: Final = {"From": "shop@example.com", "To": "ann@example.net", "TemplateAlias": "receipt"}


class PostmarkTemplates(Struct, forbid_unknown_fields=True, rename=postmark_name):
    """A batch of messages with templates."""

    messages: Annotated[
        Annotated[list[UndecodedPostmark], Meta(min_length=1)],
        says(f"The messages, up to {MAX_POSTMARK_BATCH}", [_TEMPLATE_EXAMPLE]),
    ]


class PostmarkError(Struct, rename=postmark_name):
    """An error as Postmark writes it, beside the `error` that every operation here answers with."""

    error_code: Annotated[int, says("Postmark's code of the error", 300)]
    message: Annotated[str, says("What is wrong, and what to do", "`To` is required.")]
    error: OwnError


ResendBatch = Annotated[list[UndecodedResend], Meta(min_length=1, max_length=MAX_RESEND_BATCH)]
PostmarkBatch = Annotated[list[UndecodedPostmark], Meta(min_length=1)]
