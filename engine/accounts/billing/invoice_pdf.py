"""Render invoices and credit notes as PDF: the same bytes for the same row. The first rendering is stored."""

from typing import Final

import msgspec

from engine.accounts.billing.configuration import Seller
from engine.accounts.billing.money import formatted
from engine.accounts.billing.rows import BillingProfileRow, InvoiceRow
from engine.accounts.billing.tax import REVERSE_CHARGE
from engine.accounts.billing.types import InvoiceLine
from engine.accounts.pdf_page import LEADING, MARGIN, TEXT_SIZE, WIDTH, PdfPage

MAX_BLOCK_LINES: Final = 12  # of a seller's or buyer's address


def render(row: InvoiceRow) -> bytes:
    """Return the PDF of an invoice."""
    page = PdfPage(f"{title(row)} {row.number}", msgspec.json.decode(row.seller, type=Seller).name, row.number)
    _parties(page, row)
    _facts(page, row)
    _lines(page, row)
    _totals(page, row)
    return page.finish()


def title(row: InvoiceRow) -> str:
    """Return what the document is called."""
    return "Credit note" if row.kind == "credit_note" else "Invoice"


def _parties(page: PdfPage, row: InvoiceRow) -> None:
    seller = msgspec.json.decode(row.seller, type=Seller)
    buyer = msgspec.json.decode(row.buyer, type=BillingProfileRow)
    half = (WIDTH - 2 * MARGIN) / 2 - 10
    left = _block(page, "From", seller.name, seller.address, seller.country, seller.tax_id, seller.email, half)
    right = _block(page, "To", buyer.legal_name, buyer.address, buyer.country, buyer.tax_id, buyer.email, half)
    page.text(MARGIN, title(row), size=20, bold=True)
    page.down(2, 20)
    top = page.y
    for x, lines in ((MARGIN, left), (WIDTH / 2 + 10, right)):
        page.y = top
        for place, line in enumerate(lines):
            page.text(x, line, bold=place == 0)
            page.y -= TEXT_SIZE * LEADING
    page.y = top - max(len(left), len(right)) * TEXT_SIZE * LEADING
    page.down(1.5)


def _block(
    page: PdfPage, label: str, name: str, address: str | None, country: str | None, tax_id: str | None,
    email: str | None, width: float,
) -> list[str]:  # fmt: skip
    texts = [name, *(address or "").split("\n"), country or "", f"Tax id: {tax_id}" if tax_id else "", email or ""]
    lines = [line for text in texts for line in page.wrapped(text, width)]
    return [label, *lines[:MAX_BLOCK_LINES]]


def _facts(page: PdfPage, row: InvoiceRow) -> None:
    facts = [
        ("Number", row.number),
        ("Date", f"{row.issued_at:%Y-%m-%d}"),
        ("Period", f"{row.period_start:%Y-%m-%d %H:%M} to {row.period_end:%Y-%m-%d %H:%M} UTC"),
    ]
    if row.corrects is not None:
        facts.append(("Corrects invoice", row.corrects))
    for name, value in facts:
        page.text(MARGIN, name)
        page.text(MARGIN + 110, value)
        page.down()
    page.down(1.5)


def _lines(page: PdfPage, row: InvoiceRow) -> None:
    edge = WIDTH - MARGIN
    page.text(MARGIN, "Description", bold=True)
    page.text(edge, "Net amount", bold=True, right=True)
    page.down()
    page.rule()
    page.down(0.7)
    for line in msgspec.json.decode(row.lines, type=list[InvoiceLine]):
        texts = page.wrapped(line.description, edge - MARGIN - 130)
        page.text(edge, formatted(line.amount, row.currency), right=True)
        for text in texts:
            page.text(MARGIN, text)
            page.down()
    page.rule()
    page.down(0.7)


def _totals(page: PdfPage, row: InvoiceRow) -> None:
    edge = WIDTH - MARGIN
    percent = f"{float(row.tax_rate) * 100:g}%"
    for name, amount, bold in (
        ("Net", row.subtotal, False),
        (f"Tax ({percent})", row.tax, False),
        ("Total", row.total, True),
    ):
        page.text(edge - 170, name, bold=bold)
        page.text(edge, formatted(amount, row.currency), bold=bold, right=True)
        page.down(1.2)
    page.down()
    if row.reverse_charge:
        for line in page.wrapped(REVERSE_CHARGE, edge - MARGIN):
            page.text(MARGIN, line)
            page.down()
    page.text(MARGIN, "Refunded." if row.kind == "credit_note" else "Paid. Nothing is due.")
    page.down()
