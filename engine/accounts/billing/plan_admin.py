"""Set the plan of accounts that do not pay here, and agree plans that are billed elsewhere; for the operator."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.accounts.billing import subscription_changes as subscriptions
from engine.accounts.billing.change_plan import STAMP, change_plan, keep_records
from engine.accounts.billing.configuration import Billing
from engine.accounts.billing.periods import BillingInterval
from engine.accounts.billing.types import HistoryEntry, HistoryType, PlanSubscription, SubscriptionStatus, Transition
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid, not_found
from engine.base.events import AccountEvent
from engine.base.plans import Plan
from engine.ledger.events import record_event
from engine.ledger.platform_log import OPERATOR
from engine.people.account import agreed_caps
from engine.store import caches
from engine.store.queries import Conn

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
                state=held.subscription.status.value,
            )
        changed = await change_plan(held.connection, account, plan, at, actor=actor)
    return PlanChange(plan, held.plan, changed)


async def agree(
    pool: asyncpg.Pool,
    billing: Billing,
    account: UUID,
    plan: Plan | None,
    caps: Mapping[str, int | None] | None = None,
    *,
    actor: str = OPERATOR,
) -> Plan:
    """Give an account a plan that the operator bills, in place of any subscription; None ends the agreement.

    `caps` are the limits to raise above the plan's (None: back to the plan's); others that were agreed stay, until the
    agreement ends. Returns the account's plan. Raises Refusal: 404, 400 for a limit below the plan's, 409 for a
    sub-account and if there is no agreement to end.
    """
    if plan is None and caps:
        raise invalid("caps", "`caps` raises limits of an agreed plan; this request ends the agreement. Give a `plan`.")
    at = clock.now()
    async with subscriptions.locked(pool, account) as held:
        row = await agreed_caps.read(held.connection, account)
        if row is None:
            raise not_found("account")
        if row.parent_id is not None:
            raise _below(row.parent_id)
        before = held.subscription
        if plan is None and (before is None or before.status is not SubscriptionStatus.AGREEMENT):
            status = "none" if before is None else before.status.value
            raise Refusal(ErrorType.INVALID_STATE, "The account has no agreement.", state=status)
        agreed = None if plan is None else _agreement(plan, at)
        kind = HistoryType.ENDED if agreed is None else HistoryType.CHANGED
        facts: dict[str, object] = {"agreement": True, "plan": Plan.FREE.value if plan is None else plan.value}
        transition = Transition(agreed, (HistoryEntry(kind, facts),))
        figures = {} if plan is None else agreed_caps.merged(row.figures, caps or {}, plan)
        await subscriptions.write(held, transition, at, billing=billing, actor=actor)
        await _agree_caps(held.connection, account, row.figures, figures, at, actor=actor)
    return transition.plan


async def _agree_caps(
    connection: Conn, account: UUID, before: dict[str, int], after: dict[str, int], at: datetime, *, actor: str
) -> None:
    """Store the agreed limits if they change; records that were kept by agreement stay for a while after it."""
    if after == before:
        return
    await agreed_caps.write(connection, account, after)
    if after.get("retention_days", 0) < before.get("retention_days", 0):
        await keep_records(connection, account, before["retention_days"], at)
    detail = {"before": before, "after": after}
    await record_event(connection, account, AccountEvent.ACCOUNT_LIMITS_AGREED, detail, actor=actor)
    await caches.bump(connection, STAMP)


def _below(parent: UUID) -> Refusal:
    name = ids.format_id(ids.Kind.ACCOUNT, parent)
    return Refusal(
        ErrorType.INVALID_STATE,
        f"This is a sub-account, which has the plan and the limits of its parent. Make the agreement with {name}.",
        parentId=name,
    )


def _agreement(plan: Plan, at: datetime) -> PlanSubscription:
    return PlanSubscription(
        plan=plan,
        status=SubscriptionStatus.AGREEMENT,
        interval=BillingInterval.MONTH,
        currency=_NO_CURRENCY,
        amount=0,
        anchor=at,
    )
