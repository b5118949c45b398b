"""`/v1/billing`: the subscription, checkouts, invoices and history of an account."""

import msgspec
from msgspec import UNSET

from api.areas.billing import records
from api.areas.billing.provider_events import OPERATIONS as PROVIDER_OPERATIONS
from api.areas.billing.schemas import (
    BillingChain,
    BillingHistoryPage,
    BillingHistoryQuery,
    BillingProfile,
    BillingProfileChange,
    BillingState,
    Checkout,
    Invoice,
    InvoicePage,
    InvoicesQuery,
    NewCheckout,
    PlanList,
)
from api.http.operation import Access, Area, Call, LimitedKeys, Operation, Raw
from api.http.paging import Page
from engine.accounts.billing import checkout, invoices, store
from engine.accounts.billing import subscription_changes as subscriptions
from engine.accounts.billing.rows import BillingProfileRow
from engine.base import ids
from engine.base.errors import ErrorType, existing, invalid
from engine.base.plans import Plan
from engine.base.roles import Role
from engine.ledger import billing_history

PDF = "application/pdf"
MAX_SEQ = 2**63 - 1
_ENCODER = msgspec.json.Encoder()


async def read(call: Call) -> BillingState:
    """Return the account's subscription, its open checkout, its profile and the plans for sale."""
    pool, account = call.services.pool, call.account_id
    found = existing(await store.ACCOUNT.first(pool, account), "account")
    held = await store.READ.first(pool, account)
    billing = call.services.billing
    return records.state_of(
        found.plan,
        None if held is None else held.subscription,
        await store.OPEN_CHECKOUT.first(pool, account),
        await store.PROFILE.first(pool, account),
        billing.prices,
    )


async def list_plans(call: Call) -> PlanList:
    """Return all plans with their limits and prices."""
    found = existing(await store.ACCOUNT.first(call.services.pool, call.account_id), "account")
    return PlanList([records.plan_of(plan, found.plan, call.services.billing.prices) for plan in Plan])


async def open_checkout(call: Call, body: NewCheckout) -> Checkout:
    """Open a checkout for a larger plan, or schedule a smaller one."""
    answer = await checkout.open_checkout(
        call.services.pool,
        call.account_id,
        body.plan,
        body.interval,
        _profile(body.profile),
        billing=call.services.billing,
        actor=call.actor,
    )
    return records.opened(answer)


async def abandon(call: Call) -> None:
    """Abandon the open checkout."""
    await checkout.abandon(call.services.pool, call.account_id, actor=call.actor)


async def cancel(call: Call) -> BillingState:
    """Cancel the subscription at the end of the paid period."""
    return await _changed(call, "cancel")


async def pause(call: Call) -> BillingState:
    """Pause the subscription at the end of the paid period."""
    return await _changed(call, "pause")


async def resume(call: Call) -> BillingState:
    """Withdraw a cancellation or pause."""
    return await _changed(call, "resume")


async def change_profile(call: Call, body: BillingProfileChange) -> BillingProfile:
    """Change the name, address and tax id on invoices."""
    given = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not UNSET}
    return records.profile_of(await checkout.change_profile(call.services.pool, call.account_id, given))


async def list_invoices(call: Call, page: Page) -> InvoicePage:
    """Return a page of the account's invoices and credit notes."""
    rows = await store.INVOICES.fetch(call.services.pool, call.account_id, page.before, page.probe)
    return InvoicePage(*page.of(rows, records.invoice_of))


async def read_invoice(call: Call) -> Raw:
    """Return an invoice as PDF, or as JSON if the client prefers that."""
    row = existing(await store.INVOICE.first(call.services.pool, call.account_id, call.id), "invoice")
    if _prefers_json(call.request.get_header("Accept") or ""):
        return Raw(_ENCODER.encode(records.invoice_of(row)), "application/json")
    content = await invoices.pdf(call.services.pool, row)
    return Raw(content, PDF, (("Content-Disposition", f'attachment; filename="{row.number}.pdf"'),))


