"""Compute billing periods from the time at which a subscription began. Pure; all times in UTC.

Period n begins n intervals after the anchor. Each is computed from the anchor itself, never from the period before it,
so that a period that was cut to a short month does not shift those that follow: 31 January, 28 February, 31 March.
"""

from calendar import monthrange
from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class BillingInterval(StrEnum):
    """The length of a billing period."""

    MONTH = "month"
    YEAR = "year"

    @property
    def months(self) -> int:
        """Return the length in calendar months."""
        return 12 if self is BillingInterval.YEAR else 1


class BillingPeriod(Struct, frozen=True):
    """A billing period: `start` belongs to it, `end` to the next one."""

    start: datetime
    end: datetime

    @property
    def seconds(self) -> int:
        """Return the length in whole seconds."""
        return _seconds(self.start, self.end)


def add_months(anchor: datetime, months: int) -> datetime:
    """Return the time so many calendar months later, on the last day of a month that is too short."""
    year, month = divmod(anchor.year * 12 + anchor.month - 1 + months, 12)
    day = min(anchor.day, monthrange(year, month + 1)[1])
    return anchor.replace(year=year, month=month + 1, day=day)


def period(anchor: datetime, interval: BillingInterval, number: int) -> BillingPeriod:
    """Return period `number` (from 0) of a subscription that began at `anchor`."""
    step = interval.months
    return BillingPeriod(add_months(anchor, number * step), add_months(anchor, (number + 1) * step))


def unused_credit(amount: int, current: BillingPeriod, at: datetime) -> int:
    """Return the share of `amount`, paid for the whole period, that the time from `at` to its end is worth.

    Rounds down: what was used and what is credited add up to `amount`. Counts whole seconds.
    """
    left = min(max(_seconds(at, current.end), 0), current.seconds)
    return amount * left // current.seconds


def _seconds(start: datetime, end: datetime) -> int:
    span = end - start
    return span.days * 86_400 + span.seconds
