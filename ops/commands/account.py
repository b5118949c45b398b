"""`ops account`: create, list, show, suspend and resume accounts; plans, agreements, billing and invoices."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import click
import msgspec
from msgspec import Struct, to_builtins

from engine.accounts import account_admin
from engine.accounts.billing import invoices, plan_admin, store
from engine.accounts.billing.configuration import configured
from engine.accounts.billing.money import formatted
from engine.accounts.billing.rows import InvoiceRow
from engine.accounts.billing.types import PlanSubscription, SubscriptionStatus
from engine.base import clock, ids
from engine.base.errors import not_found
from engine.base.plans import AGREEABLE, IN_DAYS, MAX_AGREED, MAX_AGREED_DAYS, Plan
from engine.base.settings import Settings
from engine.ledger import billing_history
from engine.people.account import agreed_caps
from ops import admin
from ops.commands.base import as_json, fail, in_database, in_service, limit_option, reported, show

_account_id = click.argument("account_id", metavar="ACCOUNT_ID", help="Id of the account (acc_…).")


def _raised_caps(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each limit that an agreement can raise."""
    for name in reversed(AGREEABLE):
        most = MAX_AGREED_DAYS if name in IN_DAYS else MAX_AGREED
        words = f"Agreed limit of {name.replace('_', ' ')}; 0: the plan's."
        command = click.option(f"--{name.replace('_', '-')}", type=click.IntRange(0, most), help=words)(command)
    return command


@click.group()
def account() -> None:
    """Create, list, show, suspend and resume accounts; their plans, agreements, billing, invoices and retention."""


@account.command("create")
@click.option("--name", required=True, help="Name of the account.")
@click.option("--email", required=True, help="Email address of the owner.")
@click.option(
    "--plan", type=click.Choice([plan.value for plan in Plan]), default=Plan.FREE.value, show_default=True,
    help="Plan of the account.",
)  # fmt: skip
@click.option(
    "--daily-cap",
    type=click.IntRange(min=0),
    help="Agreed messages per day, instead of the warm-up limit of new accounts.",
)
@click.option(
    "--monthly-cap",
    type=click.IntRange(min=0),
    help="Agreed messages per month, instead of the plan's; never lowers the limit of Enterprise.",
)
@as_json
@reported
def account_create(
    *, name: str, email: str, plan: str, daily_cap: int | None, monthly_cap: int | None, as_json: bool
) -> None:
    """Create an account and print its owner's password, once."""
    made = in_database(
        admin.create_account, name=name, email=email, plan=Plan(plan), daily_cap=daily_cap, monthly_cap=monthly_cap
    )
    show(made, as_json=as_json)


@account.command("plan")
@_account_id
@click.option(
    "--plan", required=True, type=click.Choice([plan.value for plan in Plan]), help="New plan of the account."
)
@as_json
@reported
def account_plan(*, account_id: str, plan: str, as_json: bool) -> None:
    """Set the plan of an account that has no subscription; its limits apply at once, nothing is deleted."""
    show(in_database(set_plan, account=account_id, plan=Plan(plan)), as_json=as_json)


@account.command("agreement")
@_account_id
@click.option("--plan", type=click.Choice([plan.value for plan in Plan]), help="Agreed plan.")
@click.option("--end", is_flag=True, help="End the agreement and its limits; the account then has the Free plan.")
@_raised_caps
@as_json
@reported
def account_agreement(*, account_id: str, plan: str | None, end: bool, as_json: bool, **caps: int | None) -> None:
    """Agree a plan that is billed outside of Waybill, and limits above it. Without options: show the agreement."""
    changes = {name: figure or None for name, figure in caps.items() if figure is not None}
    if end and (plan or changes):
        fail("Give --end without other options.")
    if changes and plan is None:
        fail("Give the agreed plan too: --plan PLAN.")
    if plan is None and not end:
        found = in_database(agreement, account=account_id)
        show(found, as_json=as_json)
        return
    agreed = None if plan is None else Plan(plan)
    show(in_service(agree, account=account_id, plan=agreed, caps=changes), as_json=as_json)


@account.command("billing")
@_account_id
@as_json
@reported
def account_billing(*, account_id: str, as_json: bool) -> None:
    """Show an account's subscription, invoices, payment events and the verification of its billing history."""
    show(in_database(billing_of, account=account_id), as_json=as_json)


@account.command("invoice")
@click.argument("invoice", metavar="INVOICE", help="Id (inv_…) or number of an invoice.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write; default: NUMBER.pdf.")
@as_json
@reported
def account_invoice(*, invoice: str, out: Path | None, as_json: bool) -> None:
    """Write the PDF of an invoice; also of an account that was erased."""
    show(in_database(write_invoice, name=invoice, out=out), as_json=as_json)


