"""Declare the queries and replies of reading in the form of Resend and Postmark.

Resend: https://resend.com/docs/api-reference/emails/retrieve-email, `…/list-emails`, `…/domains/get-domain`. Postmark:
https://postmarkapp.com/developer/api/messages-api, `…/bounce-api`, `…/suppressions-api`.
"""

from typing import Annotated

from msgspec import Meta, Struct

from api.areas.compat.schemas import REFUSED, postmark_name, says
from engine.sending.emails.types import Slug

MAX_FOUND = 1_000  # messages or bounces that a search of Postmark can reach: count and offset together
_MESSAGE_ID = "msg_01m83bkgj1f3vt13eb7tpw8q5h"
_TIME = "2026-11-20T08:00:00.000Z"
_ANN = "ann@example.net"
_SHOP = "Shop <shop@example.com>"
_TO = {"Email": _ANN, "Name": "Ann"}


class ResendListQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of Resend's lists: newest first."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    after: Annotated[str | None, says("The last id of the previous page", _MESSAGE_ID)] = None
    before: Annotated[str | None, says(f"{REFUSED}: pages go on with `after` only", "x")] = None


class ResendMessage(Struct, kw_only=True, rename={"from_": "from"}):
    """A message as Resend lists it."""

    id: Annotated[str, says("The message", _MESSAGE_ID)]
    to: Annotated[list[str], says("The recipients", [_ANN])]
    from_: Annotated[str, says("The sender", _SHOP)]
    created_at: Annotated[str, says("The time of the request", _TIME)]
    subject: Annotated[str, says("The subject", "Your receipt")]
    bcc: Annotated[list[str], says("The recipients that no other one sees", ["log@example.com"])]
    cc: Annotated[list[str], says("The recipients of a copy", ["bob@example.net"])]
    reply_to: Annotated[list[str], says("The address that replies go to", ["help@example.com"])]
    last_event: Annotated[str, says("Resend's name of the status; `queued`, `delivery_delayed` and the like", "sent")]
    scheduled_at: Annotated[str | None, says("The time to send, if it was scheduled", _TIME)]


class ResendMessageDetail(ResendMessage, kw_only=True, rename={"from_": "from"}):
    """A message as Resend shows it."""

    object: Annotated[str, says("Always `email`", "email")] = "email"
    html: Annotated[str | None, says("The content in HTML", "<p>Thank you</p>")]
    text: Annotated[str | None, says("The content as text", "Thank you")]
    tags: Annotated[list[dict[str, str]], says("The entries of `metadata`", [{"name": "category", "value": "receipt"}])]


class ResendMessages(Struct, kw_only=True):
    """A page of messages."""

    object: Annotated[str, says("Always `list`", "list")] = "list"
    has_more: Annotated[bool, Meta(description="True if older ones follow", examples=[False])]
    data: Annotated[list[ResendMessage], says("The messages, newest first", [])]


class ResendChange(Struct, forbid_unknown_fields=True, kw_only=True):
    """The new time of a scheduled message."""

    scheduled_at: Annotated[
        Annotated[str, Meta(max_length=100)], says("The time to send, in ISO 8601 with `Z` or an offset", _TIME)
    ]
    id: Annotated[
        Annotated[str, Meta(max_length=100)] | None,
        says("The message, as Resend's client for Python repeats it here", _MESSAGE_ID),
    ] = None


class ResendChanged(Struct, kw_only=True):
    """The message that was changed or canceled."""

    object: Annotated[str, says("Always `email`", "email")] = "email"
    id: Annotated[str, says("The message", _MESSAGE_ID)]


class ResendDomain(Struct, kw_only=True):
    """A domain as Resend lists it."""

    id: Annotated[str, says("The domain", "dom_01m83bkgj1f3vt13eb7tpw8q5h")]
    name: Annotated[str, says("Its name", "example.com")]
    status: Annotated[str, says("`pending`, `verified` or `failed`", "verified")]
    created_at: Annotated[str, says("The time when it was added", _TIME)]
    region: Annotated[str | None, says("Always null: an installation has no regions", None)] = None


class ResendRecord(Struct, kw_only=True):
    """A DNS record to publish."""

    record: Annotated[str, says("What it is for", "DKIM")]
    name: Annotated[str, says("The complete name", "wb1._domainkey.example.com")]
    type: Annotated[str, says("The type", "TXT")]
    ttl: Annotated[str, says("Always `Auto`", "Auto")] = "Auto"
    status: Annotated[str, says("`verified`, `pending` (missing) or `failed` (another value)", "verified")]
    value: Annotated[str, says("The value", "v=DKIM1; k=rsa; p=…")]


