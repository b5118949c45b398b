"""Requests and replies of inbound routes."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from api.http.if_exists import IfExists
from engine.mail.address import MAX_TEXT
from engine.receiving.inbound_routes.rules import MAX_INCLUDE
from engine.receiving.inbound_routes.types import IncludedBody, RouteAction

WebhookId = Annotated[
    str,
    Meta(
        max_length=100,
        description="`whk_…`: post to this endpoint, whatever its event types; null: to every active endpoint that is "
        "subscribed to `inbound.received`",
    ),
]
Include = Annotated[
    list[IncludedBody],
    Meta(max_length=MAX_INCLUDE, description="Parts of the message to include in webhook posts, up to 256 KiB in all"),
]
ForwardTo = Annotated[
    str,
    Meta(
        min_length=3,
        max_length=MAX_TEXT,
        description="For `forward`: a confirmed address of a member of the team, or one under a verified domain of the "
        "account. Each message counts as a send. Spam, and what can't be forwarded or bounces, stays in the mailbox",
    ),
]


RetainReceived = Annotated[
    bool,
    Meta(
        description="False, for `webhook` and `forward`: content and attachments are deleted once the last post has "
        "succeeded or was given up, or the forwarded message is final. Default: true"
    ),
]


class NewInboundRoute(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A route. Give exactly one of `address` (claimed) and `domain` (verified: all its claimed addresses)."""

    address: Annotated[str, Meta(min_length=3, max_length=MAX_TEXT)] | None = None
    domain: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)] | None = None
    action: RouteAction
    webhook_id: WebhookId | None = None
    include: Include | None = None
    forward_to: ForwardTo | None = None
    retain_content: RetainReceived | None = None
    if_exists: IfExists = None


class InboundRouteChange(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The fields to change, for `PATCH /v1/inbound/routes/{id}`: an omitted field stays, null removes a value."""

    action: RouteAction | UnsetType = UNSET
    webhook_id: WebhookId | UnsetType | None = UNSET
    include: Include | UnsetType | None = UNSET
    forward_to: ForwardTo | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET
    retain_content: RetainReceived | UnsetType = UNSET


class InboundRoute(Struct, rename="camel", kw_only=True):
    """The route of the mail to an address or a domain; one of the two is null.

    `effective`: what would happen now, `mailbox` for a disabled route and where no endpoint or address can take mail.
    """

    id: str
    address: str | None
    domain: str | None
    action: RouteAction
    webhook_id: str | None
    include: list[IncludedBody]
    forward_to: str | None
    enabled: bool
    retain_content: bool
    effective: RouteAction
    created_at: str


class InboundRoutePage(Struct, rename="camel"):
    """Routes, newest first. `nextCursor` is null on the last page."""

    data: list[InboundRoute]
    next_cursor: str | None
