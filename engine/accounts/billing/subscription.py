"""Decide how a subscription changes: at a payment, at the wish of its owner, at the end of a period. Pure.

Every function returns the Transition for the caller to write in one transaction. Times are aware, UTC.
"""

from datetime import datetime, timedelta
from typing import Final

from msgspec import structs

from engine.accounts.billing.money import formatted
from engine.accounts.billing.periods import BillingPeriod, unused_credit
from engine.accounts.billing.prices import PlanPrice
from engine.accounts.billing.types import (
    HistoryEntry,
    HistoryType,
    InvoiceDraft,
    InvoiceLine,
    PlanSubscription,
    SubscriptionStatus,
    Transition,
)
from engine.base import clock
from engine.base.plans import Plan

GRACE: Final = timedelta(days=7)  # an unpaid plan stays so long after the end of the last paid period
# Providers charge at the end of a period and need minutes to say so; only then is the next one called past due.
PAYMENT_TIME: Final = timedelta(hours=1)

_RANK: Final = {plan: number for number, plan in enumerate(Plan)}


def is_larger(wanted: PlanPrice, held: PlanSubscription) -> bool:
    """Return True if a change takes effect at payment: a larger plan, or from month to year on the same plan."""
    if wanted.plan != held.plan:
        return _RANK[wanted.plan] > _RANK[held.plan]
    return wanted.interval.months > held.interval.months


def credit_offered(wanted: PlanPrice, held: PlanSubscription | None, at: datetime) -> int:
    """Return the credit for unused time that a checkout at `at` takes off the price."""
    return 0 if held is None else min(_credit_at(held, at), wanted.amount)


def paid_checkout(held: PlanSubscription | None, wanted: PlanPrice, credit: int, at: datetime) -> Transition:
    """Begin a new period at the payment of a checkout that took `credit` off the price when it was opened.

    Credit that has come since then, from a renewal in between, is kept for the next invoices.
    """
    left = 0 if held is None else max(0, _credit_at(held, at) - credit)
    subscription = PlanSubscription(
        plan=wanted.plan,
        status=SubscriptionStatus.ACTIVE,
        interval=wanted.interval,
        currency=wanted.currency,
        amount=wanted.amount,
        anchor=at,
        credit=left,
        paid_at=at,
    )
    kind = HistoryType.STARTED if held is None else HistoryType.CHANGED
    draft = _draft(wanted, subscription.current, credit)
    return Transition(subscription, (_entry(kind, subscription),), draft)


def paid_renewal(held: PlanSubscription, period_start: datetime, paid_at: datetime, at: datetime) -> Transition | None:
    """Record the payment of the next period.

    None if the subscription is neither active nor past due, if the next period is paid already, or if `period_start` is
    not its start.
    """
    if held.status not in (SubscriptionStatus.ACTIVE, SubscriptionStatus.PAST_DUE):
        return None
    if period_start != held.current.end or held.next_paid:
        return None
    newest = paid_at if held.paid_at is None else max(held.paid_at, paid_at)
    paid = structs.replace(held, next_paid=True, paid_at=newest)
    draft = _draft(held.renewal, held.following, held.credit)
    if at < held.current.end:
        return Transition(paid, (), draft)
    moved = _next_period(paid)
    return Transition(moved, (_entry(HistoryType.RENEWED, moved),), draft)


def keep_as_credit(held: PlanSubscription, paid: PlanPrice, credit: int) -> Transition:
    """Keep a payment for a period that a change of plan replaced: as credit for the next invoices, and invoiced."""
    changed = structs.replace(held, credit=held.credit + paid.amount - credit)
    line = InvoiceLine("Payment received in advance, kept as credit", paid.amount - credit)
    draft = InvoiceDraft(paid.plan, paid.interval, paid.currency, held.current, (line,))
    return Transition(changed, (_entry(HistoryType.CHANGED, changed, credit=changed.credit),), draft)


def failed_payment(held: PlanSubscription, failed_at: datetime, at: datetime) -> Transition | None:
    """Record that the next period could not be charged; None if a newer payment went through, or none is due."""
    if held.status not in (SubscriptionStatus.ACTIVE, SubscriptionStatus.PAST_DUE) or held.next_paid:
        return None
    if held.paid_at is not None and failed_at <= held.paid_at:
        return None
    ended = at >= held.current.end
    changed = structs.replace(held, status=SubscriptionStatus.PAST_DUE) if ended else held
    ends_at = held.current.end + GRACE
    return Transition(changed, (_entry(HistoryType.PAYMENT_FAILED, changed, endsAt=clock.iso(ends_at)),))


def schedule_change(held: PlanSubscription, wanted: PlanPrice | None) -> Transition:
    """Change plan or interval at the end of the period; None withdraws a change that was scheduled."""
    changed = structs.replace(held, pending=wanted)
    if changed == held:
        return Transition(held)
    return Transition(changed, (_entry(HistoryType.CHANGED, changed, effectiveAt=clock.iso(held.current.end)),))


def cancel(held: PlanSubscription) -> Transition:
    """Cancel at the end of the paid period; a subscription that is not paid for ends at once."""
    if held.status is not SubscriptionStatus.ACTIVE:
        return Transition(None, (_entry(HistoryType.CANCELED, held), _entry(HistoryType.ENDED, held)))
    if held.cancel_at_period_end:
        return Transition(held)
    changed = structs.replace(held, cancel_at_period_end=True, pause_at_period_end=False)
    return Transition(changed, (_entry(HistoryType.CANCELED, changed, effectiveAt=clock.iso(_paid_until(held))),))


