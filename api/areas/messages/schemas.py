"""Requests and replies of reading messages. Attachment metadata and event details are snake_case, as in events."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from api.http.waits import WaitCauses
from engine.base.events import Status
from engine.receiving.receivers.types import Forecast
from engine.sending.emails.types import Slug, Tag

MAX_TAGS = 10  # of one message
MessageSource = Literal["api", "smtp", "broadcast", "verification", "forward", "system"]
BounceScope = Literal["recipient", "message", "site", "session"]

_MOMENT = Meta(max_length=40, examples=["2026-11-20T08:09:10Z"], extra_json_schema={"format": "date-time"})


class MessageFilterQuery(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The filters of lists of messages; every given filter must match."""

    status: Status | None = None
    to: Annotated[
        str,
        Meta(min_length=3, max_length=320, description="Any recipient", extra_json_schema={"format": "email"}),
    ] | None = None  # fmt: skip
    recipient_domain: Annotated[
        str, Meta(min_length=1, max_length=253, description="The domain of any recipient", examples=["example.com"])
    ] | None = None  # fmt: skip
    search: Annotated[
        str, Meta(min_length=1, max_length=200, description="Anywhere in the subject, the sender or a recipient")
    ] | None = None  # fmt: skip
    domain: Annotated[str, Meta(min_length=1, max_length=253, description="The sending domain")] | None = None
    stream: Slug | None = None
    tag: Annotated[list[Tag], Meta(max_length=MAX_TAGS, description="Repeatable; all must be on the message")] = []
    metadata: Annotated[str, Meta(max_length=577, description="`name:value`")] | None = None
    source: Annotated[MessageSource, Meta(description="How the message was sent")] | None = None
    template: Annotated[Slug, Meta(description="The template that it was made from, in any version")] | None = None
    broadcast: Annotated[
        str, Meta(max_length=100, description="The broadcast that it is a copy of; an unknown one is a 404")
    ] | None = None  # fmt: skip
    scope: Annotated[
        BounceScope,
        Meta(
            description="A recipient bounced for a reason of this scope: the `recipient` (an unknown mailbox), the "
            "`message` (its content or size), the `site` (a policy or block of the mail servers) or the `session`"
        ),
    ] | None = None  # fmt: skip
    from_: (
        Annotated[str, _MOMENT, Meta(description="Created at this time or later: ISO 8601, UTC, with `Z`")] | None
    ) = None
    until: Annotated[str, _MOMENT, Meta(description="Created before this time: ISO 8601, UTC, with `Z`")] | None = None


class MessagesQuery(MessageFilterQuery, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/messages`: newest first; every given filter must match."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 25
    before: Annotated[str, Meta(max_length=100, description="`nextCursor` of the previous page")] | None = None


class Attachment(Struct):
    """An attachment of a message; download its content by its `id`."""

    id: str
    filename: str
    content_type: str
    size_bytes: int
    sha256: str


class Recipient(Struct, rename="camel"):
    """The delivery state of one recipient."""

    address: str
    kind: Literal["to", "cc", "bcc"]
    status: Status
    attempts: int
    last_response: str | None
    next_attempt_at: str | None


class Message(Struct, rename="camel", kw_only=True):
    """A message as the list shows it."""

    id: str
    status: Status
    source: MessageSource
    from_: str
    to: list[str]
    cc: list[str]
    bcc: list[str]
    reply_to: str | None
    subject: str
    stream: str
    template: str | None
    template_version: int | None
    tags: list[str]
    metadata: dict[str, str]
    created_at: str
    scheduled_at: str | None
    delivered_at: str | None
    size_bytes: int
    resent_from: Annotated[str | None, Meta(description="The message whose content this one sends again")]
    retain_content: Annotated[
        bool, Meta(description="False: the content is deleted once the last recipient has an outcome")
    ]
    content_until: Annotated[
        int | None, Meta(description="Hours from that outcome to the deletion of the content; null for none")
    ]
    traceparent: Annotated[
        str | None,
        Meta(
            description="The trace of the message (W3C Trace Context): as its send gave it, or begun by the service",
            examples=["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
        ),
    ]
    attachments: list[Attachment]
    recipients: list[Recipient]


class WaybillEvent(Struct, rename="camel"):
    """An event of a message; the shape of `detail` depends on the type."""

    id: str
    seq: int
    type: str
    created_at: str
    detail: dict[str, Any]


class AttemptWaits(Struct, rename="camel", kw_only=True):
    """Where the time of one attempt went: from `from` to its outcome at `until`.

    `from` is the outcome of the attempt before; for the first one, `createdAt`.
    """

    event_id: Annotated[str, Meta(description="The event of the waybill that records it")]
    domain: Annotated[
        str | None,
        Meta(description="The recipients' domain; null: all of them", examples=["example.com"]),
    ]
    from_: str
    until: str
    total_ms: Annotated[int, Meta(ge=0, description="From `from` to `until`", examples=[424])]
    causes: WaitCauses
    fair_share: Annotated[
        float,
        Meta(
            gt=0, le=1, description="1 by the number of accounts with mail to these servers, on average", examples=[0.5]
        ),
    ]
    text: Annotated[
        str,
        Meta(
            description="The largest causes, for people",
            examples=["Took 0.4 s, of which 0.2 s for the connection and 0.1 s for other accounts."],
        ),
    ]


class MessageDetail(Message, kw_only=True):
    """A message with its bodies and its waybill, in the order of `seq`."""

    deliver_by: Annotated[
        str | None,
        Meta(
            description="`deliverBy` of the send while the message waits; null without one and after the last attempt"
        ),
    ]
    text: str | None
    html: str | None
    content_erased: Annotated[
        bool,
        Meta(
            description="True: the content can't be read any more, or, of codes and system mail, at any time. `text` "
            "and `html` are null, and attachments can't be downloaded"
        ),
    ]
    waybill: list[WaybillEvent]
    forecast: Annotated[
        Forecast | None,
        Meta(description="When it will probably arrive at the recipients for whom it waits; null otherwise"),
    ]
    waits: Annotated[list[AttemptWaits], Meta(description="Where the time of each attempt went")]


class MessagePage(Struct, rename="camel"):
    """Messages, newest first. `nextCursor` is null on the last page."""

    data: list[Message]
    next_cursor: str | None
    has_more: bool
