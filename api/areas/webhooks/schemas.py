"""Requests and replies of webhook endpoints and of their deliveries."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from engine.areas.webhooks.rules import MAX_TYPE, MAX_TYPES, MAX_URL

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
Standing = Literal["active", "disabled"]


class NewWebhook(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A new webhook endpoint, for `POST /v1/webhooks`."""

    url: Url
    event_types: EventTypes | None = None


class WebhookChange(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The fields to change, for `PATCH /v1/webhooks/{id}`: an omitted field stays."""

    url: Url | UnsetType = UNSET
    event_types: EventTypes | UnsetType = UNSET
    status: Standing | UnsetType = UNSET


class ReplayRequest(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The endpoint to post the event to again; without a body, every active endpoint that had the event."""

    webhook_id: Annotated[str, Meta(max_length=100, description="`whk_…`: post to this endpoint only")] | None = None


class WebhooksQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of a page, newest first."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    before: Annotated[str, Meta(max_length=100, description="`nextCursor` of the previous page")] | None = None


class Warned(Struct, rename="camel"):
    """An entry of `eventTypes` that will not match any event."""

    field: Annotated[str, Meta(examples=["eventTypes[0]"])]
    message: str


Warnings = Annotated[list[Warned], Meta(description="Entries that probably have no effect; usually empty")]


class Webhook(Struct, rename="camel"):
    """A webhook endpoint; its secret is never shown again."""

    id: str
    url: str
    event_types: list[str]
    status: Standing
    created_at: str
    warnings: Warnings


class WebhookMade(Struct, rename="camel"):
    """A new webhook endpoint. `signingSecret` is the key of the signatures, all its characters; store it now."""

    id: str
    url: str
    event_types: list[str]
    status: Standing
    signing_secret: str
    warnings: Warnings


class WebhookPage(Struct, rename="camel"):
    """Endpoints, newest first. `nextCursor` is null on the last page."""

    data: list[Webhook]
    next_cursor: str | None


class SecretMade(Struct, rename="camel"):
    """A new secret.

    Until `previousUntil` posts are also signed with the former one, in `Service-Signature-Previous`.
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
    """

    id: str
    type: str | None
    created_at: str
    state: Literal["pending", "delivered", "failed"]
    attempt: int
    status_code: int | None
    milliseconds: int | None
    answer: str | None
    error: str | None
    next_attempt_at: str | None
    attempts: list[Attempt]


class DeliveryPage(Struct, rename="camel"):
    """Deliveries, newest event first. `nextCursor` is null on the last page."""

    data: list[Delivery]
    next_cursor: str | None
