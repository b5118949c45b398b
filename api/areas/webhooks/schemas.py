"""Requests and replies of webhook endpoints and of their deliveries."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from engine.events.webhooks.deliveries import MAX_REPLAYED, DeliveryState
from engine.events.webhooks.post_options import (
    MAX_DOMAIN,
    MAX_FILTERS,
    MAX_HEADER_NAME,
    MAX_HEADER_VALUE,
    MAX_HEADERS,
    MAX_STREAM,
)
from engine.events.webhooks.rules import MAX_DESCRIPTION, MAX_TYPE, MAX_TYPES, MAX_URL
from engine.events.webhooks.types import HealthState

Url = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_URL,
        description="An http:// or https:// URL without user name, password and fragment",
        examples=["https://example.com/hooks/waybill"],
    ),
]
TypeName = Annotated[str, Meta(min_length=1, max_length=MAX_TYPE)]
EventTypes = Annotated[
    list[TypeName],
    Meta(max_length=MAX_TYPES, description="Empty: every type. An unknown name is stored, but never matches."),
]
DomainFilters = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=MAX_DOMAIN)]],
    Meta(
        max_length=MAX_FILTERS,
        description="Only events about messages from these sender domains, and `domain.verified` and `domain.failed` of"
        " them; empty: all events",
        examples=[["example.org"]],
    ),
]
StreamFilters = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=MAX_STREAM)]],
    Meta(
        max_length=MAX_FILTERS,
        description="Only events about messages on these streams; empty: all events",
        examples=[["transactional"]],
    ),
]
HeaderName = Annotated[str, Meta(min_length=1, max_length=MAX_HEADER_NAME)]
HeaderValue = Annotated[str, Meta(min_length=1, max_length=MAX_HEADER_VALUE)]
_HEADERS_EXAMPLE = [{"Authorization": "Bearer s3cret"}]
NewHeaders = Annotated[
    dict[HeaderName, HeaderValue],
    Meta(
        max_length=MAX_HEADERS,
        description="Headers of every post, in visible ASCII. The values are stored encrypted and never shown again.",
        examples=_HEADERS_EXAMPLE,
    ),
]
HeaderChanges = Annotated[
    dict[HeaderName, HeaderValue | None],
    Meta(
        max_length=2 * MAX_HEADERS,
        description="Headers to set, with null to remove one; headers that are not named stay",
        examples=_HEADERS_EXAMPLE,
    ),
]
HeaderNames = Annotated[
    list[str],
    Meta(description="The names of the endpoint's own headers; values are not shown", examples=[["Authorization"]]),
]
_INCLUDE_METADATA = Meta(
    description="Whether each post about a message has `tags` and `metadata` of the message beside `data`; those of"
    " verification codes and of mail from the service itself are never posted",
    examples=[True],
)
IncludeMetadata = Annotated[bool, _INCLUDE_METADATA]
_SIGNATURES = Meta(
    min_length=1,
    max_length=2,
    description="How posts are signed: always `waybill` (`Service-Signature`); `standard` adds `webhook-id`, "
    "`webhook-timestamp` and `webhook-signature` of Standard Webhooks",
    examples=[["waybill", "standard"]],
)
Signatures = Annotated[list[Literal["waybill", "standard"]], _SIGNATURES]
_HONOR_RETRY_AFTER = Meta(
    description="Whether `Retry-After` of a 429 or 503 postpones the next attempt, by at most an hour",
    examples=[True],
)
HonorRetryAfter = Annotated[bool, _HONOR_RETRY_AFTER]
Standing = Literal["active", "disabled"]
Description = Annotated[str, Meta(max_length=MAX_DESCRIPTION, description="A note for people; usually empty")]
EventId = Annotated[str, Meta(max_length=100, description="`nextCursor` of the previous page")]
_MOMENT = Meta(max_length=40, examples=["2026-11-20T08:09:10Z"], extra_json_schema={"format": "date-time"})
Since = Annotated[str, _MOMENT, Meta(description="Events of this time or later: ISO 8601, UTC, with `Z`")]
Until = Annotated[str, _MOMENT, Meta(description="Events before this time: ISO 8601, UTC, with `Z`")]


class NewWebhook(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A new webhook endpoint, for `POST /v1/webhooks`."""

    url: Url
    event_types: EventTypes | None = None
    domains: DomainFilters | None = None
    streams: StreamFilters | None = None
    headers: NewHeaders | None = None
    include_metadata: Annotated[bool | None, _INCLUDE_METADATA] = None
    signatures: Signatures | None = None
    honor_retry_after: Annotated[bool | None, _HONOR_RETRY_AFTER] = None
    description: Description = ""
    if_exists: Annotated[
        Literal["return", "update"] | None,
        Meta(
            description="For a `url` that has an endpoint: `return` returns it unchanged; `update` first sets the "
            "values of this request, and keeps what is omitted or null. Both return 200, not 201, without "
            "the secret. Without `ifExists` another endpoint is created"
        ),
    ] = None