class ResendDomainDetail(ResendDomain, kw_only=True):
    """A domain with its records."""

    object: Annotated[str, says("Always `domain`", "domain")] = "domain"
    records: Annotated[list[ResendRecord], says("The records to publish", [])]


class ResendDomains(Struct, kw_only=True):
    """A page of domains."""

    object: Annotated[str, says("Always `list`", "list")] = "list"
    has_more: Annotated[bool, Meta(description="True if older ones follow", examples=[False])]
    data: Annotated[list[ResendDomain], says("The domains, newest first", [])]


_Count = Annotated[int, Meta(ge=1, le=500, description="How many", examples=[50])]
_Offset = Annotated[int, Meta(ge=0, description=f"How many to skip; with `count` at most {MAX_FOUND:,}", examples=[0])]
_Day = Annotated[
    str | None,
    says("A day, or a time, in the Eastern time of Postmark's searches; inclusive", "2026-11-20"),
]


class PostmarkMessagesQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of Postmark's search for sent messages: newest first."""

    count: _Count = 100
    offset: _Offset = 0
    recipient: Annotated[str | None, says("The address of any recipient", _ANN)] = None
    tag: Annotated[str | None, says("The tag", "receipt")] = None
    messagestream: Annotated[Slug | None, says("The stream; `outbound` is `transactional`", "outbound")] = None
    fromdate: _Day = None
    todate: _Day = None
    fromemail: Annotated[str | None, says(f"{REFUSED}: search in `GET /v1/messages?search=`", "x")] = None
    subject: Annotated[str | None, says(f"{REFUSED}: search in `GET /v1/messages?search=`", "x")] = None
    status: Annotated[str | None, says(f"{REFUSED}: filter in `GET /v1/messages?status=`", "x")] = None


class PostmarkPerson(Struct, rename=postmark_name):
    """A recipient."""

    email: Annotated[str, says("The address", _ANN)]
    name: Annotated[str | None, says("The name", "Ann")]


class PostmarkMessage(Struct, kw_only=True, rename=postmark_name):
    """A sent message as Postmark lists it."""

    tag: Annotated[str, says("The first tag, empty without", "receipt")]
    message_id: Annotated[str, says("The message", _MESSAGE_ID)]
    message_stream: Annotated[str, says("The stream; `transactional` is `outbound`", "outbound")]
    to: Annotated[list[PostmarkPerson], says("The recipients", [_TO])]
    cc: Annotated[list[PostmarkPerson], says("The recipients of a copy", [_TO])]
    bcc: Annotated[list[PostmarkPerson], says("The recipients that no other one sees", [_TO])]
    recipients: Annotated[list[str], says("All recipients", [_ANN])]
    received_at: Annotated[str, says("The time of the request", _TIME)]
    from_: Annotated[str, says("The sender", _SHOP)]
    subject: Annotated[str, says("The subject", "Your receipt")]
    attachments: Annotated[list[str], says("The names of the files", ["invoice.pdf"])]
    status: Annotated[str, says("`Queued`, or `Sent` once delivery has begun", "Sent")]
    metadata: Annotated[dict[str, str], says("The message's metadata", {"order": "7"})]
    track_opens: Annotated[bool, Meta(description="Always false", examples=[False])] = False
    track_links: Annotated[str, says("Always `None`", "None")] = "None"
    sandboxed: Annotated[bool, Meta(description="Always false", examples=[False])] = False


class PostmarkEvent(Struct, rename=postmark_name):
    """An event of a message at one recipient, as Postmark shows it."""

    recipient: Annotated[str, says("The address", _ANN)]
    type: Annotated[str, says("`Delivered`, `Transient` (it is retried) or `Bounced`", "Delivered")]
    received_at: Annotated[str, says("The time", _TIME)]
    details: Annotated[dict[str, str], says("The reply of the mail server", {"DeliveryMessage": "250 2.0.0 ok"})]


class PostmarkMessageDetail(PostmarkMessage, kw_only=True, rename=postmark_name):
    """A sent message with its content and its events."""

    text_body: Annotated[str | None, says("The content as text", "Thank you")]
    html_body: Annotated[str | None, says("The content in HTML", "<p>Thank you</p>")]
    body: Annotated[str, says("The message as it was composed, empty once it is deleted", "From: …")]
    message_events: Annotated[list[PostmarkEvent], says("Its events, oldest first", [])]


class PostmarkMessages(Struct, rename=postmark_name):
    """A page of sent messages."""

    total_count: Annotated[int, says("How many were found so far, and one more if others follow", 1)]
    messages: Annotated[list[PostmarkMessage], says("The messages, newest first", [])]


class PostmarkDump(Struct, rename=postmark_name):
    """The source of a message, or the reply of a bounce."""

    body: Annotated[str, says("The text, empty where it is not kept", "From: …")]


