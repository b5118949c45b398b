"""Render invoices and credit notes as PDF: A4, the same bytes for the same row. Takes about 8 ms; call it in a thread.

The bytes depend on the versions of reportlab and arabic-reshaper, which ops/lock pins, and on nothing else of a
machine: fonts are read from `fonts/`, streams are not compressed (zlib's output differs between its versions), and
settings of the libraries in the environment are ignored. The first rendering of an invoice is stored.

DejaVu Sans (fonts/) has Latin, Greek, Cyrillic, Hebrew and Arabic letters and is embedded by the glyphs used. Chinese,
Japanese and Korean text uses the CID fonts that PDF readers have (ISO 32000-1, 9.7.5.2).
"""

import unicodedata
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.accounts.billing.bidi import visual_order
from engine.accounts.billing.configuration import Seller
from engine.accounts.billing.money import formatted
from engine.accounts.billing.rows import BillingProfileRow, InvoiceRow
from engine.accounts.billing.tax import REVERSE_CHARGE
from engine.accounts.billing.types import InvoiceLine

_FONTS: Final = Path(__file__).parent / "fonts"
_SANS, _BOLD = "DejaVuSans", "DejaVuSans-Bold"
_JAPANESE, _KOREAN, _CHINESE = "HeiseiKakuGo-W5", "HYGothic-Medium", "STSong-Light"
_WIDTH, _HEIGHT, _MARGIN = 595.28, 841.89, 56.7  # points: A4, 20 mm
_LEADING: Final = 1.4
_BOTTOM: Final = 85.0
# Those of reportlab's settings that change documents; without this, variables such as RL_useA85 would.
_LIBRARY_SETTINGS: Final[dict[str, object]] = {
    "useA85": 0, "pdfComments": 0, "pdfMultiLine": 0, "reserveTTFNotdef": 1, "allowTTFSubsetting": [],
    "canvas_basefontname": "Helvetica", "canvas_baseColor": None, "documentLang": None,
    "defaultEncoding": "WinAnsiEncoding",
}  # fmt: skip
MAX_BLOCK_LINES: Final = 12  # of a seller's or buyer's address


def render(row: InvoiceRow) -> bytes:
    """Return the PDF of an invoice."""
    page = _InvoicePage(row)
    _parties(page, row)
    _facts(page, row)
    _lines(page, row)
    _totals(page, row)
    return page.finish()


class _InvoicePage:
    """The page that is being drawn, and the height at which the next text goes, in points from the bottom."""

    def __init__(self, row: InvoiceRow) -> None:
        from reportlab.pdfgen.canvas import Canvas  # noqa: PLC0415 - 10 MB that most processes never need

        _register()
        self._buffer = BytesIO()
        self._canvas: Any = Canvas(self._buffer, pagesize=(_WIDTH, _HEIGHT), invariant=1, pageCompression=0)
        self._canvas.setTitle(f"{title(row)} {row.number}")
        self._canvas.setAuthor(msgspec.json.decode(row.seller, type=Seller).name)
        self._footer = row.number
        self.y = _HEIGHT - _MARGIN

    def text(self, x: float, text: str, *, size: float = 9.5, bold: bool = False, right: bool = False) -> None:
        """Draw a line of text at the present height, from `x` or, with `right`, up to it."""
        pieces = list(_runs(visual_order(text), bold=bold))
        widths = [self._canvas.stringWidth(piece, font, size) for piece, font in pieces]
        at = x - sum(widths) if right else x
        for (piece, font), width in zip(pieces, widths, strict=True):
            self._canvas.setFont(font, size)
            self._canvas.drawString(at, self.y, piece)
            at += width

    def down(self, lines: float = 1.0, size: float = 9.5) -> None:
        """Move down; begin a new page at the bottom."""
        self.y -= lines * size * _LEADING
        if self.y < _BOTTOM:
            self._end_page()
            self._canvas.showPage()
            self.y = _HEIGHT - _MARGIN

    def rule(self) -> None:
        """Draw a thin line over the width of the page."""
        self._canvas.setLineWidth(0.5)
        self._canvas.line(_MARGIN, self.y + 4, _WIDTH - _MARGIN, self.y + 4)

    def wrapped(self, text: str, width: float, size: float = 9.5) -> list[str]:
        """Divide text into lines that fit the width, within a word where one is too long."""
        lines, line = [], ""
        for word in text.split():
            for part in self._parts(word, width, size):
                longer = f"{line} {part}".strip()
                if line and self._width(longer, size) > width:
                    lines.append(line)
                    longer = part
                line = longer
        return [*lines, line] if line else lines

    def finish(self) -> bytes:
        """Return the document."""
        self._end_page()
        self._canvas.save()
        return self._buffer.getvalue()

    def _parts(self, word: str, width: float, size: float) -> Iterator[str]:
        while self._width(word, size) > width:
            fits = max(1, int(len(word) * width / self._width(word, size)))
            yield word[:fits]
            word = word[fits:]
        yield word

    def _width(self, text: str, size: float) -> float:
        widths = [self._canvas.stringWidth(piece, font, size) for piece, font in _runs(text, bold=False)]
        return float(sum(widths))

    def _end_page(self) -> None:
        kept, self.y = self.y, _MARGIN - 14
        self.text(_MARGIN, f"{self._footer}, page {self._canvas.getPageNumber()}", size=7.5)
        self.y = kept


