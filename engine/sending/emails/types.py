"""Define the send request of the HTTP API, and the message that acceptance builds from it."""

from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from msgspec import Meta, Struct

from engine.base import slugs
from engine.base.errors import ErrorType, Refusal
from engine.base.extra_rows import ExtraRow
from engine.mail.address import Mailbox
from engine.mail.feedback_headers import feedback_field
from engine.mail.parts import MailAttachment
from engine.mail.unsubscribe_links import UnsubscribeLink
from engine.sending.emails import limits

# Refusals of a single send, beside those of every request.
SEND_REFUSALS = (
    ErrorType.DOMAIN_NOT_VERIFIED,
    ErrorType.PLAN_LIMIT_REACHED,
    ErrorType.INVALID_ADDRESS,
    ErrorType.SUPPRESSED,
    ErrorType.ATTACHMENT_BLOCKED,
    ErrorType.TEMPLATE_ERROR,
    ErrorType.DAILY_LIMIT_REACHED,
    ErrorType.MONTHLY_LIMIT_REACHED,
    ErrorType.PLATFORM_PAUSED,
)

AddressText = Annotated[str, Meta(min_length=3, max_length=limits.MAX_ADDRESS)]
Slug = Annotated[str, Meta(min_length=1, max_length=64, pattern=slugs.PATTERN)]
Tag = Annotated[str, Meta(min_length=1, max_length=limits.MAX_TAG)]
Name = Annotated[str, Meta(min_length=1, max_length=64)]
MinTls = Literal["none", "opportunistic", "verified"]
Moment = Annotated[str, Meta(max_length=40, extra_json_schema={"format": "date-time"})]

# Only documented here: rules.checked_headers enforces them, because it can name the invalid entry.
HeaderName = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": limits.MAX_HEADER_NAME})]
HeaderValue = Annotated[str, Meta(extra_json_schema={"maxLength": limits.MAX_HEADER_VALUE})]


RetainContent = Annotated[
    bool | None,
    Meta(
        description="False: the bodies and attachments are encrypted until the last recipient has an outcome, and then "
        "deleted. Default: as the stream says"
    ),
]
ContentUntil = Annotated[
    Annotated[int, Meta(ge=1, le=limits.MAX_CONTENT_HOURS)] | None,
    Meta(
        description="Hours from the last recipient's outcome to the deletion of the content, which is encrypted until "
        "then. Not together with a `retainContent` of true",
        examples=[24],
    ),
]


