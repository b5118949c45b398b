"""The provider Stripe: its checkout pages, charges of the saved means of payment, events signed in `Stripe-Signature`.

Needs the package `stripe` (`pip install waybill[stripe]`). A checkout is a single payment that saves the card for later
ones (`setup_future_usage`): the service decides when and what a renewal costs, Stripe only charges it. In Stripe's
dashboard, let the endpoint get the types of `_EVENTS`. Sources: docs.stripe.com/webhooks, /currencies, /api/errors.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from engine.accounts.billing.providers.protocol import (
    BadSignature,
    PaymentOrder,
    PaymentProviderUnavailable,
    UnusableEvent,
)
from engine.accounts.billing.providers.signatures import TOLERANCE_S
from engine.accounts.billing.types import ProviderEvent, ProviderEventType
from engine.base import clock, ids
from engine.base.ids import Kind

HEADER: Final = "stripe-signature"
TIMEOUT_S: Final = 20.0
_BEFORE_EXPIRY: Final = timedelta(minutes=1)  # Stripe takes at most 24 h from the moment it gets the request
# Currencies without decimals that Stripe's API counts in hundredths (docs.stripe.com/currencies, "special cases").
_IN_HUNDREDTHS: Final = frozenset({"ISK", "UGX"})

_EVENTS: Final = {
    "checkout.session.completed": ProviderEventType.CHECKOUT_SUCCEEDED,
    "checkout.session.async_payment_succeeded": ProviderEventType.CHECKOUT_SUCCEEDED,
    "checkout.session.async_payment_failed": ProviderEventType.CHECKOUT_FAILED,
    "checkout.session.expired": ProviderEventType.CHECKOUT_FAILED,
    "payment_intent.succeeded": ProviderEventType.PAYMENT_SUCCEEDED,
    "payment_intent.payment_failed": ProviderEventType.PAYMENT_FAILED,
    "charge.refunded": ProviderEventType.REFUND_SUCCEEDED,
}


class StripeMissing(RuntimeError):  # noqa: N818 - named for what is missing
    """The package `stripe` is not installed; the text says how to install it."""


class StripeProvider:
    """Stripe's API with the key of one account. `secrets`: the webhook endpoint's present secret and the one before."""

    name = "stripe"

    def __init__(self, key: str, secrets: Sequence[str], *, return_url: str, base_url: str | None = None) -> None:
        self._stripe = _package()
        self._secrets = tuple(secrets)
        self._return_url = return_url
        addresses = {} if base_url is None else {"api": base_url}
        http = self._stripe.RequestsClient(timeout=TIMEOUT_S)
        self._client = self._stripe.StripeClient(key, base_addresses=addresses, http_client=http, max_network_retries=1)

    async def open_checkout(self, order: PaymentOrder) -> str:
        """Return the URL of a checkout page for the order."""
        facts = {"checkout": ids.format_id(Kind.CHECKOUT, order.id)}
        params: dict[str, Any] = {
            "mode": "payment",
            "line_items": [{"quantity": 1, "price_data": self._price(order)}],
            "customer_creation": "always",
            "payment_intent_data": {"setup_future_usage": "off_session", "metadata": facts},
            "client_reference_id": facts["checkout"],
            "metadata": facts,
            "success_url": self._return_url,
            "cancel_url": self._return_url,
        }
        if order.expires_at is not None:
            params["expires_at"] = int((order.expires_at - _BEFORE_EXPIRY).timestamp())
        if order.email is not None:
            params["customer_email"] = order.email
        session = await self._call(self._client.v1.checkout.sessions.create, params, order.id)
        if not session.url:
            raise PaymentProviderUnavailable("Stripe gave the checkout no page")
        return str(session.url)

    async def charge(self, order: PaymentOrder) -> None:
        """Charge the customer's saved means of payment; the outcome comes as an event, a declined card's too."""
        assert order.period_start is not None
        if order.reference is None:
            raise PaymentProviderUnavailable("the account has no customer at Stripe")
        saved = await self._call(self._client.v1.customers.payment_methods.list, order.reference, None)
        if not saved.data:
            raise PaymentProviderUnavailable(f"the customer {order.reference} has no means of payment")
        params = {
            "amount": stripe_amount(order.amount, order.currency),
            "currency": order.currency.lower(),
            "customer": order.reference,
            "payment_method": saved.data[0].id,
            "off_session": True,
            "confirm": True,
            "description": order.description,
            "metadata": {
                "account": ids.format_id(Kind.ACCOUNT, order.account),
                "periodStart": clock.iso(order.period_start),
            },
        }
        try:
            await self._call(self._client.v1.payment_intents.create, params, order.id)
        except self._stripe.CardError:
            return  # `payment_intent.payment_failed` says so

    def read_event(
        self,
        headers: Mapping[str, str],
        body: bytes,
        at: datetime,
    ) -> ProviderEvent:
        """Return the event of a post; raise BadSignature unless Stripe signed it.

        Stripe's library checks the signature and that it is not too old; this method also refuses one of the future.
        """
        header = headers.get(HEADER, "")
        for secret in self._secrets:
            try:
                text = body.decode("utf-8")
                self._stripe.WebhookSignature.verify_header(text, header, secret, TOLERANCE_S)
                break
            except (self._stripe.SignatureVerificationError, UnicodeDecodeError):
                continue
        else:
            raise BadSignature("No signature of Stripe matches the body and the present time.")
        if _signed_at(header) > at.timestamp() + TOLERANCE_S:
            raise BadSignature(f"The signature is more than {TOLERANCE_S} seconds in the future.")
        return event_of(body)

    def _price(self, order: PaymentOrder) -> dict[str, Any]:
        return {
            "currency": order.currency.lower(),
            "unit_amount": stripe_amount(order.amount, order.currency),
            "product_data": {"name": order.description},
        }

    async def _call(self, work: Callable[..., Any], argument: Any, order: UUID | None) -> Any:
        """Call Stripe in a thread; raise PaymentProviderUnavailable for what may succeed later."""
        options = {} if order is None else {"options": {"idempotency_key": str(order)}}
        try:
            return await asyncio.to_thread(work, argument, **options)
        except self._stripe.CardError:
            raise
        except self._stripe.StripeError as error:
            raise PaymentProviderUnavailable(f"{type(error).__name__}: {error.user_message or error}") from error


def _signed_at(header: str) -> int:
    """Return the time in a verified signature, Unix seconds, as Stripe's library reads it."""
    return next(int(part.split("=")[1]) for part in header.split(",") if part.startswith("t="))


