"""Open and abandon checkouts: the offers that people pay for at the payment provider."""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
import msgspec
import orjson
import structlog
from msgspec import Struct

from engine.accounts.billing import profile_rules, store
from engine.accounts.billing import subscription as changes
from engine.accounts.billing import subscription_changes as subscriptions
from engine.accounts.billing.configuration import Billing
from engine.accounts.billing.prices import FOR_SALE, PlanPrice
from engine.accounts.billing.providers.protocol import PaymentProvider, PaymentProviderUnavailable
from engine.accounts.billing.rows import BillingProfileRow, CheckoutRow
from engine.accounts.billing.subscription_changes import LockedBilling
from engine.accounts.billing.types import HistoryType, PlanSubscription, SubscriptionStatus
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid, unavailable
from engine.base.ids import Kind
from engine.ledger import billing_history
from engine.store.database_clock import new_id

LIFETIME: Final = timedelta(hours=24)

_log = structlog.get_logger("billing")


class OpenedCheckout(Struct, frozen=True):
    """The answer to a wish for a plan: a checkout to be paid, or the time from which a smaller plan holds."""

    wanted: PlanPrice
    checkout: CheckoutRow | None = None
    url: str | None = None
    effective_at: datetime | None = None


async def open_checkout(
    pool: asyncpg.Pool,
    account: UUID,
    plan: str,
    interval: str,
    profile: BillingProfileRow,
    *,
    billing: Billing,
    actor: str,
) -> OpenedCheckout:
    """Open a checkout for a larger plan, or schedule a smaller one for the end of the period.

    The same wish again returns the same checkout; another one replaces it. Raises 503 if nothing is for sale or the
    provider does not answer, 400 for a plan that is not for sale, 403 for sub-accounts, 409 for the present plan.
    """
    checked = profile_rules.checked(profile)
    at = clock.now()
    async with subscriptions.locked(pool, account) as held:
        await _refuse_sub_account(held)
        wanted = _wanted(billing, held.subscription, plan, interval)
        _refuse_present(held.subscription, wanted)
        await _store_profile(held, checked, at)
        if held.subscription is not None and _waits(held.subscription, wanted):
            withdrawn = _is_present(held.subscription, wanted)
            transition = changes.schedule_change(held.subscription, None if withdrawn else wanted)
            await subscriptions.write(held, transition, at, billing=billing, actor=actor)
            return OpenedCheckout(wanted, effective_at=held.subscription.current.end)
        row = await _opened(held, wanted, checked, at, billing, actor)
    return OpenedCheckout(wanted, row, await _url(pool, row, _provider(billing)))


async def abandon(pool: asyncpg.Pool, account: UUID, *, actor: str) -> None:
    """Abandon the open checkout, if there is one. A payment that arrives all the same counts."""
    at = clock.now()
    async with subscriptions.locked(pool, account) as held:
        row = await store.OPEN_CHECKOUT.first(held.connection, account)
        if row is not None:
            await store.SET_CHECKOUT_STATUS.execute(held.connection, row.id, "abandoned")
            await _record(held, HistoryType.CHECKOUT_ABANDONED, row, at, actor)


async def change_profile(pool: asyncpg.Pool, account: UUID, changed: dict[str, str | None]) -> BillingProfileRow:
    """Change the given fields of the billing profile; invoices that were issued stay as they are."""
    at = clock.now()
    async with subscriptions.locked(pool, account) as held:
        await _refuse_sub_account(held)
        stored = await store.PROFILE.first(held.connection, account)
        merged = profile_rules.merged(stored, changed)
        await _store_profile(held, merged, at)
    return merged


async def _refuse_sub_account(held: LockedBilling) -> None:
    found = await store.ACCOUNT.first(held.connection, held.account)
    if found is not None and found.parent_id is not None:
        raise Refusal(
            ErrorType.FORBIDDEN, "A sub-account has the plan of its parent account. Change the plan there.", scope=None
        )


def _wanted(billing: Billing, held: PlanSubscription | None, plan: str, interval: str) -> PlanPrice:
    if plan not in FOR_SALE:
        raise invalid("plan", f"The plan `{plan}` is not for sale. Choose one of: {', '.join(FOR_SALE)}.")
    if not billing.sells:
        raise Refusal(
            ErrorType.UNAVAILABLE,
            "This instance doesn't sell plans. Ask its operator for one.",
        )
    if held is not None and held.status is SubscriptionStatus.AGREEMENT:
        raise subscriptions.by_agreement()
    currency = billing.prices.currencies()[0] if held is None else held.currency
    price = billing.prices.find(plan, interval, currency)
    if price is None:
        raise invalid(
            "interval",
            f"The plan `{plan}` isn't sold per {interval} in {currency}. Choose another `interval` or `currency`.",
        )
    return price


