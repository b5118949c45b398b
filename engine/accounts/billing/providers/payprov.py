"""The built-in provider `payprov`: a checkout page by URL, charges by POST, events signed in `Payprov-Signature`.

An event is JSON: `{id, type, createdAt, data}`. `data` holds `amount` and `currency`, and what the event is about:
`checkout` (chk_…), or `account` (acc_…) with `periodStart`, or `invoice` (inv_…); `reference` names the payer.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

import msgspec
import orjson
import yarl
from msgspec import Struct

from engine.accounts.billing.money import MAX_AMOUNT, is_currency
from engine.accounts.billing.providers import signatures
from engine.accounts.billing.providers.protocol import PaymentOrder, PaymentProviderUnavailable, UnusableEvent
from engine.accounts.billing.types import ProviderEvent, ProviderEventType
from engine.base import clock, ids
from engine.base.ids import Kind
from engine.store.http_client import HttpClient, HttpFailure

HEADER: Final = "payprov-signature"
TIMEOUT_S: Final = 10.0
MAX_ANSWER: Final = 4_096  # octets of the provider's answer
_MAX_TEXT: Final = 200


class PayprovData(Struct, frozen=True, rename="camel"):
    """The content of an event, before its ids are parsed."""

    amount: int | None = None
    currency: str | None = None
    checkout: str | None = None
    account: str | None = None
    period_start: str | None = None
    invoice: str | None = None
    reference: str | None = None


class PayprovMessage(Struct, frozen=True, rename="camel"):
    """An event as `payprov` sends it; unknown fields are ignored."""

    id: str
    type: str
    created_at: str
    data: PayprovData = PayprovData()


class Payprov:
    """The provider `payprov` of one process. `url` is its base URL, `secrets` the present secret and the one before."""

    name = "payprov"

    def __init__(self, url: str, secrets: Sequence[str], client: HttpClient | None = None) -> None:
        self._url = url.rstrip("/")
        self._secrets = tuple(secrets)
        self._client = client

    async def open_checkout(self, order: PaymentOrder) -> str:
        """Return the page's URL: the order in its query, signed, so that nobody can change the amount."""
        fields = {name: str(value) for name, value in order_fields(order).items() if value is not None}
        signature = signatures.sign(self._secrets[0], signed_order(fields), clock.now())
        return f"{self._url}/checkout?{urlencode(fields | {'signature': signature})}"

    async def charge(self, order: PaymentOrder) -> None:
        """Post the order, signed like an event."""
        if self._client is None:
            raise PaymentProviderUnavailable("this process can't reach the payment provider")
        body = orjson.dumps(order_fields(order))
        headers = {
            "Content-Type": "application/json",
            "Payprov-Signature": signatures.sign(self._secrets[0], body, clock.machine_now()),
        }
        url = yarl.URL(f"{self._url}/charges")
        answer = await self._client.post(url, body, headers, timeout_s=TIMEOUT_S, max_bytes=MAX_ANSWER)
        if isinstance(answer, HttpFailure):
            raise PaymentProviderUnavailable(str(answer))
        if answer.status >= 300:
            raise PaymentProviderUnavailable(f"the provider returned {answer.status}")

    def read_event(self, headers: Mapping[str, str], body: bytes, at: datetime) -> ProviderEvent:
        """Verify the signature over the raw body, then parse it."""
        signatures.verify(self._secrets, headers.get(HEADER), body, at)
        return event_of(body)


def signed_order(fields: Mapping[str, str]) -> bytes:
    """Return what the signature of a checkout's URL covers: its parameters by name, a line each, without encoding."""
    return "\n".join(f"{name}={fields[name]}" for name in sorted(fields)).encode()


def order_fields(order: PaymentOrder) -> dict[str, str | int | None]:
    """Return an order as `payprov` gets it."""
    return {
        "id": ids.format_id(Kind.CHECKOUT, order.id) if order.period_start is None else order.id.hex,
        "account": ids.format_id(Kind.ACCOUNT, order.account),
        "description": order.description,
        "amount": order.amount,
        "currency": order.currency,
        "email": order.email,
        "periodStart": clock.iso_or_none(order.period_start),
        "expiresAt": clock.iso_or_none(order.expires_at),
        "reference": order.reference,
    }


def event_of(body: bytes) -> ProviderEvent:
    """Return the event in a verified body. Raises UnusableEvent."""
    try:
        message = msgspec.json.decode(body, type=PayprovMessage)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnusableEvent(f"The body isn't an event: {error}") from None
    known = {"event": message.id[:_MAX_TEXT], "kind": message.type[:_MAX_TEXT]}
    if not 0 < len(message.id) <= _MAX_TEXT or "\0" in message.id:
        raise UnusableEvent(f"The event's `id` must have 1 to {_MAX_TEXT} characters.", **known)
    try:
        return _event(message)
    except ValueError as error:
        raise UnusableEvent(str(error), **known) from None


def _event(message: PayprovMessage) -> ProviderEvent:
    data = message.data
    if data.amount is not None and not 0 <= data.amount <= MAX_AMOUNT:
        raise ValueError(f"`amount` {data.amount} is out of range.")
    if data.currency is not None and not is_currency(data.currency):
        raise ValueError(f"`currency` {data.currency[:10]!r} is not a currency code.")
    return ProviderEvent(
        id=message.id,
        type=ProviderEventType(message.type),
        created_at=_time(message.created_at),
        amount=data.amount,
        currency=data.currency,
        checkout=_id(Kind.CHECKOUT, data.checkout),
        account=_id(Kind.ACCOUNT, data.account),
        period_start=None if data.period_start is None else _time(data.period_start),
        invoice=_id(Kind.INVOICE, data.invoice),
        reference=None if data.reference is None else data.reference[:_MAX_TEXT],
    )


def _id(kind: Kind, text: str | None) -> UUID | None:
    return None if text is None else ids.parse_id(kind, text)


def _time(text: str) -> datetime:
    found = msgspec.convert(text, datetime, strict=False)
    if found.tzinfo is None:
        raise ValueError(f"`{text[:40]}` lacks a time zone.")
    return found