async def list_history(call: Call, query: BillingHistoryQuery) -> BillingHistoryPage:
    """Return a page of the billing history with the verification of its whole chain."""
    pool, account = call.services.pool, call.account_id
    rows, previous = await billing_history.page(pool, account, _after(query.after), query.limit + 1)
    verdict = await billing_history.verify(pool, account)
    shown = rows[: query.limit]
    hashes = [previous, *(row.hash for row in shown)]
    return BillingHistoryPage(
        BillingChain(verdict.valid, verdict.broken_at, verdict.reason),
        [records.event_of(row, before) for row, before in zip(shown, hashes, strict=False)],
        str(shown[-1].seq) if len(rows) > query.limit else None,
    )


async def _changed(call: Call, what: str) -> BillingState:
    await subscriptions.request_change(
        call.services.pool, call.account_id, what, billing=call.services.billing, actor=call.actor
    )
    return await read(call)


def _profile(given: BillingProfile) -> BillingProfileRow:
    return BillingProfileRow(given.legal_name, given.country, given.address, given.tax_id, given.email)


def _prefers_json(accept: str) -> bool:
    """Return True if the Accept field names JSON and does not name PDF before it."""
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return "application/json" in kinds and PDF not in kinds[: kinds.index("application/json")]


def _after(text: str | None) -> int:
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_SEQ):
        raise invalid(
            "after", f"`{text}` is not a cursor of this list. Send the `nextCursor` of the page before, a number."
        )
    return int(text)


# `billing:read` can't be granted to a key.
_KEYS = Area("Billing", reads=("account:read",), limited_keys=LimitedKeys.FREE, id_of=ids.Kind.INVOICE)
_ADMINS = Area("Billing", access=Access.SESSION, role=Role.ADMIN)
OPERATIONS = (
    Operation("GET", "/v1/billing", read, "Read the subscription", _KEYS),
    Operation("GET", "/v1/billing/plans", list_plans, "List the plans with their limits and prices", _KEYS),
    Operation(
        "GET",
        "/v1/billing/history",
        list_history,
        "List the billing history, oldest first, with the verification of its hash chain",
        _KEYS,
        lagging=True,
    ),
    Operation(
        "GET",
        "/v1/billing/invoices",
        list_invoices,
        "List invoices and credit notes, newest first",
        _KEYS,
        page=ids.Kind.INVOICE,
        query=InvoicesQuery,
        lagging=True,
    ),
    Operation(
        "GET",
        "/v1/billing/invoices/{id}",
        read_invoice,
        "Download an invoice as PDF",
        _KEYS,
        note="With `Accept: application/json` the response is the invoice as JSON.",
        reply=Invoice,
        reply_type=PDF,
        refusals=(ErrorType.NOT_FOUND,),
    ),
    Operation(
        "POST",
        "/v1/billing/checkout",
        open_checkout,
        "Buy a plan",
        _ADMINS,
        note="An upgrade applies once the checkout is paid at its `url`; unused time of the current plan is "
        "credited. A downgrade applies from the end of the paid period, without a checkout. Repeating the "
        "request returns the same checkout; a different request replaces it.",
        success=201,
        refusals=(ErrorType.INVALID_STATE, ErrorType.UNAVAILABLE),
    ),
    Operation("POST", "/v1/billing/checkout/abandon", abandon, "Abandon the open checkout", _ADMINS),
    Operation(
        "POST",
        "/v1/billing/cancel",
        cancel,
        "Cancel the subscription at the end of the paid period",
        _ADMINS,
        refusals=(ErrorType.INVALID_STATE,),
        open_to_suspended=True,
    ),
    Operation(
        "POST",
        "/v1/billing/pause",
        pause,
        "Pause the subscription at the end of the paid period",
        _ADMINS,
        refusals=(ErrorType.INVALID_STATE,),
    ),
    Operation(
        "POST",
        "/v1/billing/resume",
        resume,
        "Withdraw a cancellation or pause",
        _ADMINS,
        note="A subscription that is paused already needs a new checkout.",
        refusals=(ErrorType.INVALID_STATE,),
    ),
    Operation(
        "PATCH", "/v1/billing/profile", change_profile, "Change the name, address and tax id on invoices", _ADMINS
    ),
    *PROVIDER_OPERATIONS,
)
