"""Read the prices that the operator sets. Pure.

`WAYBILL_PRICES` holds one price for each plan, interval and currency: `starter:month:EUR=1900,starter:year:EUR=19000`,
in minor units without tax.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from engine.accounts.billing.money import MAX_AMOUNT, is_currency
from engine.accounts.billing.periods import BillingInterval
from engine.base.plans import Plan

FOR_SALE: Final = (Plan.STARTER, Plan.GROWTH, Plan.SCALE)  # Free costs nothing, Enterprise is agreed upon


class BadPrices(ValueError):  # noqa: N818 - named for what is bad
    """The text is no price list; the message says where, and what is expected."""


class PlanPrice(Struct, frozen=True):
    """The price of a plan for one period, in minor units without tax."""

    plan: Plan
    interval: BillingInterval
    currency: str
    amount: int


class PriceList(Struct, frozen=True):
    """All prices of the installation, in the order in which they were set."""

    prices: tuple[PlanPrice, ...] = ()

    def find(self, plan: str, interval: str, currency: str) -> PlanPrice | None:
        """Return the price, None if the plan is not for sale at this interval in this currency."""
        for price in self.prices:
            if (price.plan, price.interval, price.currency) == (plan, interval, currency):
                return price
        return None

    def currencies(self) -> tuple[str, ...]:
        """Return the currencies, the default one first."""
        return tuple(dict.fromkeys(price.currency for price in self.prices))


def read_prices(text: str) -> PriceList:
    """Return the price list; raises BadPrices."""
    prices = tuple(_prices(text))
    seen = set()
    for price in prices:
        key = (price.plan, price.interval, price.currency)
        if key in seen:
            raise BadPrices(f"`{price.plan}:{price.interval}:{price.currency}` has two prices. Keep one of them.")
        seen.add(key)
    return PriceList(prices)


def _prices(text: str) -> Iterator[PlanPrice]:
    for entry in filter(None, map(str.strip, text.split(","))):
        name, separator, amount = entry.partition("=")
        parts = name.strip().split(":")
        if not separator or len(parts) != 3:
            raise BadPrices(
                f"`{entry}` is not a price. Write `plan:interval:CURRENCY=amount`, as starter:month:EUR=1900."
            )
        plan, interval, currency = parts
        yield PlanPrice(
            _plan(plan, entry), _interval(interval, entry), _currency(currency, entry), _amount(amount, entry)
        )


def _plan(text: str, entry: str) -> Plan:
    if text not in FOR_SALE:
        raise BadPrices(f"`{text}` in `{entry}` is not a plan for sale. These are: {', '.join(FOR_SALE)}.")
    return Plan(text)


def _interval(text: str, entry: str) -> BillingInterval:
    try:
        return BillingInterval(text)
    except ValueError:
        raise BadPrices(f"`{text}` in `{entry}` is not an interval. Write `month` or `year`.") from None


def _currency(text: str, entry: str) -> str:
    if not is_currency(text):
        raise BadPrices(f"`{text}` in `{entry}` is not a currency. Write three capital letters, such as EUR.")
    return text


def _amount(text: str, entry: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 13 and 0 < int(digits) <= MAX_AMOUNT):
        raise BadPrices(f"`{text}` in `{entry}` is not an amount. Write minor units, such as 1900 for EUR 19.00.")
    return int(digits)
