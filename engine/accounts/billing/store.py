"""Read and write subscriptions, checkouts, renewal charges, invoices and events of payment providers."""

from datetime import date, datetime
from uuid import UUID

from engine.accounts.billing import subscription as changes
from engine.accounts.billing.rows import (
    BillingAccountRow,
    BillingProfileRow,
    CheckoutRow,
    InvoiceRow,
    RenewalChargeRow,
    SubscriptionRow,
)
from engine.accounts.billing.types import PlanSubscription
from engine.store.queries import Conn, Queries, Row, Source
from engine.store.row_sets import Column, RowSet

_BIG = frozenset({"amount", "price", "credit", "tax", "subtotal", "total", "pending_amount"})  # money
_JSON = frozenset({"buyer", "seller", "lines"})


def _rows(name: str, row: type[Row]) -> RowSet[Row]:
    """Return the row set of a table whose columns are the fields of its Struct, the first one never repeated."""
    kinds = dict.fromkeys(_BIG, "bigint") | dict.fromkeys(_JSON, "jsonb")
    kinds |= {"number": "integer", "tries": "integer"} if name != "issued" else {}
    return RowSet(name, row, *[Column(field, kinds.get(field)) for field in row.__struct_fields__])


_STORED = _rows("stored", SubscriptionRow)
_OPENED = _rows("opened", CheckoutRow)
_CHARGE = _rows("charge", RenewalChargeRow)
_ISSUED = _rows("issued", InvoiceRow)
_SQL = Queries.beside(__file__)
READ = _SQL.rows("read_subscription", SubscriptionRow)
DUE = _SQL.command("due_subscriptions")
_PUT = _SQL.wide("put_subscription", _STORED)
DELETE = _SQL.command("delete_subscription")
ACCOUNT = _SQL.rows("billing_account", BillingAccountRow)
PROFILE = _SQL.rows("read_profile", BillingProfileRow)
PUT_PROFILE = _SQL.command("put_profile")
OPEN_CHECKOUT = _SQL.rows("open_checkout", CheckoutRow)
CHECKOUT = _SQL.rows("read_checkout", CheckoutRow)
_INSERT_CHECKOUT = _SQL.wide("insert_checkout", _OPENED)
SET_CHECKOUT_STATUS = _SQL.command("set_checkout_status")
SET_CHECKOUT_URL = _SQL.command("set_checkout_url")
CHARGE = _SQL.rows("read_charge", RenewalChargeRow)
_INSERT_CHARGE = _SQL.wide("insert_charge", _CHARGE)
DUE_CHARGES = _SQL.rows("due_charges", RenewalChargeRow)
CHARGE_TAKEN = _SQL.command("charge_taken")
CHARGE_PAID = _SQL.command("charge_paid")
_INSERT_EVENT = _SQL.command("insert_provider_event")
IS_EVENT_KNOWN = _SQL.command("is_event_known")
EVENTS_OF = _SQL.command("provider_events_of")
SET_EFFECT = _SQL.command("set_effect")
WAITING_EVENTS = _SQL.command("waiting_events")
HAPPENED_SINCE = _SQL.command("happened_since")
INVOICE = _SQL.rows("read_invoice", InvoiceRow)
INVOICES = _SQL.rows("list_invoices", InvoiceRow)
INVOICE_OF_ANY = _SQL.rows("read_any_invoice", InvoiceRow)
INVOICE_OF_PAYMENT = _SQL.rows("invoice_of_payment", InvoiceRow)
_INSERT_INVOICE = _SQL.wide("insert_invoice", _ISSUED)
_NEXT_NUMBER = _SQL.command("next_invoice_number")
MARK_REFUNDED = _SQL.command("mark_refunded")
_REFUNDED = _SQL.command("refunded_so_far")
READ_PDF = _SQL.command("read_pdf")
PUT_PDF = _SQL.command("put_pdf")
_COUNT_NOTICE = _SQL.command("count_notice")
SUBJECT = _SQL.command("notice_subject")
KEEP_RETENTION = _SQL.command("keep_retention")
SET_PLAN = _SQL.command("set_plan")


async def put(
    connection: Conn,
    account: UUID,
    held: PlanSubscription,
    at: datetime,
    *,
    provider: str | None,
    reference: str | None,
) -> None:
    """Store the subscription of an account; a provider or reference of None keeps the stored one."""
    row = SubscriptionRow.of(account, held, changes.next_look(held, at), provider, reference)
    await _PUT.run(connection, _STORED.of([row]))


async def insert_checkout(connection: Conn, row: CheckoutRow) -> None:
    """Store a checkout."""
    await _INSERT_CHECKOUT.run(connection, _OPENED.of([row]))


async def insert_charge(connection: Conn, row: RenewalChargeRow) -> None:
    """Store the request to charge a period, unless there is one."""
    await _INSERT_CHARGE.run(connection, _CHARGE.of([row]))


async def insert_invoice(connection: Conn, row: InvoiceRow) -> None:
    """Store an invoice or credit note."""
    await _INSERT_INVOICE.run(connection, _ISSUED.of([row]))


async def first_time(
    connection: Source, provider: str, event: str, *, kind: str, account: UUID | None, effect: str, created_at: datetime
) -> bool:
    """Record an event of a provider in the transaction of its effect; return False if it was recorded before."""
    tag = await _INSERT_EVENT.execute(connection, provider, event, kind, account, effect, created_at)
    return tag.endswith("1")


async def next_number(connection: Conn, year: int) -> int:
    """Draw the next number of a year; other transactions that issue wait until this one ends."""
    return int((await _NEXT_NUMBER.records(connection, year))[0]["latest"])


async def refunded(connection: Conn, number: str) -> int:
    """Return the total of the credit notes that correct an invoice, in minor units."""
    return int((await _REFUNDED.records(connection, number))[0]["total"])


async def count_notice(connection: Conn, subject: UUID, day: date) -> int:
    """Count an unsigned refund notice about a checkout or invoice; return how many there were on that day."""
    return int((await _COUNT_NOTICE.records(connection, subject, day))[0]["notices"])
