"""Implementation of `ops account plan|agreement|billing|invoice`, also for operators who bill elsewhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import to_builtins

from engine.accounts.billing import invoices, plan_admin, store
from engine.accounts.billing.configuration import configured
from engine.accounts.billing.money import formatted
from engine.accounts.billing.rows import InvoiceRow
from engine.accounts.billing.types import PlanSubscription, SubscriptionStatus
from engine.base import clock, ids
from engine.base.errors import not_found
from engine.base.plans import Plan
from engine.base.settings import Settings
from engine.ledger import billing_history
from engine.people.account import agreed_caps


async def set_plan(pool: asyncpg.Pool, *, account: str, plan: Plan) -> dict[str, Any]:
    """Set the plan of an account that does not pay here. Raises Refusal: 404, or 409 while a subscription exists."""
    done = await plan_admin.set_plan(pool, ids.parse_id(ids.Kind.ACCOUNT, account), plan)
    return {"accountId": account, "plan": done.plan.value, "before": done.before.value, "changed": done.changed}


async def agree(
    pool: asyncpg.Pool, settings: Settings, *, account: str, plan: Plan | None, caps: Mapping[str, int | None]
) -> dict[str, Any]:
    """Give an account a plan that the operator bills, with raised limits; None ends the agreement and its limits."""
    await plan_admin.agree(pool, configured(settings), ids.parse_id(ids.Kind.ACCOUNT, account), plan, caps)
    return await agreement(pool, account=account)


async def agreement(pool: asyncpg.Pool, *, account: str) -> dict[str, Any]:
    """Return the plan of an account, whether it was agreed, and the agreed limits (null: the plan's)."""
    account_id = ids.parse_id(ids.Kind.ACCOUNT, account)
    row, billed = await agreed_caps.read(pool, account_id), await store.READ.first(pool, account_id)
    if row is None:
        raise not_found("account")
    is_agreed = billed is not None and billed.subscription.status is SubscriptionStatus.AGREEMENT
    caps = agreed_caps.shown(row)
    return {"accountId": account, "plan": row.plan, "agreement": is_agreed, "caps": caps and to_builtins(caps)}


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
