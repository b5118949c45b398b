"""Read and write subscriptions, checkouts, renewal charges, invoices and events of payment providers."""

from datetime import date, datetime
from uuid import UUID

from engine.areas.billing import subscription as changes
from engine.areas.billing.rows import (
    BillingAccountRow,
    BillingProfileRow,
    CheckoutRow,
    InvoiceRow,
    RenewalChargeRow,
    SubscriptionRow,
)
from engine.areas.billing.types import Subscription
from engine.store.queries import Conn, Queries, Source

_SQL = Queries.beside(__file__)
READ = _SQL.rows("read_subscription", SubscriptionRow)
DUE = _SQL.command("due_subscriptions")
_PUT = _SQL.command("put_subscription")
DELETE = _SQL.command("delete_subscription")
ACCOUNT = _SQL.rows("billing_account", BillingAccountRow)
PROFILE = _SQL.rows("read_profile", BillingProfileRow)
PUT_PROFILE = _SQL.command("put_profile")
OPEN_CHECKOUT = _SQL.rows("open_checkout", CheckoutRow)
CHECKOUT = _SQL.rows("read_checkout", CheckoutRow)
INSERT_CHECKOUT = _SQL.command("insert_checkout")
SET_CHECKOUT_STATUS = _SQL.command("set_checkout_status")
SET_CHECKOUT_URL = _SQL.command("set_checkout_url")
CHARGE = _SQL.rows("read_charge", RenewalChargeRow)
INSERT_CHARGE = _SQL.command("insert_charge")
DUE_CHARGES = _SQL.rows("due_charges", RenewalChargeRow)
CHARGE_TAKEN = _SQL.command("charge_taken")
CHARGE_PUT_OFF = _SQL.command("charge_put_off")
CHARGE_PAID = _SQL.command("charge_paid")
_INSERT_EVENT = _SQL.command("insert_provider_event")
IS_EVENT_KNOWN = _SQL.command("is_event_known")
SET_EFFECT = _SQL.command("set_effect")
INVOICE = _SQL.rows("read_invoice", InvoiceRow)
INVOICES = _SQL.rows("list_invoices", InvoiceRow)
INVOICE_OF_ANY = _SQL.rows("read_any_invoice", InvoiceRow)
INVOICE_OF_PAYMENT = _SQL.rows("invoice_of_payment", InvoiceRow)
INSERT_INVOICE = _SQL.command("insert_invoice")
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
    connection: Conn, account: UUID, held: Subscription, at: datetime, *, provider: str | None, reference: str | None
) -> None:
    """Store the subscription of an account; a provider or reference of None keeps the stored one."""
    pending = held.pending
    await _PUT.execute(
        connection, account, held.plan.value, held.status.value, held.interval.value, held.currency, held.amount,
        held.anchor, held.number, held.credit, held.cancel_at_period_end, held.pause_at_period_end, held.next_paid,
        None if pending is None else pending.plan.value, None if pending is None else pending.interval.value,
        None if pending is None else pending.amount, held.paid_at, changes.next_look(held, at), provider, reference, at,
    )  # fmt: skip


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
