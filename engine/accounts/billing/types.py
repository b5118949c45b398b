"""Define checkouts, subscriptions, invoices and the events of payment providers."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from engine.accounts.billing.periods import BillingInterval, BillingPeriod, period
from engine.accounts.billing.prices import PlanPrice
from engine.base.plans import Plan


class SubscriptionStatus(StrEnum):
    """The state of a subscription; an account without one is `free`."""

    ACTIVE = "active"
    PAST_DUE = "past_due"  # the running period is not paid for; the plan stays for the grace period
    PAUSED = "paused"  # the account has the Free plan until it pays for a new period
    AGREEMENT = "agreement"  # billed by the operator, outside this service


class HistoryType(StrEnum):
    """The types of events in an account's billing history."""

    CHECKOUT_STARTED = "checkout.started"
    CHECKOUT_ABANDONED = "checkout.abandoned"
    CHECKOUT_PAID = "checkout.paid"
    CHECKOUT_FAILED = "checkout.failed"
    STARTED = "subscription.started"
    RENEWED = "subscription.renewed"
    CHANGED = "subscription.changed"
    CANCELED = "subscription.canceled"
    PAUSED = "subscription.paused"
    RESUMED = "subscription.resumed"
    ENDED = "subscription.ended"
    PAYMENT_FAILED = "payment.failed"
    INVOICE_ISSUED = "invoice.issued"
    REFUND_NOTED = "refund.noted"
    PROFILE_CHANGED = "profile.changed"
    NOTICE_RECORDED = "notice.recorded"


class PlanSubscription(Struct, frozen=True, kw_only=True):
    """The subscription of an account; amounts in minor units, without tax.

    Period `number` of those that begin at `anchor` is the current one. `credit` is left over from unused time and is
    spent on the next invoices. `next_paid`: the next period was paid before it began. `pending`: the price from the
    next period on. `paid_at`: the time of the newest payment, by the provider's clock.
    """

    plan: Plan
    status: SubscriptionStatus
    interval: BillingInterval
    currency: str
    amount: int
    anchor: datetime
    number: int = 0
    credit: int = 0
    cancel_at_period_end: bool = False
    pause_at_period_end: bool = False
    next_paid: bool = False
    pending: PlanPrice | None = None
    paid_at: datetime | None = None

    @property
    def current(self) -> BillingPeriod:
        """Return the current period."""
        return period(self.anchor, self.interval, self.number)

    @property
    def following(self) -> BillingPeriod:
        """Return the period after the current one; a pending interval begins with it."""
        if self.pending is not None and self.pending.interval != self.interval:
            return period(self.current.end, self.pending.interval, 0)
        return period(self.anchor, self.interval, self.number + 1)

    @property
    def renewal(self) -> PlanPrice:
        """Return the plan and price of the next period."""
        return self.pending or PlanPrice(self.plan, self.interval, self.currency, self.amount)

    @property
    def entitled(self) -> Plan:
        """Return the plan whose limits hold for the account."""
        return Plan.FREE if self.status is SubscriptionStatus.PAUSED else self.plan


class HistoryEntry(Struct, frozen=True):
    """An event to be appended to an account's billing history."""

    type: HistoryType
    payload: dict[str, object]


class InvoiceLine(Struct, frozen=True):
    """A line of an invoice; `amount` is net, in minor units, negative for a credit."""

    description: str
    amount: int


class InvoiceDraft(Struct, frozen=True):
    """An invoice before it has a number: what is charged for which period, without tax."""

    plan: Plan
    interval: BillingInterval
    currency: str
    period: BillingPeriod
    lines: tuple[InvoiceLine, ...]

    @property
    def subtotal(self) -> int:
        """Return the sum of the lines."""
        return sum(line.amount for line in self.lines)


class Transition(Struct, frozen=True):
    """The result of an event for a subscription; None where it has ended."""

    subscription: PlanSubscription | None
    history: tuple[HistoryEntry, ...] = ()
    invoice: InvoiceDraft | None = None

    @property
    def plan(self) -> Plan:
        """Return the plan whose limits hold for the account from now on."""
        return Plan.FREE if self.subscription is None else self.subscription.entitled


class ProviderEventType(StrEnum):
    """The events of payment providers, in the words of `payprov`; other providers' events are mapped to them."""

    CHECKOUT_SUCCEEDED = "checkout.succeeded"
    CHECKOUT_FAILED = "checkout.failed"
    PAYMENT_SUCCEEDED = "payment.succeeded"
    PAYMENT_FAILED = "payment.failed"
    SUBSCRIPTION_CANCELED = "subscription.canceled"
    REFUND_SUCCEEDED = "refund.succeeded"


class ProviderEvent(Struct, frozen=True, kw_only=True):
    """An event whose signature was verified.

    `checkout`: of checkout events. `account` and `period_start`: of payments for later periods.
    A refund names an `invoice`, or the payment by `checkout` or period; its amount is that of this refund, or
    `refunded_in_all`. `reference` is the provider's own name for the payer, to be charged again.
    """

    id: str
    type: ProviderEventType
    created_at: datetime
    amount: int | None = None
    refunded_in_all: int | None = None
    currency: str | None = None
    checkout: UUID | None = None
    account: UUID | None = None
    period_start: datetime | None = None
    invoice: UUID | None = None
    reference: str | None = None