def stripe_amount(amount: int, currency: str) -> int:
    """Return an amount in the units of Stripe's API."""
    return amount * 100 if currency in _IN_HUNDREDTHS else amount


def own_amount(amount: int, currency: str) -> int:
    """Return an amount of Stripe's API in minor units."""
    return amount // 100 if currency in _IN_HUNDREDTHS else amount


def event_of(body: bytes) -> ProviderEvent:
    """Map a verified event of Stripe. Raises UnusableEvent for those that change nothing here."""
    try:
        event: dict[str, Any] = msgspec.json.decode(body, type=dict)
        known = {"event": str(event["id"])[:200], "kind": str(event["type"])[:200]}
        thing: dict[str, Any] = event["data"]["object"]
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise UnusableEvent(f"The body isn't an event of Stripe: {error!r}") from None
    kind = _EVENTS.get(known["kind"])
    if kind is None or not _concerns_us(known["kind"], thing):
        raise UnusableEvent(f"Events like this change nothing here: {known['kind']}.", **known)
    try:
        return _mapped(event, kind, thing)
    except (ValueError, KeyError, TypeError) as error:
        raise UnusableEvent(f"The event lacks a value, or has a wrong one: {error!r}", **known) from None


def _concerns_us(kind: str, thing: dict[str, Any]) -> bool:
    """Return False for sessions that are not paid yet, and for payments that another program asked for."""
    facts = thing.get("metadata") or {}
    if kind == "checkout.session.completed":
        return thing.get("payment_status") == "paid" and "checkout" in facts
    if kind.startswith("payment_intent."):
        return "periodStart" in facts
    return "checkout" in facts or "periodStart" in facts


def _mapped(event: dict[str, Any], kind: ProviderEventType, thing: dict[str, Any]) -> ProviderEvent:
    facts = thing["metadata"]
    currency = str(thing["currency"]).upper()
    is_session = thing.get("object") == "checkout.session"
    given = thing["amount_total"] if is_session else thing.get("amount_refunded", thing["amount"])
    refunded = kind is ProviderEventType.REFUND_SUCCEEDED
    amount = own_amount(int(given), currency)
    return ProviderEvent(
        id=event["id"],
        type=kind,
        created_at=datetime.fromtimestamp(event["created"], UTC),
        amount=None if refunded else amount,
        refunded_in_all=amount if refunded else None,
        currency=currency,
        checkout=None if "checkout" not in facts else ids.parse_id(Kind.CHECKOUT, facts["checkout"]),
        account=None if "account" not in facts else ids.parse_id(Kind.ACCOUNT, facts["account"]),
        period_start=None if "periodStart" not in facts else msgspec.convert(facts["periodStart"], datetime),
        reference=thing.get("customer"),
    )


def _package() -> Any:
    try:
        import stripe  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise StripeMissing(
            "WAYBILL_PAYMENT_PROVIDER is `stripe`, which needs the package of that name: pip install 'waybill[stripe]'."
        ) from None
    return stripe
