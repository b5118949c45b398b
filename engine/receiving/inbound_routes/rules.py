"""Decide where a received message goes, and check the settings of routes. Pure.

The rule of the address beats the rule of its domain, also when it is disabled. Mail that can't go where its rule says
falls back to the mailbox; it never goes to endpoints that the rule does not name.
"""

from collections.abc import Iterable, Sequence

from msgspec import structs

from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail.address import BadAddress, bare_address, canonical
from engine.receiving.inbound_routes.types import IncludedBody, RouteAction, RouteDecision, RouteEndpoint, RouteRule

MAX_INCLUDE = len(IncludedBody)
_FALLBACK = RouteDecision(action=RouteAction.MAILBOX, fallback=True)
_MAILBOX = RouteDecision(action=RouteAction.MAILBOX)


def decide(
    address_rule: RouteRule | None, domain_rule: RouteRule | None, endpoints: Sequence[RouteEndpoint]
) -> RouteDecision:
    """Return where mail to a claimed address goes. `endpoints`: the active webhook endpoints of the account."""
    rule = domain_rule if address_rule is None else address_rule
    if rule is None or not rule.enabled or rule.action == RouteAction.MAILBOX:
        return _MAILBOX
    if rule.action == RouteAction.FORWARD:
        if rule.forward_to is None or not rule.forward_allowed:
            return _FALLBACK
        return RouteDecision(action=RouteAction.FORWARD, forward_to=rule.forward_to, forgets=not rule.retain_content)
    chosen = tuple(one.id for one in endpoints if _reaches(rule, one))
    if not chosen:
        return _FALLBACK
    return RouteDecision(
        action=RouteAction(rule.action), webhook_ids=chosen, include=tuple(rule.include),
        forgets=not rule.retain_content,
    )  # fmt: skip


def wanting(endpoints: Iterable[RouteEndpoint], domain: str) -> list[RouteEndpoint]:
    """Return the endpoints as mail to an address of `domain` finds them: one for other domains is not subscribed."""
    return [
        structs.replace(one, subscribed=one.subscribed and (not one.domains or domain in one.domains))
        for one in endpoints
    ]


def effective(rule: RouteRule, endpoints: Sequence[RouteEndpoint]) -> RouteAction:
    """Return what would happen now with mail that this rule decides about."""
    return decide(rule, None, endpoints).action


def checked_include(names: Iterable[str]) -> tuple[str, ...]:
    """Return the parts to include in webhook posts, without duplicates, in the documented order."""
    wanted = set(names)
    return tuple(one.value for one in IncludedBody if one.value in wanted)


def checked_forward(text: str | None) -> str | None:
    """Return the canonical form of the address to forward to; raise the 422 `invalid_address`."""
    if text is None:
        return None
    try:
        return canonical(bare_address(text))
    except BadAddress as error:
        raise Refusal(
            ErrorType.INVALID_ADDRESS, f"`forwardTo` is not an email address: {error}", address=text, field="forwardTo"
        ) from None


def check_forward(rule: RouteRule, address: str | None) -> None:
    """Raise the 400 for a route that forwards nowhere, to itself, or to an address that the account can't vouch for."""
    if rule.forward_to is None:
        if rule.action == RouteAction.FORWARD:
            raise invalid("forwardTo", "`forwardTo` is missing. Set the address to forward to.")
        return
    if address is not None and rule.forward_to == address:
        raise invalid("forwardTo", f"`forwardTo` is {rule.forward_to}, the address of the route itself.")
    if not rule.forward_allowed:
        raise invalid(
            "forwardTo",
            f"`forwardTo` is {rule.forward_to}. Use the confirmed address of a team member, or an address at your "
            "verified domains.",
        )


def check_retention(action: str, *, retain_content: bool) -> None:
    """Raise the 400 for a route that would delete what the mailbox shows."""
    if not retain_content and action not in {RouteAction.WEBHOOK, RouteAction.FORWARD}:
        raise invalid(
            "retainContent",
            "A `retainContent` of false needs the action `webhook` or `forward`: the mailbox shows the content.",
        )


def forms_of(address: str) -> list[str]:
    """Return the claimed addresses that may get mail to a canonical address, the first one claimed gets it."""
    local, _, host = address.rpartition("@")
    return [address, f"{local.partition('+')[0]}@{host}", f"*@{host}"]


def forwarding_loop(to: str) -> Refusal:
    """Return the 400 for a route whose mail would come back to it."""
    return invalid(
        "forwardTo",
        f"`forwardTo` is {to}, which forwards back to this route. Choose an address that keeps its mail.",
    )


def _reaches(rule: RouteRule, endpoint: RouteEndpoint) -> bool:
    return endpoint.subscribed if rule.webhook_id is None else endpoint.id == rule.webhook_id
