"""Billing as the API shows it."""

import msgspec

from api.areas.billing.schemas import (
    BillingEvent,
    BillingProfile,
    BillingState,
    Checkout,
    Invoice,
    InvoiceLineOut,
    PendingPlan,
    PlanCapOut,
    PlanOffer,
    PlanOverview,
    PlanPriceShown,
)
from engine.accounts.billing.checkout import OpenedCheckout
from engine.accounts.billing.prices import PriceList
from engine.accounts.billing.rows import BillingProfileRow, CheckoutRow, InvoiceRow
from engine.accounts.billing.types import InvoiceLine, PlanSubscription, SubscriptionStatus
from engine.base import clock, ids
from engine.base.ids import Kind
from engine.base.plans import CAPS, Plan
from engine.ledger.billing_history import BillingEventRow
from engine.people.account import rules as account_rules


def state_of(
    plan: str,
    held: PlanSubscription | None,
    checkout: CheckoutRow | None,
    profile: BillingProfileRow | None,
    prices: PriceList,
) -> BillingState:
    """Return the account's billing."""
    is_paid = held is not None and held.status is not SubscriptionStatus.AGREEMENT
    return BillingState(
        plan=plan,
        status="free" if held is None else held.status.value,
        interval=held.interval.value if held is not None and is_paid else None,
        amount=held.amount if held is not None and is_paid else None,
        currency=held.currency if held is not None and is_paid else None,
        current_period_start=clock.iso(held.current.start) if held is not None and is_paid else None,
        current_period_end=clock.iso(held.current.end) if held is not None and is_paid else None,
        cancel_at_period_end=held is not None and held.cancel_at_period_end,
        pause_at_period_end=held is not None and held.pause_at_period_end,
        pending_plan=None if held is None else _pending(held),
        credit=0 if held is None else held.credit,
        checkout=None if checkout is None else checkout_of(checkout, checkout.url),
        profile=None if profile is None else profile_of(profile),
        prices=[
            PlanOffer(plan=p.plan, interval=p.interval, currency=p.currency, amount=p.amount) for p in prices.prices
        ],
    )


def checkout_of(row: CheckoutRow, url: str | None) -> Checkout:
    """Return a checkout with the page on which it can be paid."""
    return Checkout(
        id=ids.format_id(Kind.CHECKOUT, row.id),
        url=url,
        plan=row.plan,
        interval=row.billing_interval,
        amount=row.amount,
        currency=row.currency,
        expires_at=clock.iso(row.expires_at),
    )


def opened(answer: OpenedCheckout) -> Checkout:
    """Return the answer to a wish for a plan."""
    if answer.checkout is not None:
        return checkout_of(answer.checkout, answer.url)
    wanted = answer.wanted
    return Checkout(
        id=None,
        url=None,
        plan=wanted.plan.value,
        interval=wanted.interval.value,
        amount=None,
        currency=wanted.currency,
        expires_at=None,
        effective_at=clock.iso_or_none(answer.effective_at),
    )


def profile_of(row: BillingProfileRow) -> BillingProfile:
    """Return a billing profile."""
    return BillingProfile(
        legal_name=row.legal_name, country=row.country, address=row.address, tax_id=row.tax_id, email=row.email
    )


def invoice_of(row: InvoiceRow) -> Invoice:
    """Return an invoice."""
    lines = msgspec.json.decode(row.lines, type=list[InvoiceLine])
    return Invoice(
        id=ids.format_id(Kind.INVOICE, row.id),
        number=row.number,
        kind="credit_note" if row.kind == "credit_note" else "invoice",
        status="refunded" if row.status == "refunded" else "paid",
        issued_at=clock.iso(row.issued_at),
        period_start=clock.iso(row.period_start),
        period_end=clock.iso(row.period_end),
        plan=row.plan,
        interval=row.billing_interval,
        currency=row.currency,
        subtotal=row.subtotal,
        tax=row.tax,
        total=row.total,
        tax_rate=row.tax_rate,
        reverse_charge=row.reverse_charge,
        corrects=row.corrects,
        lines=[InvoiceLineOut(line.description, line.amount) for line in lines],
    )


def event_of(row: BillingEventRow, previous: bytes) -> BillingEvent:
    """Return an event of the history; `previous` is the hash of the event before it."""
    return BillingEvent(row.seq, row.type, clock.iso(row.occurred_at), row.payload, row.hash.hex(), previous.hex())


def plan_of(plan: Plan, held: str, prices: PriceList) -> PlanOverview:
    """Return a plan with its limits and prices; `held` is the plan of the account."""
    caps = CAPS[plan]
    return PlanOverview(
        plan=plan.value,
        current=plan.value == held,
        monthly_limit=caps.monthly_emails,
        requests_per_second=caps.requests_per_second,
        retention_days=caps.retention_days,
        schedule_days=caps.schedule_days,
        analytics_days=caps.analytics_days,
        limits=[
            PlanCapOut(cap.resource, cap.limit)
            for cap in account_rules.shown_caps(caps, monthly_limit=caps.monthly_emails, below=False)
        ],
        prices=[PlanPriceShown(one.interval, one.currency, one.amount) for one in prices.prices if one.plan == plan],
    )


def _pending(held: PlanSubscription) -> PendingPlan | None:
    if held.pending is None:
        return None
    return PendingPlan(
        plan=held.pending.plan.value,
        interval=held.pending.interval.value,
        amount=held.pending.amount,
        effective_at=clock.iso(held.current.end),
    )
