"""Decide the tax on an invoice, and check the form of VAT ids. Pure.

The operator sets rates by the buyer's country. A business in another member state of the EU pays no VAT here: the
reverse charge of Council Directive 2006/112/EC, Article 196; the invoice says so in words (Article 226, point 11a).
"""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Final

from msgspec import Struct

from engine.accounts.billing.money import tax_of

EU: Final = frozenset(
    ("AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU", "IE", "IT", "LT", "LU", "LV",
     "MT", "NL", "PL", "PT", "RO", "SE", "SI", "SK")
)  # fmt: skip
REVERSE_CHARGE: Final = "Reverse charge: the customer is liable for the VAT (Article 196 of Directive 2006/112/EC)."

# Structure of VAT identification numbers (European Commission, VIES, "VAT number structure"). Greece uses EL.
_VAT_FORMS: Final = {
    "AT": r"ATU\d{8}", "BE": r"BE[01]\d{9}", "BG": r"BG\d{9,10}", "CY": r"CY\d{8}[A-Z]", "CZ": r"CZ\d{8,10}",
    "DE": r"DE\d{9}", "DK": r"DK\d{8}", "EE": r"EE\d{9}", "ES": r"ES[A-Z0-9]\d{7}[A-Z0-9]", "FI": r"FI\d{8}",
    "FR": r"FR[A-Z0-9]{2}\d{9}", "GR": r"EL\d{9}", "HR": r"HR\d{11}", "HU": r"HU\d{8}",
    "IE": r"IE(\d{7}[A-Z]{1,2}|\d[A-Z+*]\d{5}[A-Z])", "IT": r"IT\d{11}", "LT": r"LT(\d{9}|\d{12})", "LU": r"LU\d{8}",
    "LV": r"LV\d{11}", "MT": r"MT\d{8}", "NL": r"NL[A-Z0-9+*]{12}", "PL": r"PL\d{10}", "PT": r"PT\d{9}",
    "RO": r"RO\d{2,10}", "SE": r"SE\d{12}", "SI": r"SI\d{8}", "SK": r"SK\d{10}",
}  # fmt: skip


class BadTaxRates(ValueError):  # noqa: N818 - named for what is bad
    """The text is no list of tax rates; the message says where, and what is expected."""


class TaxDecision(Struct, frozen=True):
    """The tax on a net amount. `rate` is a decimal fraction in text, such as `0.19`."""

    rate: str
    tax: int
    reverse_charge: bool = False


def read_rates(text: str) -> dict[str, Decimal]:
    """Return percentages by country from `DE=19,FR=20,CH=8.1`; raises BadTaxRates."""
    rates: dict[str, Decimal] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        country, _, percent = (part.strip() for part in entry.partition("="))
        try:
            rate = Decimal(percent)
        except InvalidOperation:
            rate = Decimal(-1)
        if not (is_country(country) and 0 <= rate <= 100):
            raise BadTaxRates(f"`{entry}` is not a tax rate. Write country=percent, such as DE=19.")
        rates[country] = rate
    return rates


def is_country(text: str) -> bool:
    """Return True for a country code of ISO 3166-1 alpha-2, in upper case."""
    return text in _countries()


@cache
def _countries() -> frozenset[str]:
    """Return the codes in the table of the package tzdata, whose source is ISO 3166-1."""
    table = (resources.files("tzdata") / "zoneinfo" / "iso3166.tab").read_text("utf-8")
    return frozenset(line.partition("\t")[0] for line in table.splitlines() if not line.startswith("#"))


def tidy_tax_id(text: str) -> str:
    """Return a tax id in upper case without blanks, dots and hyphens."""
    return re.sub(r"[\s.\-]", "", text).upper()


def is_vat_id(country: str, tax_id: str) -> bool:
    """Return True if a tidied tax id has the form of the country's VAT ids; False outside the EU."""
    form = _VAT_FORMS.get(country)
    return form is not None and re.fullmatch(form, tax_id) is not None


def decide(
    net: int, *, rates: Mapping[str, Decimal], seller_country: str | None, country: str, tax_id: str | None
) -> TaxDecision:
    """Return the tax that a buyer in `country` pays on a net amount; no rate set for the country means no tax."""
    crosses_border = country != seller_country and {country, seller_country} <= EU
    if crosses_border and tax_id is not None and is_vat_id(country, tax_id):
        return TaxDecision("0", 0, reverse_charge=True)
    percent = rates.get(country, Decimal(0))
    rate = percent / 100
    return TaxDecision(f"{rate.normalize():f}", tax_of(net, Fraction(rate)))
