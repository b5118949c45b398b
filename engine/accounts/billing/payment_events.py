"""Apply the events of payment providers: each once, in the transaction of its effect, in whatever order they come.

An event that can't be used is recorded too, with the reason, and answered like any other: the provider must not send
it again and again. Only a bad signature is refused.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg
import msgspec
import structlog

from engine.accounts.billing import invoices, store
from engine.accounts.billing import subscription as changes
from engine.accounts.billing import subscription_changes as subscriptions
from engine.accounts.billing.change_plan import STAMP, tell_managers
from engine.accounts.billing.configuration import Billing
from engine.accounts.billing.money import formatted
from engine.accounts.billing.providers.protocol import PaymentProvider, UnusableEvent
from engine.accounts.billing.rows import CheckoutRow, InvoiceRow, RenewalChargeRow
from engine.accounts.billing.subscription_changes import LockedBilling
from engine.accounts.billing.types import HistoryType, ProviderEvent, ProviderEventType, SubscriptionStatus
from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.ids import Kind
from engine.ledger import billing_history
from engine.people.system_mail.types import SystemMailKind
from engine.store import caches
from engine.store.queries import Conn

APPLIED: Final = "applied"
WAITS: Final = "waits for the payment"  # a refund that came before it
REPEATED: Final = "repeated"
ACTOR: Final = "service"
MAX_NOTICES: Final = 10  # unsigned notices per day that are recorded for one checkout or invoice
_NOTHING: Final = UUID(int=0)  # the subject of notices about nothing known

_log = structlog.get_logger("billing")


async def apply(
    pool: asyncpg.Pool, provider: PaymentProvider, event: ProviderEvent, billing: Billing, *, at: datetime
) -> str:
    """Apply a verified event and return its effect: `applied`, `repeated`, or why it changed nothing."""
    if await store.IS_EVENT_KNOWN.records(pool, provider.name, event.id):  # so that copies do not queue for a lock
        return REPEATED
    account = await _account_of(pool, event)
    effect = "unknown account, checkout or invoice"
    async with pool.acquire() as connection, connection.transaction():
        held = None if account is None else await _locked(connection, account)
        if not await _is_new(connection, provider, event, account):
            return REPEATED
        if held is not None:
            effect = await _HANDLERS[event.type](held, event, billing, at)
        waiting = msgspec.json.encode(event).decode() if effect == WAITS else None
        await store.SET_EFFECT.execute(connection, provider.name, event.id, effect, waiting)
    caches.clear_here(STAMP)
    _log.info("payment event", provider=provider.name, event_id=event.id, type=event.type.value, effect=effect)
    return effect


async def record_unusable(pool: asyncpg.Pool, provider: PaymentProvider, problem: UnusableEvent) -> None:
    """Record a signed event whose content can't be used; one without an id leaves only a log line."""
    _log.warning("payment event unusable", provider=provider.name, event_id=problem.event, why=str(problem))
    if problem.event:
        await store.first_time(
            pool,
            provider.name,
            problem.event,
            kind=problem.kind,
            account=None,
            effect=str(problem),
            created_at=clock.now(),
        )


async def note_refund(
    pool: asyncpg.Pool, provider: PaymentProvider, subject: UUID | None, *, claims: dict[str, object]
) -> None:
    """Record an unsigned refund notice in the history of the checkout or invoice that it names; it moves nothing.

    One about nothing known is recorded as a payment event without an account. At most MAX_NOTICES a day are recorded of
    each checkout or invoice, and of those about nothing known together; the others are only counted.
    """
    at = clock.now()
    async with pool.acquire() as connection, connection.transaction():
        found = [] if subject is None else await store.SUBJECT.records(connection, subject)
        if await store.count_notice(connection, subject if found and subject else _NOTHING, at.date()) > MAX_NOTICES:
            return
        if found:
            event = (HistoryType.NOTICE_RECORDED, {"signed": False, **claims})
            await billing_history.append(connection, found[0]["account_id"], [event], at)
            return
        _log.warning("refund notice about nothing known", provider=provider.name, claims=claims)
        await store.first_time(
            connection,
            provider.name,
            f"unsigned-{ids.uuid7()}",  # not the id that it claims, which would hide the provider's own event
            kind=ProviderEventType.REFUND_SUCCEEDED.value,
            account=None,
            effect=f"unsigned, about nothing known: {msgspec.json.encode(claims).decode()}",
            created_at=at,
        )