def pause(held: PlanSubscription) -> Transition:
    """Pause at the end of the paid period; a subscription that is not paid for is paused at once."""
    if held.status is SubscriptionStatus.PAUSED or held.pause_at_period_end:
        return Transition(held)
    if held.status is SubscriptionStatus.PAST_DUE:
        paused = structs.replace(held, status=SubscriptionStatus.PAUSED)
        return Transition(paused, (_entry(HistoryType.PAUSED, paused),))
    changed = structs.replace(held, pause_at_period_end=True, cancel_at_period_end=False)
    return Transition(changed, (_entry(HistoryType.PAUSED, changed, effectiveAt=clock.iso(_paid_until(held))),))


def resume(held: PlanSubscription) -> Transition:
    """Withdraw a cancellation or pause that has not taken effect; a paused subscription needs a payment instead."""
    if not (held.cancel_at_period_end or held.pause_at_period_end):
        return Transition(held)
    changed = structs.replace(held, cancel_at_period_end=False, pause_at_period_end=False)
    return Transition(changed, (_entry(HistoryType.RESUMED, changed),))


def then_canceled(transition: Transition) -> Transition:
    """Cancel the subscription that a transition leads to at the end of its paid period."""
    assert transition.subscription is not None
    canceled = cancel(transition.subscription)
    return structs.replace(canceled, history=transition.history + canceled.history, invoice=transition.invoice)


def canceled_by_provider(held: PlanSubscription) -> Transition:
    """End the subscription like its owner's cancellation: the provider will not charge again."""
    return cancel(held)


def at_period_end(held: PlanSubscription, at: datetime) -> Transition:
    """Return what the end of a period brings, if it has come by `at`; apply it until nothing changes."""
    end = held.current.end
    if at < end or held.status in (SubscriptionStatus.PAUSED, SubscriptionStatus.AGREEMENT):
        return Transition(held)
    if held.next_paid:
        moved = _next_period(held)
        return Transition(moved, (_entry(HistoryType.RENEWED, moved),))
    if held.cancel_at_period_end:
        return Transition(None, (_entry(HistoryType.ENDED, held),))
    if held.pause_at_period_end:
        paused = structs.replace(held, status=SubscriptionStatus.PAUSED, pause_at_period_end=False)
        return Transition(paused, (_entry(HistoryType.PAUSED, paused),))
    if charge_due(held) == 0:
        moved = _next_period(held)
        return Transition(
            moved, (_entry(HistoryType.RENEWED, moved),), _draft(held.renewal, held.following, held.credit)
        )
    if at >= end + GRACE:
        return Transition(None, (_entry(HistoryType.ENDED, held),))
    if held.status is SubscriptionStatus.ACTIVE and at >= end + PAYMENT_TIME:
        return Transition(structs.replace(held, status=SubscriptionStatus.PAST_DUE))
    return Transition(held)


def charge_due(held: PlanSubscription) -> int:
    """Return the net amount that the next period costs after the credit."""
    return held.renewal.amount - min(held.credit, held.renewal.amount)


def next_look(held: PlanSubscription, at: datetime) -> datetime | None:
    """Return when `at_period_end` next has something to decide; None if never."""
    if held.status in (SubscriptionStatus.PAUSED, SubscriptionStatus.AGREEMENT):
        return None
    end = held.current.end
    if held.status is SubscriptionStatus.PAST_DUE:
        return end + GRACE
    return end if at < end else end + PAYMENT_TIME


def _next_period(held: PlanSubscription) -> PlanSubscription:
    price = held.renewal
    following = held.following
    same_length = price.interval == held.interval
    return structs.replace(
        held,
        plan=price.plan,
        status=SubscriptionStatus.ACTIVE,
        interval=price.interval,
        currency=price.currency,
        amount=price.amount,
        anchor=held.anchor if same_length else following.start,
        number=held.number + 1 if same_length else 0,
        credit=_left(price, held.credit),
        next_paid=False,
        pending=None,
    )


def _credit_at(held: PlanSubscription, at: datetime) -> int:
    """Return the credit at a change: the rest of paid time, and what is left of earlier credit."""
    unused = 0 if held.status is not SubscriptionStatus.ACTIVE else unused_credit(held.amount, held.current, at)
    if not held.next_paid:
        return unused + held.credit
    return unused + held.renewal.amount + _left(held.renewal, held.credit)


def _draft(price: PlanPrice, covered: BillingPeriod, credit: int) -> InvoiceDraft:
    lines = [InvoiceLine(f"Waybill {price.plan.value.capitalize()}, one {price.interval.value}", price.amount)]
    spent = min(credit, price.amount)
    if spent:
        lines.append(InvoiceLine("Credit for unused time", -spent))
    return InvoiceDraft(price.plan, price.interval, price.currency, covered, tuple(lines))


def _left(price: PlanPrice, credit: int) -> int:
    return credit - min(credit, price.amount)


def _paid_until(held: PlanSubscription) -> datetime:
    return held.following.end if held.next_paid else held.current.end


def _entry(kind: HistoryType, subscription: PlanSubscription, **more: object) -> HistoryEntry:
    price = formatted(subscription.amount, subscription.currency)
    facts = {"plan": subscription.plan.value, "interval": subscription.interval.value, "price": price}
    return HistoryEntry(kind, facts | more)