class WebhookChange(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The fields to change, for `PATCH /v1/webhooks/{id}`: an omitted field stays."""

    url: Url | UnsetType = UNSET
    event_types: EventTypes | UnsetType = UNSET
    domains: DomainFilters | UnsetType = UNSET
    streams: StreamFilters | UnsetType = UNSET
    headers: HeaderChanges | UnsetType = UNSET
    include_metadata: IncludeMetadata | UnsetType = UNSET
    signatures: Signatures | UnsetType = UNSET
    honor_retry_after: HonorRetryAfter | UnsetType = UNSET
    status: Standing | UnsetType = UNSET
    description: Description | UnsetType = UNSET


class ReplayRequest(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The endpoint to post the event to again; without a body, every active endpoint that had the event."""

    webhook_id: Annotated[str, Meta(max_length=100, description="`whk_…`: post to this endpoint only")] | None = None


class DeliveriesQuery(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The query of a page of deliveries, newest event first; every given filter must match."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    before: EventId | None = None
    state: DeliveryState | None = None
    type: TypeName | None = None
    from_: Since | None = None
    until: Until | None = None


class ReplayWindow(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The deliveries to post again: by default those that failed, of any type and time."""

    state: Annotated[
        Literal["pending", "delivered", "failed"],
        Meta(description="Their present state. `pending`: what waits for a retry is posted now"),
    ] = "failed"
    type: TypeName | None = None
    from_: Since | None = None
    until: Until | None = None
    before: EventId | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_REPLAYED)] = MAX_REPLAYED


class Warned(Struct, rename="camel"):
    """An entry of `eventTypes`, `domains` or `streams` that matches no event now."""

    field: Annotated[str, Meta(examples=["eventTypes[0]"])]
    message: str


Warnings = Annotated[list[Warned], Meta(description="Entries that probably have no effect; usually empty")]


class LastResponse(Struct, rename="camel"):
    """The outcome of the last post to an endpoint: `statusCode` is null if no response arrived; `error` says why."""

    at: str
    status_code: int | None
    milliseconds: int
    error: str | None


class EndpointHealth(Struct, rename="camel"):
    """How an endpoint responds; an extra beyond the contract.

    `failing`: three posts in a row failed, or a delivery was given up, and no post succeeded since. `idle`: there
    was no post in the last 24 hours.
    """

    state: HealthState
    success_rate: float | None
    posts: int
    last_response: LastResponse | None
    failing_since: str | None
    next_attempt_at: str | None


class Webhook(Struct, rename="camel"):
    """A webhook endpoint; its secret is never shown again."""

    id: str
    url: str
    event_types: list[str]
    domains: DomainFilters
    streams: StreamFilters
    header_names: HeaderNames
    include_metadata: IncludeMetadata
    signatures: Signatures
    honor_retry_after: HonorRetryAfter
    status: Standing
    description: str
    created_at: str
    warnings: Warnings
    health: EndpointHealth


class WebhookMade(Struct, rename="camel"):
    """A new webhook endpoint. `signingSecret` is the key of the signatures, all its characters; store it now.

    It is null for an endpoint that existed, with `ifExists`: the service shows a secret once.
    """

    id: str
    url: str
    event_types: list[str]
    domains: DomainFilters
    streams: StreamFilters
    header_names: HeaderNames
    include_metadata: IncludeMetadata
    signatures: Signatures
    honor_retry_after: HonorRetryAfter
    status: Standing
    description: str
    signing_secret: str | None
    warnings: Warnings


class WebhookPage(Struct, rename="camel"):
    """Endpoints, newest first. `nextCursor` is null on the last page."""

    data: list[Webhook]
    next_cursor: str | None


class SecretMade(Struct, rename="camel"):
    """A new secret.

    Until `previousUntil` posts are also signed with the former one: in `Service-Signature-Previous`, and beside the new
    one in `webhook-signature`.
    """

    id: str
    signing_secret: str
    previous_until: str


class Queued(Struct, rename="camel"):
    """An event to be posted: its delivery id, and the endpoints that get it."""

    id: str
    webhooks: list[str]


class Attempt(Struct, rename="camel"):
    """A post to an endpoint. `milliseconds` is null if a delivery ended without another attempt; `error` says why."""

    attempt: int
    at: str
    status_code: int | None
    milliseconds: int | None
    error: str | None


class Delivery(Struct, rename="camel", kw_only=True):
    """The delivery of an event to an endpoint: its state, the last attempt with its answer, and every attempt in order.

    `type` is null when the event itself is no longer kept; `answer` holds the first 4 KB of the last answer.
    `messageId`, `recipient` and `subject` describe the message that the event is about; they are null for other events.
    """

    id: str
    type: str | None
    message_id: str | None
    recipient: str | None
    subject: str | None
    created_at: str
    state: DeliveryState
    attempt: int
    status_code: int | None
    milliseconds: int | None
    answer: str | None
    error: str | None
    next_attempt_at: str | None
    attempts: list[Attempt]


class Header(Struct):
    """One header of a request or answer."""

    name: str
    value: str


class PostExchange(Struct, rename="camel"):
    """The request and the answer of one attempt.

    `url` and `requestHeaders` are null if nothing was sent or the attempt is older than this record. The fields of the
    answer are null if none came.
    """

    attempt: int
    url: str | None
    request_headers: list[Header] | None
    status_code: int | None
    answer_headers: list[Header] | None
    answer: str | None


class ExactDelivery(Struct, rename="camel", kw_only=True):
    """A delivery, the body of its posts (null when the event is no longer kept), and every exchange in order."""

    delivery: Delivery
    body: str | None
    exchanges: list[PostExchange]


class WindowReplayed(Struct, rename="camel"):
    """The number of deliveries queued, and `before` of the call for those that are left; null: none."""

    queued: int
    next_cursor: str | None


class DeliveryPage(Struct, rename="camel"):
    """Deliveries, newest event first. `nextCursor` is null on the last page."""

    data: list[Delivery]
    next_cursor: str | None
