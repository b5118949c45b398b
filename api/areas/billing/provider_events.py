"""Receive the events of payment providers: signed over the raw body, answered 200 once they are recorded."""

from uuid import UUID

import msgspec

from api.areas.billing.schemas import EventTaken
from api.http.operation import Access, Area, Call, Handler, Operation
from engine.accounts.billing import payment_events
from engine.accounts.billing.providers.payprov import HEADER, PayprovMessage
from engine.accounts.billing.providers.protocol import BadSignature, PaymentProvider, UnusableEvent
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, existing
from engine.base.netaddr import network_of
from engine.store import rate_limits

MAX_EVENT_BYTES = 64 * 1024
_MAX_CLAIM = 200  # characters of a value that an unsigned notice claims


async def take(call: Call, body: bytes) -> EventTaken:
    """Verify and apply an event of the provider that the path names."""
    provider = existing(call.services.billing.providers.get(call.path["provider"]), "payment provider")
    return await _apply(call, body, provider)


async def take_payprov(call: Call, body: bytes) -> EventTaken:
    """Verify and apply an event of `payprov`; the outcome is that of the signed body, whatever the path says."""
    provider = existing(call.services.billing.providers.get("payprov"), "payment provider")
    return await _apply(call, body, provider)


async def take_refund_notice(call: Call, body: bytes) -> EventTaken:
    """Apply a signed refund; record an unsigned one, which moves nothing."""
    if call.request.get_header(HEADER) is not None:
        return await take_payprov(call, body)
    provider = existing(call.services.billing.providers.get("payprov"), "payment provider")
    await _count_unsigned(call)
    subject, claims = _claimed(body)
    await payment_events.note_refund(call.services.pool, provider, subject, claims=claims)
    return EventTaken()


def _claimed(body: bytes) -> tuple[UUID | None, dict[str, object]]:
    """Return the checkout or invoice that an unsigned notice names, None without one, and what it claims."""
    try:
        message = msgspec.json.decode(body, type=PayprovMessage)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None, {"unreadable": len(body)}
    data = message.data
    claims: dict[str, object] = {
        "amount": data.amount,
        "currency": None if data.currency is None else data.currency[:_MAX_CLAIM],
        "notice": message.id[:_MAX_CLAIM],
    }
    subject = _id(ids.Kind.CHECKOUT, data.checkout) or _id(ids.Kind.INVOICE, data.invoice)
    return subject, claims


async def _apply(call: Call, body: bytes, provider: PaymentProvider) -> EventTaken:
    headers = {name.lower(): value for name, value in call.request.headers.items()}
    at = clock.now()
    try:
        event = provider.read_event(headers, body, at)
    except BadSignature as error:
        raise Refusal(
            ErrorType.UNAUTHORIZED, f"{error} Sign the raw body with the secret of this installation."
        ) from None
    except UnusableEvent as problem:
        await payment_events.record_unusable(call.services.pool, provider, problem)
        return EventTaken()
    await payment_events.apply(call.services.pool, provider, event, call.services.billing, at=at)
    return EventTaken()


async def _count_unsigned(call: Call) -> None:
    """Count an unsigned request against the rate limit of its address; raises the 429 above it."""
    bucket = f"ip:{network_of(call.request.remote_addr)}"
    status = await call.services.limits.check(bucket, call.settings.unauthenticated_rate)
    if not status.allowed:
        raise rate_limits.refusal(status)


def _id(kind: ids.Kind, text: str | None) -> UUID | None:
    try:
        return None if text is None else ids.parse_id(kind, text)
    except ids.WrongId:
        return None


def _event(path: str, summary: str, handler: Handler) -> Operation:
    return Operation(
        "POST",
        path,
        handler,
        summary,
        _ANYONE,
        raw_body=True,
        max_body_bytes=MAX_EVENT_BYTES,
        refusals=(ErrorType.UNAUTHORIZED, ErrorType.NOT_FOUND),
    )


_ANYONE = Area("Billing", access=Access.NONE)

OPERATIONS = (
    _event("/v1/billing/{provider}/webhook", "Receive an event of a payment provider", take),
    _event("/v1/webhooks/payprov/success", "Receive an event of payprov", take_payprov),
    _event("/v1/webhooks/payprov/failed", "Receive an event of payprov about a failure", take_payprov),
    _event("/v1/webhooks/payprov/refund", "Receive an event of payprov about a refund", take_refund_notice),
)
