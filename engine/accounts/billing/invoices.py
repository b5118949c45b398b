"""Issue invoices and credit notes: numbered, frozen, and rendered once."""

import asyncio
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec
import orjson

from engine.accounts.billing import invoice_pdf, store
from engine.accounts.billing.change_plan import tell_managers
from engine.accounts.billing.configuration import Seller
from engine.accounts.billing.money import formatted
from engine.accounts.billing.rows import BillingProfileRow, InvoiceRow
from engine.accounts.billing.tax import TaxDecision
from engine.accounts.billing.types import HistoryType, InvoiceDraft
from engine.base import ids
from engine.cells import claims
from engine.ledger import billing_history
from engine.people.system_mail.types import SystemMailKind
from engine.store.database_clock import new_id
from engine.store.queries import Conn


async def issue(
    connection: Conn,
    account: UUID,
    draft: InvoiceDraft,
    tax: TaxDecision,
    *,
    seller: Seller,
    buyer: BillingProfileRow,
    payment: UUID | None,
    at: datetime,
) -> InvoiceRow:
    """Issue an invoice in the caller's transaction, with its history event and the mail to owners and admins.

    `payment` is the checkout or renewal charge that paid it.
    """
    row = InvoiceRow(
        id=await new_id(connection),
        account_id=account,
        number=await _number(connection, at),
        kind="invoice",
        status="paid",
        issued_at=at,
        period_start=draft.period.start,
        period_end=draft.period.end,
        plan=draft.plan.value,
        billing_interval=draft.interval.value,
        currency=draft.currency,
        subtotal=draft.subtotal,
        tax=tax.tax,
        total=draft.subtotal + tax.tax,
        tax_rate=tax.rate,
        reverse_charge=tax.reverse_charge,
        lines=orjson.dumps(msgspec.to_builtins(draft.lines)).decode(),
        seller=orjson.dumps(msgspec.to_builtins(seller)).decode(),
        buyer=orjson.dumps(msgspec.to_builtins(buyer)).decode(),
        corrects=None,
        payment=payment,
    )
    await _store(connection, row)
    return row


async def credit(connection: Conn, invoice: InvoiceRow, amount: int, at: datetime) -> InvoiceRow:
    """Issue a credit note over `amount` (with tax, in minor units) of an invoice, in the caller's transaction.

    The tax part is that of the invoice. The caller has checked that no more is credited than was paid.
    """
    tax = invoice.tax * amount // invoice.total
    note = f"Refund of invoice {invoice.number}"
    row = InvoiceRow(
        id=await new_id(connection),
        account_id=invoice.account_id,
        number=await _number(connection, at),
        kind="credit_note",
        status="paid",
        issued_at=at,
        period_start=invoice.period_start,
        period_end=invoice.period_end,
        plan=invoice.plan,
        billing_interval=invoice.billing_interval,
        currency=invoice.currency,
        subtotal=tax - amount,
        tax=-tax,
        total=-amount,
        tax_rate=invoice.tax_rate,
        reverse_charge=invoice.reverse_charge,
        lines=orjson.dumps([{"description": note, "amount": tax - amount}]).decode(),
        seller=invoice.seller,
        buyer=invoice.buyer,
        corrects=invoice.number,
    )
    await _store(connection, row)
    return row


async def pdf(pool: asyncpg.Pool, row: InvoiceRow) -> bytes:
    """Return the PDF of an invoice. The first rendering is stored, so that the bytes never change."""
    stored = await store.READ_PDF.records(pool, row.id)
    if stored and stored[0]["pdf"] is not None:
        return bytes(stored[0]["pdf"])
    rendered = await asyncio.to_thread(invoice_pdf.render, row)
    return bytes((await store.PUT_PDF.records(pool, row.id, rendered))[0]["pdf"])


async def _number(connection: Conn, at: datetime) -> str:
    """Draw a number. Cells have one seller and a database each, so that each has a series, with its name."""
    cell = claims.own_cell()
    series = "WB" if cell is None else f"WB-{cell.upper()}"
    return f"{series}-{at.year}-{await store.next_number(connection, at.year):06d}"


async def _store(connection: Conn, row: InvoiceRow) -> None:
    await store.insert_invoice(connection, row)
    public_id = ids.format_id(ids.Kind.INVOICE, row.id)
    facts: dict[str, object] = {
        "invoice": public_id, "number": row.number, "kind": row.kind, "total": row.total, "currency": row.currency,
    }  # fmt: skip
    await billing_history.append(connection, row.account_id, [(HistoryType.INVOICE_ISSUED, facts)], row.issued_at)
    await tell_managers(
        connection,
        row.account_id,
        SystemMailKind.INVOICE_ISSUED,
        row.issued_at,
        number=row.number,
        total=formatted(row.total, row.currency),
        plan=row.plan.capitalize(),
        document=invoice_pdf.title(row),
        invoice=public_id,
    )
