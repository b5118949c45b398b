"""Requests and replies of billing. Amounts are integers in minor units of `currency`; times are ISO 8601, UTC."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from engine.accounts.billing import profile_rules
from engine.ledger.billing_history import MAX_PAGE

Digest = Annotated[str, Meta(description="SHA-256 in lower-case hex")]
Amount = Annotated[int, Meta(description="Minor units, such as 1900 for EUR 19.00")]
Currency = Annotated[str, Meta(description="ISO 4217", examples=["EUR"])]
Country = Annotated[str, Meta(min_length=2, max_length=2, description="ISO 3166-1 alpha-2", examples=["DE"])]
LegalName = Annotated[str, Meta(min_length=1, max_length=profile_rules.MAX_NAME, description="Name on invoices")]
PostalAddress = Annotated[str, Meta(max_length=profile_rules.MAX_ADDRESS, description="Lines divided by line feeds")]
TaxId = Annotated[str, Meta(max_length=profile_rules.MAX_TAX_ID, description="VAT id; checked by its form in the EU")]
BillingEmail = Annotated[str, Meta(max_length=profile_rules.MAX_EMAIL)]
PaidPlan = Annotated[str, Meta(max_length=20, description="`starter`, `growth` or `scale`", examples=["starter"])]


class BillingProfile(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Name, address and tax id of the buyer on the account's invoices."""

    legal_name: LegalName
    country: Country
    address: PostalAddress | None = None
    tax_id: TaxId | None = None
    email: BillingEmail | None = None


class BillingProfileChange(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The fields to change, for `PATCH /v1/billing/profile`: an omitted field stays, null removes a value."""

    legal_name: LegalName | UnsetType = UNSET
    country: Country | UnsetType = UNSET
    address: PostalAddress | UnsetType | None = UNSET
    tax_id: TaxId | UnsetType | None = UNSET
    email: BillingEmail | UnsetType | None = UNSET


class NewCheckout(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The wish for a plan, for `POST /v1/billing/checkout`."""

    plan: PaidPlan
    profile: BillingProfile
    interval: Literal["month", "year"] = "month"


class Checkout(Struct, rename="camel", kw_only=True):
    """An offer to be paid at `url` until `expiresAt`; or, with a null `url`, a change that holds from `effectiveAt`."""

    id: str | None
    url: str | None
    plan: str
    interval: str
    amount: Annotated[Amount | None, Meta(description="To be paid, with tax and after the credit for unused time")]
    currency: Currency
    expires_at: str | None
    effective_at: str | None = None


class PendingPlan(Struct, rename="camel", kw_only=True):
    """The plan from the next period on."""

    plan: str
    interval: str
    amount: Amount
    effective_at: str


class PlanOffer(Struct, rename="camel", kw_only=True):
    """A plan for sale; `amount` is without tax."""

    plan: str
    interval: str
    currency: Currency
    amount: Amount


class BillingState(Struct, rename="camel", kw_only=True):
    """The account's subscription: null amounts and periods without one."""

    plan: str
    status: Literal["free", "active", "past_due", "paused", "agreement"]
    interval: str | None
    amount: Annotated[Amount | None, Meta(description="Of one period, without tax")]
    currency: Currency | None
    current_period_start: str | None
    current_period_end: str | None
    cancel_at_period_end: bool
    pause_at_period_end: bool
    pending_plan: PendingPlan | None
    credit: Annotated[Amount, Meta(description="Left over from unused time, for the next invoices")]
    checkout: Annotated[Checkout | None, Meta(description="The open checkout")]
    profile: BillingProfile | None
    prices: Annotated[list[PlanOffer], Meta(description="Plans for sale; empty if this installation sells none")]


class PlanCapOut(Struct):
    """A limit of a plan; `resource` is the name that `plan_limit_reached` errors give, `limit` null is unlimited."""

    resource: str
    limit: int | None


class PlanPriceShown(Struct, rename="camel"):
    """A price of a plan for one period, without tax."""

    interval: str
    currency: Currency
    amount: Amount


class PlanOverview(Struct, rename="camel", kw_only=True):
    """A plan with its limits and, where it is for sale, its prices. `current`: the account has this plan."""

    plan: str
    current: bool
    monthly_limit: Annotated[int, Meta(description="Messages per calendar month (UTC)")]
    requests_per_second: int
    retention_days: int
    schedule_days: int
    analytics_days: int
    limits: list[PlanCapOut]
    prices: list[PlanPriceShown]


class PlanList(Struct):
    """The plans, the smallest first."""

    data: list[PlanOverview]


class BillingHistoryQuery(Struct, forbid_unknown_fields=True):
    """The query of the history: oldest first."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    after: (
        Annotated[str, Meta(max_length=20, description="`nextCursor` of the previous page: a `seq`", examples=["120"])]
        | None
    ) = None


class BillingEvent(Struct, rename="camel"):
    """An event as it was hashed: `payload` and `occurredAt` are the exact texts that went into the hash."""

    seq: int
    type: str
    occurred_at: str
    payload: str
    hash: Digest
    prev_hash: Digest


class BillingChain(Struct, rename="camel"):
    """The verification of the whole chain; `brokenAt` is the first event that does not fit."""

    valid: bool
    broken_at: int | None
    reason: str | None


class BillingHistoryPage(Struct, rename="camel"):
    """Events, oldest first. `nextCursor` is null on the last page."""

    chain: BillingChain
    data: list[BillingEvent]
    next_cursor: str | None


class InvoicesQuery(Struct, forbid_unknown_fields=True):
    """The query of a page, newest first."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    before: Annotated[str, Meta(max_length=40, description="`nextCursor` of the previous page")] | None = None


class InvoiceLineOut(Struct, rename="camel"):
    """A line of an invoice; `amount` is without tax, negative for a credit."""

    description: str
    amount: Amount


class Invoice(Struct, rename="camel", kw_only=True):
    """An invoice or credit note. Issued documents never change; `status` becomes `refunded` after a full refund."""

    id: str
    number: str
    kind: Literal["invoice", "credit_note"]
    status: Literal["paid", "refunded"]
    issued_at: str
    period_start: str
    period_end: str
    plan: str
    interval: str
    currency: Currency
    subtotal: Amount
    tax: Amount
    total: Amount
    tax_rate: Annotated[str, Meta(description="Decimal fraction", examples=["0.19"])]
    reverse_charge: bool
    corrects: Annotated[str | None, Meta(description="Number of the invoice that a credit note corrects")]
    lines: list[InvoiceLineOut]


class InvoicePage(Struct, rename="camel"):
    """Invoices, newest first. `nextCursor` is null on the last page."""

    data: list[Invoice]
    next_cursor: str | None


class EventTaken(Struct, rename="camel"):
    """The event was taken; sending it again changes nothing."""

    received: bool = True
