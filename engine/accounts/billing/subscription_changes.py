"""Write how a subscription changed, with all that follows: plan, history, invoice, mail. One transaction.

Whoever changes a subscription locks the account's head first (`locked`), so two changes of one account never overlap.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.accounts.billing import invoices, store, tax
from engine.accounts.billing import subscription as changes
from engine.accounts.billing.change_plan import STAMP, change_plan
from engine.accounts.billing.configuration import Billing
from engine.accounts.billing.rows import BillingProfileRow, SubscriptionRow
from engine.accounts.billing.tax import TaxDecision
from engine.accounts.billing.types import PlanSubscription, SubscriptionStatus, Transition
from engine.base import clock
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.plans import Plan
from engine.ledger import billing_history, heads
from engine.store import caches
from engine.store.queries import Conn


class LockedBilling(Struct, frozen=True):
    """An account in a transaction that holds its head, with its subscription as stored."""

    connection: Conn
    account: UUID
    plan: Plan
    row: SubscriptionRow | None

    @property
    def subscription(self) -> PlanSubscription | None:
        """Return the subscription, None without one."""
        return None if self.row is None else self.row.subscription


@asynccontextmanager
async def locked(pool: asyncpg.Pool, account: UUID) -> AsyncIterator[LockedBilling]:
    """Run a transaction that may change the account's subscription; raise the 404 for an account that was erased."""
    async with pool.acquire() as connection, connection.transaction():
        yield await lock(connection, account)
    caches.clear_here(STAMP)


async def lock(connection: Conn, account: UUID) -> LockedBilling:
    """Lock the account's head and read its subscription; raise the 404 for an account that was erased."""
    found = await heads.lock(connection, [account])
    if account not in found:
        raise not_found("account")
    return LockedBilling(connection, account, Plan(found[account].plan), await store.READ.first(connection, account))


async def write(
    held: LockedBilling,
    transition: Transition,
    at: datetime,
    *,
    billing: Billing,
    actor: str,
    charged: TaxDecision | None = None,
    buyer: BillingProfileRow | None = None,
    provider: str | None = None,
    reference: str | None = None,
    payment: UUID | None = None,
) -> None:
    """Write a transition. `charged`, `buyer`, `payment`: the tax and profile that were offered, and what was paid."""
    connection, account = held.connection, held.account
    if transition.subscription is None:
        await store.DELETE.execute(connection, account)
    elif transition.subscription != held.subscription or reference is not None:
        await store.put(connection, account, transition.subscription, at, provider=provider, reference=reference)
    await billing_history.append(connection, account, [(one.type, one.payload) for one in transition.history], at)
    draft = transition.invoice
    if draft is not None and billing.seller is not None:
        buyer = buyer or await profile_of(connection, account)
        decided = charged or taxed(billing, draft.subtotal, buyer)
        await invoices.issue(
            connection, account, draft, decided, seller=billing.seller, buyer=buyer, payment=payment, at=at
        )
    if transition.subscription != held.subscription:
        await change_plan(connection, account, transition.plan, at, actor=actor)


def taxed(billing: Billing, net: int, buyer: BillingProfileRow) -> TaxDecision:
    """Return the tax that a buyer pays on a net amount."""
    country = None if billing.seller is None else billing.seller.country
    return tax.decide(net, rates=billing.rates, seller_country=country, country=buyer.country, tax_id=buyer.tax_id)


async def profile_of(connection: Conn, account: UUID) -> BillingProfileRow:
    """Return the billing profile of an account; one that was erased is named by its id alone."""
    found = await store.PROFILE.first(connection, account)
    return found or BillingProfileRow(f"Account {account}", "", None, None, None)


async def request_change(pool: asyncpg.Pool, account: UUID, what: str, *, billing: Billing, actor: str) -> Transition:
    """Cancel, pause or resume the subscription: `what` is the verb. Repeating changes nothing.

    Raises 409 `invalid_state` without a subscription, and for one that the operator bills.
    """
    at = clock.now()
    async with locked(pool, account) as held:
        subscription = held.subscription
        if subscription is None:
            raise no_subscription()
        if subscription.status is SubscriptionStatus.AGREEMENT:
            raise by_agreement()
        decide = {"cancel": changes.cancel, "pause": changes.pause, "resume": changes.resume}[what]
        transition = decide(subscription)
        await write(held, transition, at, billing=billing, actor=actor)
    return transition


def no_subscription() -> Refusal:
    """Return the 409 for a change of a subscription that the account does not have."""
    return Refusal(
        ErrorType.INVALID_STATE,
        "You have no subscription. Buy a plan with POST /v1/billing/checkout.",
        state=Plan.FREE.value,
    )


def by_agreement() -> Refusal:
    """Return the 409 for an account that the operator bills outside the service."""
    return Refusal(
        ErrorType.INVALID_STATE,
        "Your plan was agreed with the operator of this instance. Ask them to change it.",
        state=SubscriptionStatus.AGREEMENT.value,
    )
