"""Requests and replies of received messages. Attachment metadata is snake_case, as in events."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from engine.receiving.inbound_messages.rules import MAX_BULK
from engine.receiving.inbound_messages.types import Routed

_MOMENT = Meta(max_length=40, examples=["2026-11-20T08:09:10Z"], extra_json_schema={"format": "date-time"})
_TEXT = Annotated[str, Meta(min_length=1, max_length=200)]


class ReceivedMessagesQuery(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The filters of received messages; every given one must match. The list is newest first, and the count ignores
    `limit` and `before`.
    """

    limit: Annotated[int, Meta(ge=1, le=100)] = 25
    before: Annotated[str, Meta(max_length=100, description="`nextCursor` of the previous page")] | None = None
    address: Annotated[str, Meta(min_length=3, max_length=320, description="The claimed address")] | None = None
    domain: Annotated[str, Meta(min_length=1, max_length=253, description="The receiving domain")] | None = None
    sender: Annotated[
        str, Meta(min_length=3, max_length=320, description="Address of From, in any case")
    ] | None = None  # fmt: skip
    search: Annotated[
        _TEXT, Meta(description="Anywhere in the subject, the sender or the recipient")
    ] | None = None  # fmt: skip
    body: Annotated[
        _TEXT, Meta(description="Anywhere in the first 8,192 characters of the text, in one line")
    ] | None = None  # fmt: skip
    read: bool | None = None
    spam: Annotated[bool | None, Meta(description="Left out: both kinds")] = None
    replies_to: Annotated[str, Meta(max_length=100, description="A message of yours, `msg_…`")] | None = None
    from_: Annotated[str, _MOMENT, Meta(description="Received at this time or later")] | None = None
    until: Annotated[str, _MOMENT, Meta(description="Received before this time")] | None = None
    routed: Annotated[
        Routed, Meta(description="`webhook`: sent to webhooks or forwarded, and not kept in the mailbox")
    ] = Routed.MAILBOX


class Correspondent(Struct):
    """A name and an address as the sender wrote them; either may be null."""

    name: str | None
    address: str | None


class ReceivedVerdict(Struct):
    """A verdict on a message: a result of RFC 8601, the domain that it is about, and one line."""

    result: str
    domain: str | None
    detail: str


class ReceivedVerdicts(Struct):
    """The verdicts from the envelope and our own DNS questions."""

    spf: ReceivedVerdict
    dkim: ReceivedVerdict
    dmarc: ReceivedVerdict
    arc: ReceivedVerdict


class ReceivedAttachmentInfo(Struct):
    """An attachment; download its content by its `id`."""

    id: str
    filename: str
    content_type: str
    size_bytes: int
    sha256: str
    cid: str | None
    scan: Literal["clean", "infected", "unscanned", "failed"]
    signature: Annotated[str | None, Meta(description="What the virus scanner found")]


class ReceivedMessage(Struct, rename="camel", kw_only=True):
    """A received message as the list shows it."""

    id: str
    address: str
    recipient: Annotated[str, Meta(description="As in the SMTP transaction")]
    tag: Annotated[str | None, Meta(description="The part of the recipient after `+`")]
    from_: Correspondent | None
    reply_to: Correspondent | None
    to: list[Correspondent]
    cc: list[Correspondent]
    subject: str
    snippet: str
    date: Annotated[str | None, Meta(description="Null if there is none or it can't be read")]
    header_message_id: str | None
    in_reply_to: str | None
    replies_to: Annotated[str | None, Meta(description="Your message that this one replies to")]
    received_at: str
    size_bytes: int
    read: bool
    read_at: Annotated[str | None, Meta(description="The first time of reading, kept when unmarked")]
    spam: bool
    spam_score: float | None
    spam_threshold: float
    spam_override: bool | None
    authentication: ReceivedVerdicts
    action: str
    fallback: Annotated[bool, Meta(description="The route could not be followed, so the mailbox keeps the message")]
    attachments: list[ReceivedAttachmentInfo]


class ReceivedHeaderField(Struct):
    """A header field, decoded and unfolded."""

    name: str
    value: str


class ReceivedWarning(Struct):
    """A warning: something unusual about a message."""

    code: str
    text: str


class ReceivedMessageDetail(ReceivedMessage, rename="camel", kw_only=True):
    """A received message with its bodies and its envelope."""

    text: str | None
    html: Annotated[str | None, Meta(description="Sanitised; images only from `cid:` and data URLs")]
    html_omitted: Annotated[str | None, Meta(description="Why `html` is missing although the message has one")]
    reply_text: Annotated[str | None, Meta(description="The text without quotes and signature")]
    headers: list[ReceivedHeaderField]
    auto_submitted: Annotated[
        bool,
        Meta(
            description="A program wrote the message: a bounce or another report, a read receipt, an out-of-office "
            "reply. Don't reply to it automatically"
        ),
    ]
    bulk: Annotated[bool, Meta(description="The message was sent to many, such as a newsletter or a mailing list")]
    envelope_from: str
    remote_ip: str
    helo: str
    tls: str | None
    forwarded_as: Annotated[str | None, Meta(description="The message of yours that forwarded it last, `msg_…`")]
    forward_error: Annotated[
        str | None,
        Meta(
            description="Why it was not forwarded, so that the mailbox keeps it: `infected`, `unscanned`, `spam`, "
            "`loop`, `forged_sender`, `address_not_allowed`, `account_suspended`, `failed`, the error type of a send "
            "such as `suppressed` or `daily_limit_reached`, or the final status of the message that forwarded it, "
            "such as `bounced`"
        ),
    ]
    content_erased: Annotated[
        bool,
        Meta(description="True: the content was deleted once the message was posted or forwarded, as its route asks"),
    ]
    warnings: list[ReceivedWarning]


class ReceivedMessagePage(Struct, rename="camel"):
    """Received messages, newest first. `nextCursor` is null on an empty page only: stop when `hasMore` is false."""

    data: list[ReceivedMessage]
    next_cursor: str | None
    has_more: bool


class ReceivedCount(Struct):
    """The exact number of messages that match."""

    count: int


class ReadRequest(Struct, forbid_unknown_fields=True):
    """The new read flag of a message."""

    read: bool = True


class SpamRequest(Struct, forbid_unknown_fields=True):
    """The new spam decision about a message; null returns the decision to the score."""

    spam: bool | None


class BulkRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """A change of several received messages."""

    ids: Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(min_length=1, max_length=MAX_BULK)]
    action: Literal["read", "unread", "spam", "not_spam", "spam_by_score", "delete"]


class BulkReply(Struct, rename="camel"):
    """The number of messages that changed, and the ids that are no messages of this account."""

    changed: int
    unchanged: int
    not_found: list[str]


class ConversationMessage(Struct, rename="camel", kw_only=True):
    """A message of a conversation: `received` (`imsg_…`) or `sent` (`msg_…`)."""

    type: Literal["received", "sent"]
    id: str
    from_: str | None
    to: list[str]
    subject: str
    snippet: str | None
    at: str
    read: bool | None
    status: str | None
    replies_to: str | None


class Conversation(Struct, rename="camel"):
    """The messages of a conversation in order of time. `complete` is false if older ones were left out."""

    data: list[ConversationMessage]
    complete: bool


class ReplayReply(Struct, rename="camel"):
    """The places to which the message was sent again; `id` is the delivery id, the same as before."""

    id: str
    action: str
    webhook_ids: list[str]
    forward_to: str | None


class ReplyAccepted(Struct):
    """The result of an answer, as of any send."""

    id: str
    status: Literal["queued", "scheduled", "duplicate"]
