"""Decide what happens with a received message. Pure."""

from collections.abc import Collection, Iterable
from uuid import UUID

from msgspec import Struct


class RouteRule(Struct, frozen=True):
    """The rule of an address (`for_address`) or of its domain."""

    for_address: bool
    action: str
    webhook_id: UUID | None
    include: list[str]
    forward_to: str | None
    enabled: bool


class RouteDecision(Struct, frozen=True, kw_only=True):
    """What happens with a message. `fallback`: a route names no active endpoint, so the mailbox keeps the message."""

    action: str = "mailbox"
    fallback: bool = False
    webhook_ids: tuple[UUID, ...] = ()
    include: tuple[str, ...] = ()
    forward_to: str | None = None


def decide(rules: Iterable[RouteRule], endpoints: Collection[UUID]) -> RouteDecision:
    """Decide by the rule of the address, else by that of its domain; `endpoints` are the active ones of the account."""
    rule = min(rules, key=lambda one: not one.for_address, default=None)
    if rule is None or not rule.enabled or rule.action == "mailbox":
        return RouteDecision()
    if rule.action == "forward":
        return RouteDecision(action="forward", forward_to=rule.forward_to)
    wanted = endpoints if rule.webhook_id is None else [one for one in endpoints if one == rule.webhook_id]
    if not wanted:
        return RouteDecision(fallback=True)
    return RouteDecision(action=rule.action, webhook_ids=tuple(sorted(wanted)), include=tuple(rule.include))
