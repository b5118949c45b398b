"""Amounts of money: integers in minor units of a currency (ISO 4217). Pure."""

from fractions import Fraction
from typing import Final

MAX_AMOUNT: Final = 10**12  # minor units: far above any invoice, and exact in JSON numbers

# Currencies whose minor unit is not a hundredth (ISO 4217, list one, published 1 January 2024).
_EXPONENTS: Final = {
    **dict.fromkeys(
        ("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF",
         "XOF", "XPF"), 0,
    ),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
}  # fmt: skip


def exponent_of(currency: str) -> int:
    """Return the number of decimals of a currency."""
    return _EXPONENTS.get(currency, 2)


def is_currency(text: str) -> bool:
    """Return True for three upper-case letters, the form of a currency code."""
    return len(text) == 3 and text.isascii() and text.isalpha() and text.isupper()


def formatted(amount: int, currency: str) -> str:
    """Return an amount for people, such as `EUR 1,234.50` or `JPY 1,234`."""
    decimals = exponent_of(currency)
    sign = "-" if amount < 0 else ""
    whole, rest = divmod(abs(amount), 10**decimals)
    fraction = f".{rest:0{decimals}d}" if decimals else ""
    return f"{currency} {sign}{whole:,}{fraction}"


def rounded(amount: Fraction) -> int:
    """Round to minor units, halves away from zero, as invoices do."""
    doubled = 2 * abs(amount) + 1
    units = doubled.numerator // (2 * doubled.denominator)
    return -units if amount < 0 else units


def tax_of(net: int, rate: Fraction) -> int:
    """Return the tax on a net amount at a rate such as 19/100."""
    return rounded(net * rate)
