"""End billing periods and ask for the payment of the next ones; several workers may do it at once."""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
import msgspec
import orjson
import structlog

from engine.accounts.billing import store
from engine.accounts.billing import subscription as changes
from engine.accounts.billing import subscription_changes as subscriptions
from engine.accounts.billing.configuration import Billing
from engine.accounts.billing.providers.protocol import PaymentProviderUnavailable
from engine.accounts.billing.rows import RenewalChargeRow
from engine.accounts.billing.subscription_changes import LockedBilling
from engine.accounts.billing.types import PlanSubscription, SubscriptionStatus
from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.store.jobs import Job

BATCH: Final = 100
ACTOR: Final = "service"
RETRY_AFTER: Final = timedelta(minutes=15)  # a provider that does not answer is asked again
MAX_STEPS: Final = 200  # periods that one run ends for an account, after an outage of years

_log = structlog.get_logger("billing")


async def end_due(pool: asyncpg.Pool, billing: Billing) -> int:
    """Look at every subscription whose period has ended; return their number."""
    at = clock.now()
    rows = await store.DUE.records(pool, at, BATCH)
    for row in rows:
        try:
            await end_period(pool, row["account_id"], at, billing)
        except Refusal:  # erased meanwhile; its rows go with it
            continue
    return len(rows)


async def end_period(pool: asyncpg.Pool, account: UUID, at: datetime, billing: Billing) -> None:
    """End the periods of one account that are over, and ask for the payment of the next one if it is due."""
    async with subscriptions.locked(pool, account) as held:
        for _ in range(MAX_STEPS):
            before = held.subscription
            if before is None:
                return
            transition = changes.at_period_end(before, at)
            if transition.subscription == before:
                break
            await subscriptions.write(held, transition, at, billing=billing, actor=ACTOR)
            held = await subscriptions.lock(held.connection, account)  # noqa: PLW2901 - as it is stored now
        await _ask(held, at, billing)


async def charge_due(pool: asyncpg.Pool, billing: Billing) -> int:
    """Ask the provider for the payments that are due; return how many it took."""
    if billing.provider is None:
        return 0
    at = clock.now()
    taken = 0
    for row in await store.DUE_CHARGES.fetch(pool, at, BATCH, at + RETRY_AFTER):
        held = await store.READ.first(pool, row.account_id)
        try:
            reference = None if held is None else held.reference
            await billing.provider.charge(row.order(period_start=row.period_start, reference=reference))
        except PaymentProviderUnavailable as error:
            _log.warning("renewal not asked for", charge=str(row.id), tries=row.tries, error=str(error))
            continue
        await store.CHARGE_TAKEN.execute(pool, row.id)
        taken += 1
    return taken


def job(billing: Billing) -> Job:
    """Return the job that ends periods, then asks for the payments that are due."""

    async def run(pool: asyncpg.Pool, _: Settings) -> None:
        await end_due(pool, billing)
        await charge_due(pool, billing)

    return Job("billing", every_s=10, run=run)


async def _ask(held: LockedBilling, at: datetime, billing: Billing) -> None:
    """Queue the request for the next period's payment, once it has begun, and store when to look again."""
    subscription = held.subscription
    if subscription is None:
        return
    await store.put(held.connection, held.account, subscription, at, provider=None, reference=None)
    if not _wants_payment(subscription, at):
        return
    price, buyer = subscription.renewal, await subscriptions.profile_of(held.connection, held.account)
    credit = min(subscription.credit, price.amount)
    tax = subscriptions.taxed(billing, price.amount - credit, buyer)
    row = RenewalChargeRow(
        account_id=held.account,
        period_start=subscription.current.end,
        id=ids.uuid7(),
        plan=price.plan.value,
        billing_interval=price.interval.value,
        currency=price.currency,
        price=price.amount,
        credit=credit,
        tax=tax.tax,
        tax_rate=tax.rate,
        reverse_charge=tax.reverse_charge,
        amount=price.amount - credit + tax.tax,
        buyer=orjson.dumps(msgspec.to_builtins(buyer)).decode(),
        paid=False,
        tries=0,
        due_at=at,
    )
    await store.insert_charge(held.connection, row)


def _wants_payment(subscription: PlanSubscription, at: datetime) -> bool:
    return (
        subscription.status in (SubscriptionStatus.ACTIVE, SubscriptionStatus.PAST_DUE)
        and at >= subscription.current.end
        and not subscription.next_paid
        and not subscription.cancel_at_period_end
        and not subscription.pause_at_period_end
    )
