"""Requests and replies of bounces."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from engine.delivery.reply_codes import Category, Scope
from engine.sending.bounces.types import BounceType
from engine.sending.emails.types import Slug
from engine.sending.suppressions.types import Reason

_MOMENT = Meta(max_length=40, examples=["2026-11-20T08:09:10Z"], extra_json_schema={"format": "date-time"})
AddressEventType = Literal["delivered", "deferred", "bounced", "failed", "complained", "suppressed"]


class BounceFilterQuery(
    Struct,
    forbid_unknown_fields=True,
    rename="camel",
    kw_only=True,
):
    """The filters of bounces; every given filter must match."""

    type: Annotated[
        BounceType, Meta(description="`bounced`: rejected permanently. `failed`: given up after the last retry")
    ] | None = None  # fmt: skip
    class_: Annotated[Category, Meta(description="The class of the outcome", examples=["user_unknown"])] | None = None
    scope: Annotated[
        Scope,
        Meta(
            description="What the failure concerns: the `recipient` (an unknown mailbox), the `message` (its content "
            "or size), the `site` (a policy or block of the mail servers) or the `session`"
        ),
    ] | None = None  # fmt: skip
    recipient_domain: Annotated[
        str, Meta(min_length=1, max_length=253, description="The domain of the recipient", examples=["example.com"])
    ] | None = None  # fmt: skip
    domain: Annotated[str, Meta(min_length=1, max_length=253, description="The sending domain")] | None = None
    stream: Annotated[Slug, Meta(description="The stream of the message")] | None = None
    from_: Annotated[str, _MOMENT, Meta(description="At this time or later: ISO 8601, UTC, with `Z`")] | None = None
    until: Annotated[str, _MOMENT, Meta(description="Before this time: ISO 8601, UTC, with `Z`")] | None = None


class BouncesQuery(BounceFilterQuery, kw_only=True, forbid_unknown_fields=True):
    """The query of `GET /v1/bounces`: newest first."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 25
    before: Annotated[str, Meta(max_length=100, description="`nextCursor` of the previous page")] | None = None


class AddressEvent(Struct, rename="camel", kw_only=True):
    """What happened to one recipient of a message. Fields that the event does not have are null."""

    id: Annotated[str, Meta(description="The event")]
    type: AddressEventType
    message_id: Annotated[str | None, Meta(description="The message")]
    address: Annotated[str, Meta(description="The recipient")]
    class_: Annotated[str | None, Meta(description="The class of the outcome", examples=["user_unknown"])]
    scope: Annotated[str | None, Meta(description="What the failure concerns", examples=["recipient"])]
    smtp_code: Annotated[int | None, Meta(description="The reply code of the mail server", examples=[550])]
    enhanced_code: Annotated[str | None, Meta(description="The enhanced status code (RFC 3463)", examples=["5.1.1"])]
    diagnostic: Annotated[
        str | None,
        Meta(description="The reply of the mail server, or why there is none", examples=["550 5.1.1 User unknown"]),
    ]
    mx: Annotated[str | None, Meta(description="The mail server", examples=["mx1.example.com"])]
    attempt: Annotated[int | None, Meta(description="The number of the delivery attempt", examples=[1])]
    late: Annotated[bool, Meta(description="True if a report came after the server had accepted the message")]
    suppressed: Annotated[bool, Meta(description="True if the address was put on the suppression list for it")]
    from_domain: Annotated[str | None, Meta(description="The sending domain; null once the message is deleted")]
    stream: Annotated[str | None, Meta(description="The stream; null once the message is deleted")]
    occurred_at: Annotated[str, Meta(description="When it happened")]


class BouncePage(Struct, rename="camel"):
    """Bounces, newest first. `nextCursor` is null on the last page.

    With filters that few match a page may be short, or empty with a `nextCursor`: go on until it is null.
    """

    data: list[AddressEvent]
    next_cursor: str | None


class BounceClass(Struct, rename="camel", kw_only=True):
    """The bounces of one class and scope, with the last reply."""

    class_: Annotated[str, Meta(description="The class of the outcome", examples=["user_unknown"])]
    scope: Annotated[str | None, Meta(description="What the failures concern", examples=["recipient"])]
    bounces: Annotated[int, Meta(description="How many", examples=[12])]
    suppressed: Annotated[int, Meta(description="How many of them put their address on the suppression list")]
    last_at: Annotated[str, Meta(description="When the last one happened")]
    diagnostic: Annotated[str, Meta(description="The reply that the last one got", examples=["550 5.1.1 User unknown"])]


class BounceClasses(Struct, kw_only=True):
    """The newest 10,000 bounces of a period by class, most first."""

    data: list[BounceClass]
    counted: Annotated[int, Meta(description="The bounces that were counted", examples=[40])]
    complete: Annotated[bool, Meta(description="False if the period has older bounces, which were not counted")]


class AddressSuppression(Struct, rename="camel", kw_only=True):
    """Why an address is suppressed, and since when."""

    reason: Annotated[Reason, Meta(description="Why the address is suppressed")]
    detail: Annotated[str | None, Meta(description="The reply that caused it", examples=["550 5.1.1 User unknown"])]
    message_id: Annotated[str | None, Meta(description="The message that caused it, null without one")]
    created_at: Annotated[str, Meta(description="When the address was suppressed")]


class AddressHistory(Struct, kw_only=True):
    """What happened to the newest messages to an address: at most 50 messages and 200 events, newest first.

    `suppression` is null unless the address is suppressed. One after a complaint stays; others are removed by
    `DELETE /v1/suppressions/{address}`.
    """

    address: Annotated[str, Meta(description="The address in its canonical form", examples=["ann@example.com"])]
    suppression: Annotated[
        AddressSuppression | None, Meta(description="The suppression of the address, null without one")
    ]
    removable: Annotated[bool, Meta(description="True if the address is suppressed and may be sent to again")]
    data: list[AddressEvent]
