"""Where a received message goes: pure decisions."""

from uuid import UUID

import pytest

from engine.base.errors import Refusal
from engine.receiving.inbound_routes import rules
from engine.receiving.inbound_routes.types import RouteAction, RouteDecision, RouteEndpoint, RouteRule

HOOK, OTHER, SILENT = UUID(int=1), UUID(int=2), UUID(int=3)
SUBSCRIBED = [RouteEndpoint(HOOK, True), RouteEndpoint(OTHER, True), RouteEndpoint(SILENT, False)]
MAILBOX = RouteDecision(action=RouteAction.MAILBOX)
FALLBACK = RouteDecision(action=RouteAction.MAILBOX, fallback=True)


def rule(action: str, webhook: UUID | None = None, *, enabled: bool = True, allowed: bool = True) -> RouteRule:
    to = "ann@example.test" if action == "forward" else None
    return RouteRule(action, webhook, ["text"], to, allowed, enabled)


def test_without_a_rule_mail_stays_in_the_mailbox() -> None:
    assert rules.decide(None, None, SUBSCRIBED) == MAILBOX


@pytest.mark.parametrize("action", ["webhook", "both"])
def test_without_an_endpoint_named_every_active_subscribed_one_gets_the_mail(action: str) -> None:
    decision = rules.decide(None, rule(action), SUBSCRIBED)

    assert decision == RouteDecision(action=RouteAction(action), webhook_ids=(HOOK, OTHER), include=("text",))
    assert decision.in_mailbox == (action == "both")


def test_an_endpoint_that_is_named_gets_the_mail_whatever_its_event_types() -> None:
    assert rules.decide(rule("webhook", SILENT), None, SUBSCRIBED).webhook_ids == (SILENT,)


def test_an_endpoint_that_is_gone_or_disabled_never_widens_to_all_endpoints() -> None:
    assert rules.decide(rule("webhook", UUID(int=9)), None, SUBSCRIBED) == FALLBACK
    assert rules.decide(rule("both", UUID(int=9)), None, SUBSCRIBED) == FALLBACK


def test_an_endpoint_for_other_domains_gets_the_mail_only_where_it_is_named() -> None:
    endpoints = rules.wanting([RouteEndpoint(HOOK, True, ["a.test"]), RouteEndpoint(OTHER, True, ["b.test"])], "a.test")

    assert rules.decide(rule("webhook"), None, endpoints).webhook_ids == (HOOK,)
    assert rules.decide(rule("webhook", OTHER), None, endpoints).webhook_ids == (OTHER,)


@pytest.mark.parametrize("endpoints", [[], [RouteEndpoint(SILENT, False)]])
def test_without_an_active_endpoint_mail_falls_back_to_the_mailbox(endpoints: list[RouteEndpoint]) -> None:
    assert rules.decide(rule("webhook"), None, endpoints) == FALLBACK


def test_the_rule_of_the_address_beats_the_rule_of_its_domain() -> None:
    assert rules.decide(rule("mailbox"), rule("webhook"), SUBSCRIBED) == MAILBOX
    assert rules.decide(rule("webhook", OTHER), rule("mailbox"), SUBSCRIBED).webhook_ids == (OTHER,)


def test_a_disabled_rule_of_the_address_means_mailbox_whatever_the_domains_rule_says() -> None:
    assert rules.decide(rule("webhook", enabled=False), rule("webhook"), SUBSCRIBED) == MAILBOX
    assert rules.decide(None, rule("webhook", enabled=False), SUBSCRIBED) == MAILBOX


def test_mail_is_forwarded_only_where_the_account_may_forward_it() -> None:
    forwarded = rules.decide(rule("forward"), None, SUBSCRIBED)

    assert forwarded == RouteDecision(action=RouteAction.FORWARD, forward_to="ann@example.test")
    assert not forwarded.in_mailbox
    assert rules.decide(rule("forward", allowed=False), None, SUBSCRIBED) == FALLBACK


def test_what_a_rule_would_do_now_is_its_effect() -> None:
    assert rules.effective(rule("webhook", HOOK), SUBSCRIBED) == "webhook"
    assert rules.effective(rule("webhook", HOOK), []) == "mailbox"
    assert rules.effective(rule("webhook", enabled=False), SUBSCRIBED) == "mailbox"


def test_the_parts_to_include_are_kept_once_and_in_order() -> None:
    assert rules.checked_include(["headers", "text", "text"]) == ("text", "headers")


@pytest.mark.parametrize("text", ["Ann <ann@example.test>", "ann", "a b@example.test"])
def test_mail_is_forwarded_to_bare_addresses_only(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        rules.checked_forward(text)
    assert (refused.value.kind, refused.value.fields["field"]) == ("invalid_address", "forwardTo")
