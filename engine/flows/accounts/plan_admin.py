"""Set the plan of accounts that do not pay here, and agree plans that are billed elsewhere; for the operator."""

from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.areas.billing.configuration import Billing
from engine.areas.billing.periods import BillingInterval
from engine.areas.billing.types import HistoryEntry, HistoryType, PlanSubscription, SubscriptionStatus, Transition
from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.plans import Plan
from engine.flows.accounts import subscriptions
from engine.flows.accounts.change_plan import change_plan
from engine.ledger.platform_log import OPERATOR

_NO_CURRENCY = "XXX"  # ISO 4217: no currency; the operator's own books have the price


class PlanChange(Struct, frozen=True):
    """The plan of an account before and after; `changed` is False if it was the same."""

    plan: Plan
    before: Plan
    changed: bool


async def set_plan(pool: asyncpg.Pool, account: UUID, plan: Plan, *, actor: str = OPERATOR) -> PlanChange:
    """Set the plan of an account that does not pay here. Raises Refusal: 404, or 409 while a subscription exists."""
    at = clock.now()
    async with subscriptions.locked(pool, account) as held:
        if held.subscription is not None:
            raise Refusal(
                ErrorType.INVALID_STATE,
                f"The account's plan follows its subscription ({held.subscription.status.value}). End that first: "
                "an agreement with `ops account agreement --end`; a paid one is canceled by the account's owner.",
                status=held.subscription.status.value,
            )
        changed = await change_plan(held.connection, account, plan, at, actor=actor)
    return PlanChange(plan, held.plan, changed)


async def agree(
    pool: asyncpg.Pool, billing: Billing, account: UUID, plan: Plan | None, *, actor: str = OPERATOR
) -> Plan:
    """Give an account a plan that the operator bills, in place of any subscription; None ends the agreement.

    Returns the account's plan. Raises Refusal: 404, or 409 if there is no agreement to end.
    """
    at = clock.now()
    async with subscriptions.locked(pool, account) as held:
        before = held.subscription
        if plan is None and (before is None or before.status is not SubscriptionStatus.AGREEMENT):
            status = "none" if before is None else before.status.value
            raise Refusal(ErrorType.INVALID_STATE, "The account has no agreement.", status=status)
        agreed = None if plan is None else _agreement(plan, at)
        kind = HistoryType.ENDED if agreed is None else HistoryType.CHANGED
        facts: dict[str, object] = {"agreement": True, "plan": Plan.FREE.value if plan is None else plan.value}
        transition = Transition(agreed, (HistoryEntry(kind, facts),))
        await subscriptions.write(held, transition, at, billing=billing, actor=actor)
    return transition.plan


def _agreement(plan: Plan, at: datetime) -> PlanSubscription:
    return PlanSubscription(
        plan=plan,
        status=SubscriptionStatus.AGREEMENT,
        interval=BillingInterval.MONTH,
        currency=_NO_CURRENCY,
        amount=0,
        anchor=at,
    )