async def _account_of(pool: asyncpg.Pool, event: ProviderEvent) -> UUID | None:
    if event.checkout is not None:
        checkout = await store.CHECKOUT.first(pool, event.checkout)
        return None if checkout is None else checkout.account_id
    if event.invoice is not None:
        invoice = await store.INVOICE_OF_ANY.first(pool, event.invoice, None)
        return None if invoice is None else invoice.account_id
    return event.account


async def _locked(connection: Conn, account: UUID) -> LockedBilling | None:
    try:
        return await subscriptions.lock(connection, account)
    except Refusal:  # erased meanwhile
        return None


async def _is_new(connection: Conn, provider: PaymentProvider, event: ProviderEvent, account: UUID | None) -> bool:
    return await store.first_time(
        connection,
        provider.name,
        event.id,
        kind=event.type.value,
        account=account,
        effect="",
        created_at=event.created_at,
    )


# -- checkouts ----------------------------------------------------------------------------------------


async def _checkout_succeeded(held: LockedBilling, event: ProviderEvent, billing: Billing, at: datetime) -> str:
    row = await _checkout(held, event)
    if row is None:
        return "unknown checkout"
    if row.status == "paid":
        return "the checkout was paid before"
    if (event.amount, event.currency) != (row.amount, row.currency):
        return _mismatch(row.amount, row.currency, event)
    if held.subscription is not None and held.subscription.status is SubscriptionStatus.AGREEMENT:
        return "the account has an agreement"
    paid_at = min(max(event.created_at, row.created_at), at)
    transition = changes.paid_checkout(held.subscription, row.wanted, row.credit, paid_at)
    await store.SET_CHECKOUT_STATUS.execute(held.connection, row.id, "paid")
    await billing_history.append(held.connection, held.account, [(HistoryType.CHECKOUT_PAID, _facts(row))], at)
    await subscriptions.write(
        held,
        transition,
        at,
        billing=billing,
        actor=ACTOR,
        charged=row.offered_tax,
        buyer=row.profile,
        provider=row.provider,
        reference=event.reference,
        payment=row.id,
    )
    await _apply_waiting_refunds(held, billing, at)
    return APPLIED


async def _checkout_failed(held: LockedBilling, event: ProviderEvent, _billing: Billing, at: datetime) -> str:
    row = await _checkout(held, event)
    if row is None:
        return "unknown checkout"
    if row.status != "open":
        return f"the checkout is {row.status}"
    await store.SET_CHECKOUT_STATUS.execute(held.connection, row.id, "failed")
    await billing_history.append(held.connection, held.account, [(HistoryType.CHECKOUT_FAILED, _facts(row))], at)
    return APPLIED


async def _checkout(held: LockedBilling, event: ProviderEvent) -> CheckoutRow | None:
    return None if event.checkout is None else await store.CHECKOUT.first(held.connection, event.checkout)


def _facts(row: CheckoutRow) -> dict[str, object]:
    return {
        "checkout": ids.format_id(Kind.CHECKOUT, row.id), "plan": row.plan, "interval": row.billing_interval,
        "amount": row.amount, "currency": row.currency,
    }  # fmt: skip


# -- renewals -----------------------------------------------------------------------------------------


async def _payment_succeeded(held: LockedBilling, event: ProviderEvent, billing: Billing, at: datetime) -> str:
    charge = await _charge(held, event)
    if charge is None:
        return "no payment was asked for this period"
    if charge.paid:
        return "the period was paid before"
    if (event.amount, event.currency) != (charge.amount, charge.currency):
        return _mismatch(charge.amount, charge.currency, event)
    await store.CHARGE_PAID.execute(held.connection, held.account, charge.period_start)
    transition = None
    if held.subscription is not None:
        transition = changes.paid_renewal(held.subscription, charge.period_start, event.created_at, at)
        if transition is None:
            transition = changes.keep_as_credit(held.subscription, charge.wanted, charge.credit)
    else:  # it came after the subscription had ended: a new one, without a renewal if its owner had canceled
        transition = changes.paid_checkout(None, charge.wanted, charge.credit, at)
        canceled = HistoryType.CANCELED.value
        if await store.HAPPENED_SINCE.records(held.connection, held.account, canceled, charge.period_start):
            transition = changes.then_canceled(transition)
    await subscriptions.write(
        held,
        transition,
        at,
        billing=billing,
        actor=ACTOR,
        charged=charge.offered_tax,
        buyer=charge.profile,
        reference=event.reference,
        payment=charge.id,
    )
    await _apply_waiting_refunds(held, billing, at)
    return APPLIED