class PostmarkBouncesQuery(Struct, forbid_unknown_fields=True, kw_only=True, rename={
    "email_filter": "emailFilter", "message_id": "messageID",
}):  # fmt: skip
    """The query of Postmark's search for bounces: newest first."""

    count: _Count = 100
    offset: _Offset = 0
    type: Annotated[str | None, says("`HardBounce`, `SoftBounce` or `Blocked`", "HardBounce")] = None
    email_filter: Annotated[str | None, says("The complete address of the recipient", _ANN)] = None
    messagestream: Annotated[Slug | None, says("The stream; `outbound` is `transactional`", "outbound")] = None
    fromdate: _Day = None
    todate: _Day = None
    inactive: Annotated[str | None, says(f"{REFUSED}: read `Inactive` of each, or `GET /v1/suppressions`", "x")] = None
    tag: Annotated[str | None, says(f"{REFUSED}: search for messages by `tag`", "x")] = None
    message_id: Annotated[
        str | None, says(f"{REFUSED}: read the events of the message, `/messages/outbound/{id}/details`", "x")
    ] = None


class PostmarkBounce(Struct, kw_only=True, rename=postmark_name):
    """A delivery that was refused for good or given up."""

    record_type: Annotated[str, says("Always `Bounce`", "Bounce")] = "Bounce"
    id: Annotated[int, says("The number of the event in the account's log", 12)]
    type: Annotated[str, says("`HardBounce`, `SoftBounce` or `Blocked`", "HardBounce")]
    type_code: Annotated[int, says("Postmark's number of the type", 1)]
    name: Annotated[str, says("The type in words", "Hard bounce")]
    tag: Annotated[str, says("The first tag of the message", "receipt")]
    message_id: Annotated[str, says("The message", _MESSAGE_ID)]
    message_stream: Annotated[str, says("The stream of the message", "outbound")]
    description: Annotated[str, says("Waybill's class and scope of the outcome", "user_unknown (recipient)")]
    details: Annotated[str, says("The reply of the mail server", "550 5.1.1 User unknown")]
    email: Annotated[str, says("The recipient", _ANN)]
    from_: Annotated[str, says("The sender", _SHOP)]
    bounced_at: Annotated[str, says("When it happened", _TIME)]
    dump_available: Annotated[bool, Meta(description="True: the dump is the reply", examples=[True])] = True
    inactive: Annotated[bool, Meta(description="True if the address is suppressed now", examples=[True])]
    can_activate: Annotated[bool, Meta(description="True if the suppression can be removed", examples=[True])]
    subject: Annotated[str, says("The subject of the message", "Your receipt")]


class PostmarkBounces(Struct, rename=postmark_name):
    """A page of bounces."""

    total_count: Annotated[int, says("How many were found so far, and one more if others follow", 1)]
    bounces: Annotated[list[PostmarkBounce], says("The bounces, newest first", [])]


class PostmarkActivated(Struct, rename=postmark_name):
    """The result of activating the address of a bounce."""

    message: Annotated[str, says("Always `OK`", "OK")]
    bounce: Annotated[PostmarkBounce, Meta(description="The bounce, with its address active")]


class PostmarkSuppressionsQuery(Struct, forbid_unknown_fields=True, kw_only=True, rename={
    "suppression_reason": "SuppressionReason", "email_address": "EmailAddress", "origin": "Origin",
}):  # fmt: skip
    """The query of Postmark's dump of suppressions."""

    suppression_reason: Annotated[
        str | None, says("`HardBounce`, `SpamComplaint` or `ManualSuppression`", "HardBounce")
    ] = None
    email_address: Annotated[str | None, says("One address", _ANN)] = None
    origin: Annotated[str | None, says(f"{REFUSED}: filter by `SuppressionReason`", "x")] = None
    count: Annotated[int | None, says("Ignored, as Postmark does: its client for Node.js sends it", 100)] = None
    offset: Annotated[int | None, says("Ignored, as `count`", 0)] = None
    fromdate: Annotated[str | None, says(f"{REFUSED}: all are listed, newest first", "x")] = None
    todate: Annotated[str | None, says(f"{REFUSED}: all are listed, newest first", "x")] = None


class PostmarkSuppression(Struct, rename=postmark_name):
    """A suppressed address."""

    email_address: Annotated[str, says("The address", _ANN)]
    suppression_reason: Annotated[str, says("`HardBounce`, `SpamComplaint` or `ManualSuppression`", "HardBounce")]
    origin: Annotated[str, says("`Customer` if it was added by hand, else `Recipient`", "Recipient")]
    created_at: Annotated[str, says("Since when", _TIME)]


class PostmarkSuppressions(Struct, rename=postmark_name):
    """All suppressed addresses of a stream."""

    suppressions: Annotated[list[PostmarkSuppression], says("The addresses, newest first", [])]