@account.command("list")
@limit_option(50, most=10_000)
@click.option("--search", help="Only accounts with this id, member's address, domain, or beginning of the name.")
@as_json
@reported
def account_list(*, limit: int, search: str | None, as_json: bool) -> None:
    """List the newest accounts and their status."""
    found = in_database(listed, limit=limit, search=search)
    show({"accounts": found}, as_json=as_json)


@account.command("show")
@_account_id
@as_json
@reported
def account_show(*, account_id: str, as_json: bool) -> None:
    """Show an account: suspensions, deletion, sub-accounts. For an erased account, show what remains of it."""
    show(in_database(shown, account=account_id), as_json=as_json)


@account.command("suspend")
@_account_id
@click.option("--reason", required=True, help="Reason, in one sentence; shown to the members of the account.")
@as_json
@reported
def account_suspend(*, account_id: str, reason: str, as_json: bool) -> None:
    """Suspend an account and its sub-accounts: keys stop working, queued mail is held, members can only read."""
    show(in_database(suspend, account=account_id, reason=reason), as_json=as_json)


@account.command("resume")
@_account_id
@as_json
@reported
def account_resume(*, account_id: str, as_json: bool) -> None:
    """Resume a suspended account: deliver held mail, and ignore its bounces and complaints up to now."""
    show(in_database(resume, account=account_id), as_json=as_json)


async def listed(pool: asyncpg.Pool, *, limit: int, search: str | None = None) -> list[dict[str, Any]]:
    """Return the newest accounts, newest first, or the newest that `search` names."""
    found = await account_admin.search(pool, text=search, status=None, before=None, limit=limit)
    return [_plain(one) for one in found.data]


async def shown(pool: asyncpg.Pool, *, account: str) -> dict[str, Any]:
    """Return one account's status, owners, suspensions and sub-accounts, or the remains of an erased one.

    Raises Refusal (404) if there is no such account.
    """
    return _plain(await account_admin.show(pool, ids.parse_id(ids.Kind.ACCOUNT, account)))


async def suspend(pool: asyncpg.Pool, *, account: str, reason: str) -> dict[str, Any]:
    """Suspend an account and its sub-accounts; the members of the account can read `reason`."""
    return _plain(await account_admin.suspend(pool, ids.parse_id(ids.Kind.ACCOUNT, account), reason=reason))


async def resume(pool: asyncpg.Pool, *, account: str) -> dict[str, Any]:
    """End the suspensions by the automatic rule and by the operator; the result lists those that remain."""
    return _plain(await account_admin.resume(pool, ids.parse_id(ids.Kind.ACCOUNT, account)))


def _plain(found: Struct) -> dict[str, Any]:
    """Return the fields with the id as `accountId`; those that an erased account does not have are left out."""
    fields: dict[str, Any] = msgspec.to_builtins(found)
    named = {"accountId": fields.pop("id")} | fields
    erasure = named.pop("erasure", None)
    if erasure is None:
        return named
    left: dict[str, Any] = {"accountId": named["accountId"], "status": named["status"], "openedAt": named["createdAt"]}
    return left | dict(erasure)


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


async def billing_of(pool: asyncpg.Pool, *, account: str) -> dict[str, Any]:
    """Return an account's subscription, invoices and the verification of its history; also of an erased account."""
    account_id = ids.parse_id(ids.Kind.ACCOUNT, account)
    row = await store.READ.first(pool, account_id)
    verdict = await billing_history.verify(pool, account_id)
    found = await store.INVOICES.fetch(pool, account_id, None, 1_000)
    events = await store.EVENTS_OF.records(pool, account_id, 20)
    return {
        "accountId": account,
        "subscription": None if row is None else _subscription(row.subscription),
        "invoices": [_invoice_line(one) for one in found],
        "history": {"valid": verdict.valid, "brokenAt": verdict.broken_at, "reason": verdict.reason},
        "paymentEvents": [
            {"id": one["event_id"], "provider": one["provider"], "type": one["type"], "effect": one["effect"],
             "receivedAt": clock.iso(one["received_at"])}
            for one in events
        ],
    }  # fmt: skip


async def write_invoice(pool: asyncpg.Pool, *, name: str, out: Path | None) -> dict[str, Any]:
    """Write the PDF of any account's invoice, by id (inv_…) or number. Raises Refusal (404)."""
    row = await store.INVOICE_OF_ANY.first(pool, _invoice_id(name), name)
    if row is None:
        raise not_found("invoice")
    target = out or Path(f"{row.number}.pdf")
    target.write_bytes(await invoices.pdf(pool, row))
    return _invoice_line(row) | {"accountId": ids.format_id(ids.Kind.ACCOUNT, row.account_id), "file": str(target)}


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


def _invoice_line(row: InvoiceRow) -> dict[str, Any]:
    return {
        "id": ids.format_id(ids.Kind.INVOICE, row.id),
        "number": row.number,
        "kind": row.kind,
        "status": row.status,
        "issuedAt": clock.iso(row.issued_at),
        "total": formatted(row.total, row.currency),
    }
