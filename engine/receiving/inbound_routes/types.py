"""Define inbound routes, and the decision that they lead to for one received message."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct, field

Fields = tuple[Any, ...]  # one row inside a row, in the order of its Struct's fields


class RouteAction(StrEnum):
    """The action of a route: received mail goes to the mailbox, to webhooks, to both, or on to another address."""

    MAILBOX = "mailbox"
    WEBHOOK = "webhook"
    BOTH = "both"
    FORWARD = "forward"


class IncludedBody(StrEnum):
    """Parts of a received message that webhook posts can include."""

    TEXT = "text"
    HTML = "html"
    REPLY_TEXT = "replyText"
    HEADERS = "headers"


class RouteRule(Struct, frozen=True):
    """The settings of a route. `forward_allowed`: `forward_to` still belongs to the account or its team."""

    action: str
    webhook_id: UUID | None
    include: list[str]
    forward_to: str | None
    forward_allowed: bool
    enabled: bool
    retain_content: bool = True


class RouteEndpoint(Struct, frozen=True):
    """An active webhook endpoint. `subscribed`: it wants `inbound.received`, of its `domains` or, without any, of
    all.
    """

    id: UUID
    subscribed: bool
    domains: list[str] = field(default_factory=list)


class RouteDecision(Struct, frozen=True, kw_only=True):
    """The decided route of one message. `fallback`: a route named webhooks or an address that can't be used now."""

    action: RouteAction
    fallback: bool = False
    webhook_ids: tuple[UUID, ...] = ()
    include: tuple[str, ...] = ()
    forward_to: str | None = None
    forgets: bool = False  # the content is deleted once the message is posted or forwarded

    @property
    def in_mailbox(self) -> bool:
        """Return True if the mailbox shows the message."""
        return self.action in {RouteAction.MAILBOX, RouteAction.BOTH}


class AddressRules(Struct, frozen=True):
    """A claimed address as a received message finds it, with the rules (one each at most) that decide."""

    address_id: UUID
    account_id: UUID
    domain: str
    enabled: bool
    account_status: str
    address_rules: list[Fields]  # of RouteRule
    domain_rules: list[Fields]  # of RouteRule
    endpoints: list[Fields]  # of RouteEndpoint


class AddressRoute(Struct, frozen=True):
    """The decision for one claimed address; `receives` is False for a disabled one or a closing account."""

    account_id: UUID
    receives: bool
    decision: RouteDecision


class InboundRouteRow(Struct, frozen=True):
    """A route with its target: the claimed address or the name of the domain."""

    id: UUID
    address: str | None
    domain: str | None
    action: str
    webhook_id: UUID | None
    include: list[str]
    forward_to: str | None
    forward_allowed: bool
    enabled: bool
    retain_content: bool
    created_at: datetime

    @property
    def of_domain(self) -> str:
        """Return the domain that the route receives mail of."""
        return self.domain or (self.address or "").rpartition("@")[2]

    @property
    def rule(self) -> RouteRule:
        """Return what the route says, without its target."""
        return RouteRule(
            self.action,
            self.webhook_id,
            self.include,
            self.forward_to,
            self.forward_allowed,
            self.enabled,
            self.retain_content,
        )


class RouteTarget(Struct, frozen=True):
    """The target of a new route: a claimed address, or a domain with its status."""

    address_id: UUID | None
    domain_id: UUID | None
    status: str


class RouteId(Struct, frozen=True):
    """The id of a route."""

    id: UUID


class NextForward(Struct, frozen=True):
    """The route that forwards the mail of an address of the account, and where to."""

    id: UUID
    forward_to: str


class RouteSettings(Struct, frozen=True, kw_only=True):
    """The settings of a route that its owner chooses; `forward_to` in canonical form."""

    action: RouteAction
    webhook_id: UUID | None = None
    include: tuple[str, ...] = ()
    forward_to: str | None = None
    enabled: bool = True
    retain_content: bool = True