def title(row: InvoiceRow) -> str:
    """Return what the document is called."""
    return "Credit note" if row.kind == "credit_note" else "Invoice"


def _parties(page: _InvoicePage, row: InvoiceRow) -> None:
    seller = msgspec.json.decode(row.seller, type=Seller)
    buyer = msgspec.json.decode(row.buyer, type=BillingProfileRow)
    half = (_WIDTH - 2 * _MARGIN) / 2 - 10
    left = _block(page, "From", seller.name, seller.address, seller.country, seller.tax_id, seller.email, half)
    right = _block(page, "To", buyer.legal_name, buyer.address, buyer.country, buyer.tax_id, buyer.email, half)
    page.text(_MARGIN, title(row), size=20, bold=True)
    page.down(2, 20)
    top = page.y
    for x, lines in ((_MARGIN, left), (_WIDTH / 2 + 10, right)):
        page.y = top
        for place, line in enumerate(lines):
            page.text(x, line, bold=place == 0)
            page.y -= 9.5 * _LEADING
    page.y = top - max(len(left), len(right)) * 9.5 * _LEADING
    page.down(1.5)


def _block(
    page: _InvoicePage, label: str, name: str, address: str | None, country: str | None, tax_id: str | None,
    email: str | None, width: float,
) -> list[str]:  # fmt: skip
    texts = [name, *(address or "").split("\n"), country or "", f"Tax id: {tax_id}" if tax_id else "", email or ""]
    lines = [line for text in texts for line in page.wrapped(text, width)]
    return [label, *lines[:MAX_BLOCK_LINES]]


def _facts(page: _InvoicePage, row: InvoiceRow) -> None:
    facts = [
        ("Number", row.number),
        ("Date", f"{row.issued_at:%Y-%m-%d}"),
        ("Period", f"{row.period_start:%Y-%m-%d %H:%M} to {row.period_end:%Y-%m-%d %H:%M} UTC"),
    ]
    if row.corrects is not None:
        facts.append(("Corrects invoice", row.corrects))
    for name, value in facts:
        page.text(_MARGIN, name)
        page.text(_MARGIN + 110, value)
        page.down()
    page.down(1.5)


def _lines(page: _InvoicePage, row: InvoiceRow) -> None:
    edge = _WIDTH - _MARGIN
    page.text(_MARGIN, "Description", bold=True)
    page.text(edge, "Net amount", bold=True, right=True)
    page.down()
    page.rule()
    page.down(0.7)
    for line in msgspec.json.decode(row.lines, type=list[InvoiceLine]):
        texts = page.wrapped(line.description, edge - _MARGIN - 130)
        page.text(edge, formatted(line.amount, row.currency), right=True)
        for text in texts:
            page.text(_MARGIN, text)
            page.down()
    page.rule()
    page.down(0.7)


def _totals(page: _InvoicePage, row: InvoiceRow) -> None:
    edge = _WIDTH - _MARGIN
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
        for line in page.wrapped(REVERSE_CHARGE, edge - _MARGIN):
            page.text(_MARGIN, line)
            page.down()
    page.text(_MARGIN, "Refunded." if row.kind == "credit_note" else "Paid. Nothing is due.")
    page.down()


def _runs(text: str, *, bold: bool) -> Iterator[tuple[str, str]]:
    """Yield pieces of text with the font that has their letters."""
    if text and text.isascii():
        yield text, _BOLD if bold else _SANS
        return
    piece, font = "", ""
    for letter in unicodedata.normalize("NFC", text):
        own = _font_of(letter, bold=bold)
        if own != font and piece:
            yield piece, font
            piece = ""
        piece, font = piece + letter, own
    if piece:
        yield piece, font


def _font_of(letter: str, *, bold: bool) -> str:
    code = ord(letter)
    if 0x3040 <= code <= 0x30FF:
        return _JAPANESE
    if 0xAC00 <= code <= 0xD7AF or 0x1100 <= code <= 0x11FF:
        return _KOREAN
    if 0x2E80 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0xFF00 <= code <= 0xFFEF:
        return _CHINESE
    return _BOLD if bold else _SANS


@cache
def _register() -> None:
    """Set up the library and its fonts, once per process."""
    from reportlab import rl_config  # noqa: PLC0415
    from reportlab.pdfbase import pdfmetrics  # noqa: PLC0415
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont  # noqa: PLC0415
    from reportlab.pdfbase.ttfonts import TTFont  # noqa: PLC0415

    for setting, value in _LIBRARY_SETTINGS.items():
        setattr(rl_config, setting, value)
    for name in (_SANS, _BOLD):  # of the glyphs used alone; text is extracted by the ToUnicode map
        pdfmetrics.registerFont(TTFont(name, str(_FONTS / f"{name}.ttf"), asciiReadable=0, shapable=False))
    for name in (_JAPANESE, _KOREAN, _CHINESE):
        pdfmetrics.registerFont(UnicodeCIDFont(name))