async def _payment_failed(held: LockedBilling, event: ProviderEvent, billing: Billing, at: datetime) -> str:
    charge = await _charge(held, event)
    if charge is None or held.subscription is None:
        return "no payment was asked for this period"
    if charge.paid or charge.period_start != held.subscription.current.end:
        return "a newer payment went through"
    transition = changes.failed_payment(held.subscription, event.created_at, at)
    if transition is None:
        return "a newer payment went through"
    await subscriptions.write(held, transition, at, billing=billing, actor=ACTOR)
    ends_at = held.subscription.current.end + changes.GRACE
    await tell_managers(
        held.connection,
        held.account,
        SystemMailKind.PAYMENT_FAILED,
        at,
        plan=held.subscription.plan.value.capitalize(),
        amount=formatted(charge.amount, charge.currency),
        ends_on=f"{ends_at:%d %B %Y, %H:%M} UTC",
    )
    return APPLIED


async def _canceled(held: LockedBilling, event: ProviderEvent, billing: Billing, at: datetime) -> str:
    subscription = held.subscription
    if subscription is None or subscription.status is SubscriptionStatus.AGREEMENT:
        return "there is no subscription"
    if subscription.paid_at is not None and event.created_at < subscription.paid_at:
        return "a newer payment went through"
    await subscriptions.write(held, changes.canceled_by_provider(subscription), at, billing=billing, actor=ACTOR)
    return APPLIED


async def _charge(held: LockedBilling, event: ProviderEvent) -> RenewalChargeRow | None:
    if event.period_start is None:
        return None
    return await store.CHARGE.first(held.connection, held.account, event.period_start)


# -- refunds ------------------------------------------------------------------------------------------


async def _refunded(held: LockedBilling, event: ProviderEvent, _billing: Billing, at: datetime) -> str:
    invoice, is_unpaid = await _refunded_invoice(held, event)
    if is_unpaid:
        return WAITS
    if invoice is None or invoice.kind != "invoice":
        return "unknown invoice"
    return await _refund(held, invoice, event, at)


async def _refunded_invoice(held: LockedBilling, event: ProviderEvent) -> tuple[InvoiceRow | None, bool]:
    """Return the invoice that a refund names, or the one of the payment that it names; True if that is to come yet."""
    if event.invoice is not None:
        return await store.INVOICE.first(held.connection, held.account, event.invoice), False
    payment = event.checkout
    if payment is None:
        charge = await _charge(held, event)
        payment = None if charge is None else charge.id
    if payment is None:
        return None, False
    invoice = await store.INVOICE_OF_PAYMENT.first(held.connection, payment)
    return invoice, invoice is None


async def _apply_waiting_refunds(held: LockedBilling, billing: Billing, at: datetime) -> None:
    """Apply the refunds that came before their payments, which are applied now."""
    for row in await store.WAITING_EVENTS.records(held.connection, held.account):
        event = msgspec.json.decode(row["waiting"], type=ProviderEvent)
        effect = await _refunded(held, event, billing, at)
        if effect != WAITS:
            await store.SET_EFFECT.execute(held.connection, row["provider"], row["event_id"], effect, None)


async def _refund(held: LockedBilling, invoice: InvoiceRow, event: ProviderEvent, at: datetime) -> str:
    before = await store.refunded(held.connection, invoice.number)
    amount = event.amount if event.refunded_in_all is None else event.refunded_in_all - before
    left = invoice.total - before
    if event.currency != invoice.currency or not amount or not 0 < amount <= left:
        return _mismatch(left, invoice.currency, event)
    noted = {"invoice": ids.format_id(Kind.INVOICE, invoice.id), "amount": amount, "currency": event.currency}
    await billing_history.append(held.connection, held.account, [(HistoryType.REFUND_NOTED, noted)], at)
    await invoices.credit(held.connection, invoice, amount, at)
    if amount == left:
        await store.MARK_REFUNDED.execute(held.connection, invoice.id)
    return APPLIED


def _mismatch(amount: int, currency: str, event: ProviderEvent) -> str:
    given = "nothing" if event.amount is None else formatted(event.amount, event.currency or "???")
    return f"expected {formatted(amount, currency)}, got {given}"


_Handler = Callable[[LockedBilling, ProviderEvent, Billing, datetime], Awaitable[str]]
_HANDLERS: Final[dict[ProviderEventType, _Handler]] = {
    ProviderEventType.CHECKOUT_SUCCEEDED: _checkout_succeeded,
    ProviderEventType.CHECKOUT_FAILED: _checkout_failed,
    ProviderEventType.PAYMENT_SUCCEEDED: _payment_succeeded,
    ProviderEventType.PAYMENT_FAILED: _payment_failed,
    ProviderEventType.SUBSCRIPTION_CANCELED: _canceled,
    ProviderEventType.REFUND_SUCCEEDED: _refunded,
}
