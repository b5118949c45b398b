"""Invoices as PDF: stable bytes, readable text in many scripts."""

import hashlib
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from importlib import resources
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.accounts.bidi import visual_order
from engine.accounts.billing import invoice_pdf, tax
from engine.accounts.billing.money import formatted
from engine.accounts.billing.prices import BadPrices, read_prices
from engine.accounts.billing.rows import InvoiceRow


def invoice(name: str, *, lines: int = 1) -> InvoiceRow:
    return InvoiceRow(
        id=UUID(int=1), account_id=UUID(int=2), number="WB-2026-000001", kind="invoice", status="paid",
        issued_at=datetime(2026, 11, 22, tzinfo=UTC), period_start=datetime(2026, 11, 22, 10, tzinfo=UTC),
        period_end=datetime(2026, 12, 22, 10, tzinfo=UTC), plan="starter", billing_interval="month", currency="EUR",
        subtotal=1_900, tax=361, total=2_261, tax_rate="0.19", reverse_charge=False,
        lines=orjson.dumps([{"description": f"Line {place}", "amount": 1} for place in range(lines)]).decode(),
        seller='{"name": "Seller"}', buyer=orjson.dumps({
            "legal_name": name, "country": "DE", "address": None, "tax_id": None, "email": None,
        }).decode(), corrects=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "name", ["Łódź Αθήνα Москва", "東京 カブシキ 서울", "חברת (2024) דוגמה", "شركة 12.5 المثال", "a" * 200]
)
def test_the_bytes_are_the_same_each_time(name: str) -> None:
    first = invoice_pdf.render(invoice(name))

    assert first == invoice_pdf.render(invoice(name))
    assert first.startswith(b"%PDF-")


# The digest of an invoice in six scripts, with reportlab and arabic-reshaper as ops/lock pins them.
DIGEST = "30a357a2c9d4550fdb21aebdd2d32907a1146d91a804b7f37fed17d4028dccbb"
RENDER = """
from hashlib import sha256
from engine.accounts.billing.invoice_pdf import render
from tests.accounts.billing.test_invoice_pdf import SCRIPTS, invoice
print(sha256(render(invoice(SCRIPTS, lines=50))).hexdigest())
"""
SCRIPTS = "Łódź Αθήνα Москва 東京 カブシキ 서울 חברת دمة"


@pytest.mark.exhaustive
def test_another_machine_makes_the_same_bytes() -> None:
    """The environment, locale, time zone and hash seed change nothing, and neither does a version of zlib."""
    elsewhere = {
        "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7", "RL_useA85": "1", "RL_pdfComments": "1",
        "RL_pageCompression": "1", "RL_ttfAsciiReadable": "1", "RL_canvas_basefontname": "Courier",
    }  # fmt: skip

    found = subprocess.run(
        [sys.executable, "-c", RENDER], env=os.environ | elsewhere, check=True, capture_output=True, text=True
    )

    assert hashlib.sha256(invoice_pdf.render(invoice(SCRIPTS, lines=50))).hexdigest() == DIGEST
    assert found.stdout.strip() == DIGEST


def test_many_lines_go_on_further_pages() -> None:
    content = invoice_pdf.render(invoice("Ann", lines=120))

    assert len(re.findall(rb"/Type /Page\b", content)) == 3


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Müller GmbH", "Müller GmbH"),
        ("אבג", "גבא"),
        ("אב 123 גד", "דג 123 בא"),
        ("(אב)", "(בא)"),
        ("ABC אבג DEF", "ABC גבא DEF"),
        ("אב ABC גד", "דג ABC בא"),
        ("אב 1,234.50 ג", "ג 1,234.50 בא"),
    ],
)
def test_right_to_left_text_is_drawn_in_visual_order(text: str, shown: str) -> None:
    assert visual_order(text) == shown


@given(st.text(max_size=40))
def test_reordering_keeps_every_character_of_hebrew_and_other_text(text: str) -> None:
    plain = "".join(letter for letter in text if not "\u0600" <= letter <= "\u08ff" and letter not in "()[]{}<>«»‹›")

    assert sorted(visual_order(plain + "א")) == sorted(plain + "א")


@pytest.mark.parametrize(
    ("amount", "currency", "shown"),
    [
        (123_450, "EUR", "EUR 1,234.50"),
        (-5, "EUR", "EUR -0.05"),
        (1_234, "JPY", "JPY 1,234"),
        (1_234, "KWD", "KWD 1.234"),
    ],
)
def test_amounts_have_the_decimals_of_their_currency(amount: int, currency: str, shown: str) -> None:
    assert formatted(amount, currency) == shown


RATES = {"DE": Decimal(19), "FR": Decimal(20)}


@pytest.mark.parametrize(
    ("country", "tax_id", "expected"),
    [
        ("DE", "DE123456789", ("0.19", 361, False)),  # in the seller's own country
        ("FR", "FR12345678901", ("0", 0, True)),  # a business in another member state
        ("FR", None, ("0.2", 380, False)),  # a person there
        ("US", "12-3456789", ("0", 0, False)),
    ],
)
def test_tax_follows_country_and_vat_id(country: str, tax_id: str | None, expected: tuple[str, int, bool]) -> None:
    found = tax.decide(1_900, rates=RATES, seller_country="DE", country=country, tax_id=tax_id)

    assert (found.rate, found.tax, found.reverse_charge) == expected


@pytest.mark.parametrize(
    "text",
    [
        "starter", "starter:month=1", "starter:month:EUR=x", "free:month:EUR=1", "starter:week:EUR=1",
        "starter:month:eur=1", "starter:month:EUR=0", "starter:month:EUR=1,starter:month:EUR=2",
    ],
)  # fmt: skip
def test_a_wrong_price_is_named(text: str) -> None:
    with pytest.raises(BadPrices):
        read_prices(text)


def test_countries_are_the_249_codes_of_iso_3166() -> None:
    letters = [chr(one) for one in range(ord("A"), ord("Z") + 1)]
    known = {first + second for first in letters for second in letters if tax.is_country(first + second)}

    assert len(known) == 249
    assert known > tax.EU | {"AX", "CH", "GB", "US", "ZW"}
    assert not known & {"AA", "EL", "EU", "UK", "XI", "XK", "ZZ"}
    console = (resources.files("api") / "console/files/app/parts/billing_profile.js").read_text("utf-8")
    [offered] = re.findall('const CODES = "([A-Z ]+)"', console)
    assert set(offered.split()) == known
    assert not any(map(tax.is_country, ("", "de", "D", "DEU", "#c")))