def _is_present(held: PlanSubscription, wanted: PlanPrice) -> bool:
    return (held.plan, held.interval) == (wanted.plan, wanted.interval)


def _waits(held: PlanSubscription, wanted: PlanPrice) -> bool:
    """Return True if the change takes effect at the end of the paid period, without a payment now."""
    return held.status is SubscriptionStatus.ACTIVE and not changes.is_larger(wanted, held)


def _refuse_present(held: PlanSubscription | None, wanted: PlanPrice) -> None:
    if held is None or held.status is not SubscriptionStatus.ACTIVE or held.pending is not None:
        return
    if _is_present(held, wanted):
        raise Refusal(
            ErrorType.INVALID_STATE,
            f"You already have the plan `{wanted.plan.value}`, billed per {wanted.interval.value}. Choose another one.",
            state=held.status.value,
        )


async def _store_profile(held: LockedBilling, profile: BillingProfileRow, at: datetime) -> None:
    before = await store.PROFILE.first(held.connection, held.account)
    if before == profile:
        return
    await store.PUT_PROFILE.execute(held.connection, held.account, *msgspec.structs.astuple(profile), at)
    names = [name for name in profile.__struct_fields__ if getattr(before, name, None) != getattr(profile, name)]
    facts: dict[str, object] = {"fields": profile_rules.wire_names(names)}
    await billing_history.append(held.connection, held.account, [(HistoryType.PROFILE_CHANGED, facts)], at)


async def _opened(
    held: LockedBilling, wanted: PlanPrice, buyer: BillingProfileRow, at: datetime, billing: Billing, actor: str
) -> CheckoutRow:
    """Return the open checkout for this wish, or insert one in place of what is open."""
    text = orjson.dumps(msgspec.to_builtins(buyer)).decode()
    present = await store.OPEN_CHECKOUT.first(held.connection, held.account)
    if present is not None:
        same = present.wanted == wanted and present.profile == buyer
        if same and present.expires_at > at:
            return present
        await store.SET_CHECKOUT_STATUS.execute(held.connection, present.id, "replaced")
        await _record(held, HistoryType.CHECKOUT_ABANDONED, present, at, actor)
    credit = changes.credit_offered(wanted, held.subscription, at)
    tax = subscriptions.taxed(billing, wanted.amount - credit, buyer)
    row = CheckoutRow(
        id=await new_id(held.connection),
        account_id=held.account,
        plan=wanted.plan.value,
        billing_interval=wanted.interval.value,
        currency=wanted.currency,
        price=wanted.amount,
        credit=credit,
        tax=tax.tax,
        tax_rate=tax.rate,
        reverse_charge=tax.reverse_charge,
        amount=wanted.amount - credit + tax.tax,
        buyer=text,
        status="open",
        provider=_provider(billing).name,
        url=None,
        created_at=at,
        expires_at=at + LIFETIME,
    )
    await store.insert_checkout(held.connection, row)
    await _record(held, HistoryType.CHECKOUT_STARTED, row, at, actor)
    return row


async def _url(pool: asyncpg.Pool, row: CheckoutRow, provider: PaymentProvider) -> str:
    """Return the checkout's page; ask the provider for it outside of any transaction, once."""
    if row.url is not None:
        return row.url
    try:
        url = await provider.open_checkout(row.order(expires_at=row.expires_at))
    except PaymentProviderUnavailable as error:
        _log.warning("checkout page not opened", checkout=ids.format_id(Kind.CHECKOUT, row.id), error=str(error))
        raise unavailable() from error
    await store.SET_CHECKOUT_URL.execute(pool, row.id, url)
    return url


def _provider(billing: Billing) -> PaymentProvider:
    assert billing.provider is not None
    return billing.provider


async def _record(held: LockedBilling, kind: HistoryType, row: CheckoutRow, at: datetime, actor: str) -> None:
    facts: dict[str, object] = {
        "checkout": ids.format_id(Kind.CHECKOUT, row.id), "plan": row.plan, "interval": row.billing_interval,
        "amount": row.amount, "currency": row.currency, "actor": actor,
    }  # fmt: skip
    await billing_history.append(held.connection, held.account, [(kind, facts)], at)
