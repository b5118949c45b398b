"""Requests and replies of broadcasts."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from engine.audience.broadcasts.types import MAX_NAME, MAX_PER_MINUTE, MAX_TEST_ADDRESSES
from engine.mail.blocks.types import BlockDocument
from engine.sending.emails.limits import MAX_ATTACHMENTS
from engine.sending.emails.types import AddressText, AttachmentIn, Moment, Slug

MAX_BODY = 5_000_000

BroadcastName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
ListId = Annotated[str, Meta(max_length=100, description="A contact list; a broadcast has a `list` or a `segment`")]
SegmentId = Annotated[str, Meta(max_length=100, description="A segment, instead of a `list`")]
StreamName = Annotated[
    Slug,
    Meta(
        description=("Default: `announcements`; `transactional` where the plan has one stream only, and nowhere else")
    ),
]
ReplyTo = Annotated[str, Meta(max_length=320)]
TemplateName = Annotated[
    Slug, Meta(description="Instead of `html` and `text`; `send` pins the latest version at that time")
]
Subject = Annotated[str, Meta(max_length=998, description="One line; merge fields work as in `text`")]
Html = Annotated[
    str,
    Meta(
        max_length=MAX_BODY,
        description="Merge fields `{{email}}`, `{{name}}`, every field of the contact, and `{{unsubscribe_url}}`; "
        "values are escaped. Without that link, a footer with it is added. Sections work as in templates",
    ),
]
Text = Annotated[str, Meta(max_length=MAX_BODY, description="Like `html`, but no value is escaped")]
Attachments = Annotated[
    list[AttachmentIn],
    Meta(max_length=MAX_ATTACHMENTS, description="Go with every message; inline images have a `cid`"),
]
PerMinute = Annotated[
    int, Meta(ge=1, le=MAX_PER_MINUTE, description="The most messages that are accepted in a minute; null: no bound")
]


class NewBroadcast(Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A draft to create, for `POST /v1/broadcasts`. It may lack its content until `send`.

    Give exactly one of `list` and `segment`, and content as for a send: `html`, `text` or both, or a `template`.
    """

    name: BroadcastName
    from_: AddressText
    list: ListId | None = None
    segment: SegmentId | None = None
    stream: StreamName | None = None
    reply_to: ReplyTo | None = None
    template: TemplateName | None = None
    subject: Subject | None = None
    html: Html | None = None
    text: Text | None = None
    blocks: BlockDocument | None = None
    attachments: Attachments | None = None
    per_minute: PerMinute | None = None


class BroadcastChange(Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The fields to change, for `PATCH /v1/broadcasts/{id}`: an omitted field stays, a null one is removed.

    `html` without `blocks` sets `blocks` to null: the content is written by hand from then on.
    """

    name: BroadcastName | UnsetType = UNSET
    from_: AddressText | UnsetType = UNSET
    list: ListId | UnsetType | None = UNSET
    segment: SegmentId | UnsetType | None = UNSET
    stream: StreamName | UnsetType | None = UNSET
    reply_to: ReplyTo | UnsetType | None = UNSET
    template: TemplateName | UnsetType | None = UNSET
    subject: Subject | UnsetType | None = UNSET
    html: Html | UnsetType | None = UNSET
    text: Text | UnsetType | None = UNSET
    blocks: BlockDocument | UnsetType | None = UNSET
    attachments: Attachments | UnsetType | None = UNSET
    per_minute: PerMinute | UnsetType | None = UNSET


class BroadcastSend(Struct, forbid_unknown_fields=True, rename="camel"):
    """When to send, for `POST /v1/broadcasts/{id}/send`; without a body, or within 60 seconds: now."""

    scheduled_at: Moment | None = None


class BroadcastTest(Struct, forbid_unknown_fields=True):
    """Request to mail a test to these addresses, for `POST /v1/broadcasts/{id}/test`."""

    to: Annotated[
        list[AddressText],
        Meta(min_length=1, max_length=MAX_TEST_ADDRESSES, description="Addresses of people on the account's team"),
    ]


class BroadcastPreviewQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The contact to render a broadcast for; without one, merge fields are empty."""

    contact: Annotated[str, Meta(max_length=100)] | None = None


class BroadcastItem(Struct, kw_only=True, rename="camel"):
    """A broadcast without its content. `waitsFor` says why one that is `sending` accepts nothing at the moment."""

    id: str
    name: str
    list: str | None
    segment: str | None
    stream: str
    from_: str
    reply_to: str | None
    template: str | None
    template_version: int | None
    subject: str | None
    per_minute: int | None
    status: Literal["draft", "in_review", "scheduled", "sending", "paused", "stopped", "sent", "canceled"]
    paused_because: Literal["user", "daily_limit", "monthly_limit", "suspended", "domain", "stream"] | None
    stopped_because: Literal["bounce_rate", "complaint_rate"] | None
    waits_for: Literal["platform_paused", "pace"] | None
    review_note: str | None
    scheduled_at: str | None
    started_at: str | None
    finished_at: str | None
    resumes_at: str | None
    created_at: str
    updated_at: str


class BroadcastAttachment(Struct, rename="camel"):
    """A file that goes with every message."""

    filename: str
    content_type: str
    size_bytes: int
    disposition: Literal["attachment", "inline"]
    cid: str | None


class BroadcastRecord(BroadcastItem, kw_only=True):
    """A broadcast with its content."""

    html: str | None
    text: str | None
    blocks: BlockDocument | None
    attachments: list[BroadcastAttachment]


class BroadcastProgress(Struct):
    """The counts of a broadcast: `recipients` = `waiting` + `accepted` + `skipped`, once it has started; before that,
    `recipients` and `waiting` are how many its list or segment has now, null if a segment can't be counted at the
    moment. The others count its messages by their last outcome.
    """

    recipients: int | None
    waiting: int | None
    accepted: int
    skipped: int
    delivered: int
    bounced: int
    complained: int
    failed: int
    rejected: int
    unsubscribed: int


class SkippedRecipients(Struct):
    """Count the recipients that got no message, by reason: `unconfirmed` ones have not confirmed their address, and
    `unsubscribed` ones have opted out of the list.
    """

    suppressed: int
    removed: int
    template_error: int
    unconfirmed: int
    unsubscribed: int


class BroadcastWithCounts(BroadcastRecord, kw_only=True):
    """A broadcast with its content and counts."""

    counts: BroadcastProgress
    skipped: SkippedRecipients


class BroadcastPage(Struct, rename="camel"):
    """Broadcasts, newest first. `nextCursor` is null on the last page."""

    data: list[BroadcastItem]
    next_cursor: str | None


class BroadcastTestItem(Struct):
    """The result for one address of a test: the message's `id`, or the `error` that a single send would return."""

    to: str
    id: str | None
    status: Literal["queued", "refused"]
    error: dict[str, Any] | UnsetType = UNSET


class BroadcastTestReply(Struct):
    """The results of a test, in the order of the request."""

    data: list[BroadcastTestItem]


class RenderedBroadcast(Struct):
    """A broadcast as one contact would get it. The unsubscribe link in it has no effect. `recipients`: how many its
    list or segment has now; null for a segment that takes too long to count.
    """

    contact: str | None
    recipients: int | None
    subject: str
    html: str | None
    text: str | None
