"""Define the rows of the billing area, and turn them into the types that its rules use."""

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import Struct

from engine.accounts.billing.periods import BillingInterval
from engine.accounts.billing.prices import PlanPrice
from engine.accounts.billing.providers.protocol import PaymentOrder
from engine.accounts.billing.tax import TaxDecision
from engine.accounts.billing.types import PlanSubscription, SubscriptionStatus
from engine.base.plans import Plan


class SubscriptionRow(Struct, frozen=True):
    """The subscription of an account as stored."""

    account_id: UUID
    plan: str
    status: str
    billing_interval: str
    currency: str
    amount: int
    anchor: datetime
    number: int
    credit: int
    cancel_at_period_end: bool
    pause_at_period_end: bool
    next_paid: bool
    pending_plan: str | None
    pending_interval: str | None
    pending_amount: int | None
    paid_at: datetime | None
    look_at: datetime | None
    provider: str | None
    reference: str | None

    @classmethod
    def of(
        cls,
        account: UUID,
        held: PlanSubscription,
        look_at: datetime | None,
        provider: str | None,
        reference: str | None,
    ) -> "SubscriptionRow":
        """Return the row of a subscription."""
        pending = held.pending
        return cls(
            account_id=account,
            plan=held.plan.value,
            status=held.status.value,
            billing_interval=held.interval.value,
            currency=held.currency,
            amount=held.amount,
            anchor=held.anchor,
            number=held.number,
            credit=held.credit,
            cancel_at_period_end=held.cancel_at_period_end,
            pause_at_period_end=held.pause_at_period_end,
            next_paid=held.next_paid,
            pending_plan=None if pending is None else pending.plan.value,
            pending_interval=None if pending is None else pending.interval.value,
            pending_amount=None if pending is None else pending.amount,
            paid_at=held.paid_at,
            look_at=look_at,
            provider=provider,
            reference=reference,
        )

    @property
    def subscription(self) -> PlanSubscription:
        """Return the subscription."""
        return PlanSubscription(
            plan=Plan(self.plan),
            status=SubscriptionStatus(self.status),
            interval=BillingInterval(self.billing_interval),
            currency=self.currency,
            amount=self.amount,
            anchor=self.anchor,
            number=self.number,
            credit=self.credit,
            cancel_at_period_end=self.cancel_at_period_end,
            pause_at_period_end=self.pause_at_period_end,
            next_paid=self.next_paid,
            pending=self._pending,
            paid_at=self.paid_at,
        )

    @property
    def _pending(self) -> PlanPrice | None:
        if self.pending_plan is None or self.pending_interval is None or self.pending_amount is None:
            return None
        interval = BillingInterval(self.pending_interval)
        return PlanPrice(Plan(self.pending_plan), interval, self.currency, self.pending_amount)


class BillingProfileRow(Struct, frozen=True):
    """The buyer's name and address on invoices; also stored as JSON with checkouts and invoices."""

    legal_name: str
    country: str
    address: str | None
    tax_id: str | None
    email: str | None


class OfferRow(Struct, frozen=True):
    """A sum to be paid for one period of a plan, as stored; `buyer` is JSON text."""

    id: UUID
    account_id: UUID
    plan: str
    billing_interval: str
    currency: str
    price: int
    credit: int
    tax: int
    tax_rate: str
    reverse_charge: bool
    amount: int
    buyer: str

    @property
    def wanted(self) -> PlanPrice:
        """Return the plan and its price."""
        return PlanPrice(Plan(self.plan), BillingInterval(self.billing_interval), self.currency, self.price)

    @property
    def offered_tax(self) -> TaxDecision:
        """Return the tax in the amount."""
        return TaxDecision(self.tax_rate, self.tax, self.reverse_charge)

    @property
    def profile(self) -> BillingProfileRow:
        """Return the buyer as of the offer."""
        return msgspec.json.decode(self.buyer, type=BillingProfileRow)

    def order(
        self, *, period_start: datetime | None = None, expires_at: datetime | None = None, reference: str | None = None
    ) -> PaymentOrder:
        """Return the offer as the provider gets it."""
        return PaymentOrder(
            id=self.id,
            account=self.account_id,
            description=f"Waybill {self.plan.capitalize()}, one {self.billing_interval}",
            amount=self.amount,
            currency=self.currency,
            email=self.profile.email,
            period_start=period_start,
            expires_at=expires_at,
            reference=reference,
        )


class CheckoutRow(OfferRow, frozen=True):
    """A checkout as stored."""

    status: str
    provider: str
    url: str | None
    created_at: datetime
    expires_at: datetime


class RenewalChargeRow(OfferRow, frozen=True):
    """The request to charge one period, as stored."""

    period_start: datetime
    paid: bool
    tries: int
    due_at: datetime | None


class InvoiceRow(Struct, frozen=True):
    """An issued invoice or credit note without its PDF; `lines`, `seller` and `buyer` are JSON text."""

    id: UUID
    account_id: UUID
    number: str
    kind: str
    status: str
    issued_at: datetime
    period_start: datetime
    period_end: datetime
    plan: str
    billing_interval: str
    currency: str
    subtotal: int
    tax: int
    total: int
    tax_rate: str
    reverse_charge: bool
    lines: str
    seller: str
    buyer: str
    corrects: str | None
    payment: UUID | None = None


class BillingAccountRow(Struct, frozen=True):
    """The facts of an account that billing decides by."""

    plan: str
    status: str
    parent_id: UUID | None
