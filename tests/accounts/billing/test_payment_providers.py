"""Signatures and events of payment providers, as their own libraries make them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
import stripe
from hypothesis import given
from hypothesis import strategies as st

from engine.accounts.billing.providers import payprov, signatures
from engine.accounts.billing.providers.protocol import BadSignature, UnusableEvent
from engine.accounts.billing.providers.stripe_provider import StripeProvider, own_amount, stripe_amount
from engine.accounts.billing.types import ProviderEventType
from engine.base import clock, ids
from engine.base.ids import Kind

AT = datetime(2026, 11, 22, 12, tzinfo=UTC)
CHECKOUT = ids.uuid7()


@given(st.binary(max_size=200), st.integers(-400, 400))
def test_a_signature_holds_for_its_body_and_five_minutes(body: bytes, off_s: int) -> None:
    header = signatures.sign("new", body, AT)
    later = AT + timedelta(seconds=off_s)

    if abs(off_s) <= signatures.TOLERANCE_S:
        signatures.verify(("other", "new"), header, body, later)
    else:
        with pytest.raises(BadSignature):
            signatures.verify(("other", "new"), header, body, later)
    with pytest.raises(BadSignature):
        signatures.verify(("new",), header, body + b" ", AT)


def test_two_signatures_are_accepted_while_a_secret_is_rotated() -> None:
    new, old = signatures.sign("new", b"{}", AT), signatures.sign("old", b"{}", AT)

    signatures.verify(("old",), f"{new},{old.partition(',')[2]}", b"{}", AT)


@pytest.mark.parametrize(
    "header", [None, "", "t=1", "v1=aa", "t=x,v1=aa", "t=1,t=2,v1=aa", "t=1;v1=aa", "t=" + "1" * 2_000, "t=١,v1=aa"]
)
def test_a_malformed_header_is_no_signature(header: str | None) -> None:
    with pytest.raises(BadSignature):
        signatures.verify(("secret",), header, b"{}", AT)


@given(st.binary(max_size=300) | st.from_regex(r'\{"id":"[a-z]{0,3}","type":"[a-z.]{0,12}","createdAt":".{0,12}"\}'))
def test_no_body_breaks_the_reader_of_events(body: bytes | str) -> None:
    content = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
    with pytest.raises(UnusableEvent):
        payprov.event_of(content)


def test_amounts_go_to_stripe_in_its_units() -> None:
    assert [stripe_amount(5, currency) for currency in ("EUR", "JPY", "KWD", "ISK")] == [5, 5, 5, 500]
    assert own_amount(500, "ISK") == 5


# -- Stripe: events in the shapes of its documentation ------------------------------------------------


@pytest.fixture(scope="module")
def provider() -> StripeProvider:
    return StripeProvider("sk_test_1", ("whsec_new", "whsec_old"), return_url="http://127.0.0.1")


def signed(message: dict[str, Any], secret: str = "whsec_old") -> tuple[dict[str, str], bytes]:
    body = orjson.dumps(message)
    seconds = int(clock.now().timestamp())
    digest = stripe.WebhookSignature._compute_signature(f"{seconds}.{body.decode()}", secret)
    return {"stripe-signature": f"t={seconds},v1={digest}"}, body


def session(**fields: object) -> dict[str, Any]:
    return {
        "id": "cs_test_1", "object": "checkout.session", "amount_total": 2_261, "currency": "eur",
        "customer": "cus_1", "payment_status": "paid", "mode": "payment",
        "metadata": {"checkout": ids.format_id(Kind.CHECKOUT, CHECKOUT)},
    } | fields  # fmt: skip


def message(kind: str, thing: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "evt_1", "object": "event", "api_version": "2025-09-30.clover", "created": 1_795_000_000,
        "livemode": False, "type": kind, "data": {"object": thing},
    }  # fmt: skip


def test_a_paid_session_of_stripe_pays_its_checkout(provider: StripeProvider) -> None:
    headers, body = signed(message("checkout.session.completed", session()))

    event = provider.read_event(headers, body, clock.now())

    assert event.type is ProviderEventType.CHECKOUT_SUCCEEDED
    assert (event.checkout, event.amount, event.currency, event.reference) == (CHECKOUT, 2_261, "EUR", "cus_1")


def test_a_renewal_charged_by_stripe_names_its_period(provider: StripeProvider) -> None:
    account = ids.uuid7()
    facts = {"account": ids.format_id(Kind.ACCOUNT, account), "periodStart": "2026-11-22T10:00:00.123Z"}
    intent = {"object": "payment_intent", "amount": 1_900, "currency": "eur", "customer": "cus_1", "metadata": facts}
    headers, body = signed(message("payment_intent.payment_failed", intent))

    event = provider.read_event(headers, body, clock.now())

    assert event.type is ProviderEventType.PAYMENT_FAILED
    assert (event.account, event.period_start) == (account, datetime(2026, 11, 22, 10, 0, 0, 123_000, tzinfo=UTC))


def test_a_refund_of_stripe_counts_what_was_refunded_in_all(provider: StripeProvider) -> None:
    charge = {"object": "charge", "amount": 2_261, "amount_refunded": 500} | {
        name: session()[name] for name in ("currency", "customer", "metadata")
    }
    headers, body = signed(message("charge.refunded", charge))

    event = provider.read_event(headers, body, clock.now())

    assert (event.type, event.refunded_in_all, event.amount) == (ProviderEventType.REFUND_SUCCEEDED, 500, None)


@pytest.mark.parametrize(
    "event",
    [
        message("checkout.session.completed", session(payment_status="unpaid")),
        message("payment_intent.succeeded", session(object="payment_intent", amount=1)),  # of the checkout itself
        message("customer.created", {"object": "customer"}),
        message("checkout.session.completed", session(metadata={})),
        message("checkout.session.completed", session(metadata={"checkout": "chk_x"})),
    ],
)
def test_other_events_of_stripe_are_recorded_and_change_nothing(
    provider: StripeProvider, event: dict[str, Any]
) -> None:
    headers, body = signed(event)

    with pytest.raises(UnusableEvent) as problem:
        provider.read_event(headers, body, clock.now())
    assert problem.value.event == "evt_1"


def test_a_wrong_signature_of_stripe_is_refused(provider: StripeProvider) -> None:
    headers, body = signed(message("checkout.session.completed", session()), secret="whsec_wrong")

    with pytest.raises(BadSignature):
        provider.read_event(headers, body, clock.now())
    with pytest.raises(BadSignature):
        provider.read_event({}, body, clock.now())


def test_a_signature_of_stripe_from_the_future_is_refused(provider: StripeProvider) -> None:
    headers, body = signed(message("checkout.session.completed", session()))

    with pytest.raises(BadSignature, match="future"):
        provider.read_event(headers, body, clock.now() - timedelta(seconds=310))