class AttachmentIn(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A file to attach; `content` is base64. An optional field that is null is an absent one."""

    filename: Annotated[str, Meta(min_length=1, max_length=limits.MAX_FILE_NAME)]
    content_type: Annotated[str, Meta(min_length=3, max_length=limits.MAX_FILE_TYPE)]
    content: Annotated[str, Meta(max_length=limits.MAX_CONTENT)]
    disposition: Annotated[Literal["attachment", "inline"] | None, Meta(description="Default: attachment")] = None
    cid: Annotated[str, Meta(max_length=200)] | None = None


class SendRequest(
    Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from", "reply_to": "replyTo",
    "list_unsubscribe": "listUnsubscribe", "template_version": "templateVersion",
    "idempotency_key": "idempotencyKey", "scheduled_at": "scheduledAt", "deliver_by": "deliverBy",
    "min_tls": "minTls", "retain_content": "retainContent", "content_until": "contentUntil"}, kw_only=True,
):  # fmt: skip
    """An email to send, with `html`, `text` or both, or with a `template`. A null field is an absent one."""

    from_: AddressText
    to: AddressText | Annotated[list[AddressText], Meta(min_length=1)]
    cc: list[AddressText] | None = None
    bcc: list[AddressText] | None = None
    subject: Annotated[
        Annotated[str, Meta(max_length=limits.MAX_SUBJECT)] | None,
        Meta(description="With a `template`, it replaces the template's own subject"),
    ] = None
    text: Annotated[str, Meta(max_length=limits.MAX_BODY)] | None = None
    html: Annotated[str, Meta(max_length=limits.MAX_BODY)] | None = None
    reply_to: Annotated[str, Meta(max_length=limits.MAX_ADDRESS)] | None = None
    headers: dict[HeaderName, HeaderValue] | None = None
    list_unsubscribe: Annotated[
        Annotated[str, Meta(max_length=limits.MAX_LIST_UNSUBSCRIBE)] | None,
        Meta(
            description="An https URL, a mailto link, or both, separated by a comma. `auto`: a page and an address of "
            "this service, for one recipient, not on the stream `transactional`; `{{unsubscribe_url}}` in `html` and "
            "`text` places the link, else each gets a footer"
        ),
    ] = None
    stream: Annotated[Slug | None, Meta(description="Default: transactional")] = None
    template: Annotated[
        Slug | None,
        Meta(description="Instead of `html` and `text`: a template of the account, filled with `variables`"),
    ] = None
    template_version: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="Default: the latest version")] = (
        None
    )
    variables: Annotated[
        dict[Name, Annotated[str, Meta(max_length=limits.MAX_VARIABLE)]] | None,
        Meta(description="Values for the template. Names that it does not declare are ignored"),
    ] = None
    data: Annotated[
        dict[str, Any] | None,
        Meta(
            description="Nested values for the template beside `variables`: lists and objects for sections, numbers "
            "and booleans. A name is given in one of the two. At most 64 KiB as JSON, 8 levels, and 1,000 items in a "
            "list",
            examples=[{"items": [{"name": "Lamp", "price": 19.5}]}],
        ),
    ] = None
    tags: Annotated[list[Tag], Meta(max_length=limits.MAX_TAGS)] | None = None
    metadata: dict[Name, Annotated[str, Meta(max_length=limits.MAX_METADATA_VALUE)]] | None = None
    idempotency_key: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=limits.MAX_IDEMPOTENCY_KEY,
                description="A repeated send with the same key returns the id of the first message. A key is "
                f"remembered for {limits.IDEMPOTENCY_DAYS} days; after that it is new again",
            ),
        ]
        | None
    ) = None
    scheduled_at: Annotated[
        Moment | None,
        Meta(
            description="ISO 8601 date-time with `Z` or a numeric offset. In the past or within "
            f"{limits.AT_ONCE_S} seconds: sent at once. The plan says how far ahead it may lie",
            examples=["2026-11-20T08:00:00Z"],
        ),
    ] = None
    deliver_by: Annotated[
        Moment | None,
        Meta(
            description="ISO 8601 date-time with `Z` or a numeric offset: after it, a delivery that was put off is not "
            "tried again. At most <give_up_s> after the send, or after `scheduledAt`",
            examples=["2026-11-20T08:10:00Z"],
        ),
    ] = None
    min_tls: Annotated[
        MinTls | None,
        Meta(
            description="The least transport security on the way to the recipients' servers. `verified`: only over TLS "
            "with a certificate that proves the server's name, or the message waits and fails in the end. `none`: "
            "delivery before secrecy, whatever policy the domain publishes. Default: `opportunistic`, and what the "
            "domain's own policy (DANE, MTA-STS) asks for"
        ),
    ] = None
    attachments: Annotated[list[AttachmentIn], Meta(max_length=limits.MAX_ATTACHMENTS)] | None = None
    retain_content: RetainContent = None
    content_until: ContentUntil = None


class Content(Struct, frozen=True):
    """The subject and bodies of a message, from the request or rendered from a template."""

    subject: str
    text: str | None
    html: str | None
    template: str | None = None
    template_version: int | None = None
    files: tuple[MailAttachment, ...] = ()  # the images of the template or broadcast, shown by its HTML


class Timing(Struct, frozen=True):
    """The time of sending (None: immediately) and the time to give up (None: as the retry schedule says)."""

    scheduled_at: datetime | None = None
    deliver_by: datetime | None = None


class PreparedRecipient(Struct, frozen=True):
    """A recipient of a message; `n` counts from 0 in the order to, cc, bcc."""

    n: int
    kind: str
    mailbox: Mailbox
    canonical: str


class StoredAttachment(Struct, frozen=True):
    """Describe an attachment without its content."""

    id: str
    filename: str
    content_type: str
    size_bytes: int
    sha256: str


class BroadcastCopy(NamedTuple):
    """The broadcast and the contact that a message is for."""

    broadcast_id: UUID
    contact_id: UUID


class MessageFacts(Struct, frozen=True, kw_only=True):
    """Values for composing a message beside its request: ids, the time, limits and keys, and rows to store with it."""

    account_id: UUID
    message_id: UUID
    source: str
    at: datetime
    max_bytes: int
    feedback_key: bytes | None = None  # None: the installation has no key
    cfbl: str = ""  # the fields of feedback_headers.cfbl_fields
    resent_from: UUID | None = None
    answers: UUID | None = None
    traceparent: str | None = None
    copy: BroadcastCopy | None = None
    stream_content_hours: int | None = None  # as the stream says, see `Prepared.content_hours`
    unsubscribe: UnsubscribeLink | None = None  # goes into header and bodies in place of `listUnsubscribe`
    extras: tuple[ExtraRow, ...] = ()

    def feedback(self, template: str, stream: str, domain: str) -> str:
        """Return the field Feedback-ID, "" if the installation has no key."""
        if self.feedback_key is None:
            return ""
        return feedback_field(self.feedback_key, self.account_id, template, stream, domain)


class Prepared(Struct, frozen=True, kw_only=True):
    """A message that passed all checks without counts and lookups, ready to be stored."""

    account_id: UUID
    id: UUID
    public_id: str
    created_at: datetime
    source: str
    sender: str
    from_domain: str
    reply_to: str | None
    subject: str
    stream: str
    tags: list[str]
    metadata: dict[str, str]
    attachments: list[StoredAttachment]
    recipients: list[PreparedRecipient]
    mime: bytes
    smtputf8: bool
    idempotency_key: str | None
    request_digest: bytes
    template: str | None = None
    template_version: int | None = None  # the version used, even if the request names none
    scheduled_at: datetime | None = None  # None: sent immediately
    deliver_by: datetime | None = None
    min_tls: MinTls | None = None  # None: the policy of the recipient's domain decides
    resent_from: UUID | None = None  # the message that this one resends
    answers: UUID | None = None  # the received message that this one answers
    traceparent: str | None = None  # as engine.base.trace_context keeps it
    sealed_recipient: str | None = None  # as its queue row holds it; `mime` is sealed then, and `recipients` are masked
    content_hours: int | None = None  # from the last outcome to the deletion of the content; None: kept as planned
    content_key: bytes | None = None  # of `mime`, encrypted; given if `mime` is encrypted with a key of its own
    copy: BroadcastCopy | None = None
    extras: tuple[ExtraRow, ...] = ()  # rows of other areas, stored in the same transaction


class RefusedRequest(Struct, frozen=True):
    """A request that a check before storing refused. If its key was used before, the first message is the answer."""

    account_id: UUID
    refusal: Refusal
    idempotency_key: str | None = None
    request_digest: bytes = b""


Checked = Prepared | RefusedRequest


class Accepted(Struct, frozen=True):
    """Answer a send: id and status of the message."""

    id: str
    status: Literal["queued", "scheduled", "duplicate"]
    body_differs: bool = False
