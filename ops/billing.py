"""Implementation of `ops account plan|agreement|billing|invoice`, also for operators who bill elsewhere."""

from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from engine.areas.billing import store
from engine.areas.billing.configuration import configured
from engine.areas.billing.money import formatted
from engine.areas.billing.periods import BillingInterval
from engine.areas.billing.rows import InvoiceRow
from engine.areas.billing.types import HistoryEntry, HistoryType, PlanSubscription, SubscriptionStatus, Transition
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.plans import Plan
from engine.base.settings import Settings
from engine.flows.accounts import invoices, subscriptions
from engine.flows.accounts.change_plan import change_plan
from engine.ledger import billing_history

ACTOR = "operator"
_NO_CURRENCY = "XXX"  # ISO 4217: no currency; the operator's own books have the price


async def set_plan(pool: asyncpg.Pool, *, account: str, plan: Plan) -> dict[str, Any]:
    """Set the plan of an account that does not pay here. Raises Refusal: 404, or 409 while a subscription exists."""
    account_id = ids.parse_id(ids.Kind.ACCOUNT, account)
    at = clock.now()
    async with subscriptions.locked(pool, account_id) as held:
        if held.subscription is not None:
            raise Refusal(
                ErrorType.INVALID_STATE,
                f"The account's plan follows its subscription ({held.subscription.status.value}). End that first: "
                "`ops account agreement --end` for an agreement; a paid one is canceled by the account's owner.",
            )
        changed = await change_plan(held.connection, account_id, plan, at, actor=ACTOR)
    return {"accountId": account, "plan": plan.value, "before": held.plan.value, "changed": changed}


async def agree(pool: asyncpg.Pool, settings: Settings, *, account: str, plan: Plan | None) -> dict[str, Any]:
    """Give an account a plan that the operator bills, in place of any subscription; None ends the agreement."""
    account_id = ids.parse_id(ids.Kind.ACCOUNT, account)
    at = clock.now()
    async with subscriptions.locked(pool, account_id) as held:
        before = held.subscription
        if plan is None and (before is None or before.status is not SubscriptionStatus.AGREEMENT):
            raise Refusal(ErrorType.INVALID_STATE, "The account has no agreement.")
        agreed = None if plan is None else _agreement(plan, at)
        kind = HistoryType.ENDED if agreed is None else HistoryType.CHANGED
        facts: dict[str, object] = {"agreement": True, "plan": Plan.FREE.value if plan is None else plan.value}
        transition = Transition(agreed, (HistoryEntry(kind, facts),))
        await subscriptions.write(held, transition, at, billing=configured(settings), actor=ACTOR)
    return {"accountId": account, "plan": transition.plan.value, "agreement": agreed is not None}


async def shown(pool: asyncpg.Pool, *, account: str) -> dict[str, Any]:
    """Return an account's subscription, invoices and the verification of its history; also of an erased account."""
    account_id = ids.parse_id(ids.Kind.ACCOUNT, account)
    row = await store.READ.first(pool, account_id)
    verdict = await billing_history.verify(pool, account_id)
    found = await store.INVOICES.fetch(pool, account_id, None, 1_000)
    events = await store.EVENTS_OF.records(pool, account_id, 20)
    return {
        "accountId": account,
        "subscription": None if row is None else _subscription(row.subscription),
        "invoices": [_line(one) for one in found],
        "history": {"valid": verdict.valid, "brokenAt": verdict.broken_at, "reason": verdict.reason},
        "paymentEvents": [
            {"id": one["event_id"], "provider": one["provider"], "type": one["type"], "effect": one["effect"],
             "receivedAt": clock.iso(one["received_at"])}
            for one in events
        ],
    }  # fmt: skip


async def invoice(pool: asyncpg.Pool, *, name: str, out: Path | None) -> dict[str, Any]:
    """Write the PDF of any account's invoice, by id (inv_…) or number. Raises Refusal (404)."""
    row = await store.INVOICE_OF_ANY.first(pool, _invoice_id(name), name)
    if row is None:
        raise not_found("invoice")
    target = out or Path(f"{row.number}.pdf")
    target.write_bytes(await invoices.pdf(pool, row))
    return _line(row) | {"accountId": ids.format_id(ids.Kind.ACCOUNT, row.account_id), "file": str(target)}


def _agreement(plan: Plan, at: datetime) -> PlanSubscription:
    return PlanSubscription(
        plan=plan,
        status=SubscriptionStatus.AGREEMENT,
        interval=BillingInterval.MONTH,
        currency=_NO_CURRENCY,
        amount=0,
        anchor=at,
    )


def _invoice_id(name: str) -> UUID | None:
    try:
        return ids.parse_id(ids.Kind.INVOICE, name)
    except ids.WrongId:
        return None


def _subscription(held: PlanSubscription) -> dict[str, Any]:
    if held.status is SubscriptionStatus.AGREEMENT:
        return {"status": held.status.value, "plan": held.plan.value}
    return {
        "status": held.status.value,
        "plan": held.plan.value,
        "price": f"{formatted(held.amount, held.currency)} a {held.interval.value}",
        "periodEnd": clock.iso(held.current.end),
        "cancelAtPeriodEnd": held.cancel_at_period_end,
        "pauseAtPeriodEnd": held.pause_at_period_end,
        "pendingPlan": None if held.pending is None else held.pending.plan.value,
    }


def _line(row: InvoiceRow) -> dict[str, Any]:
    return {
        "id": ids.format_id(ids.Kind.INVOICE, row.id),
        "number": row.number,
        "kind": row.kind,
        "status": row.status,
        "issuedAt": clock.iso(row.issued_at),
        "total": formatted(row.total, row.currency),
    }
