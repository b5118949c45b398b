"""Billing periods over all dates, and the credit for their unused time."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.accounts.billing.periods import BillingInterval, BillingPeriod, add_months, period, unused_credit

EVERY_DAY = [datetime(2024, 1, 1, 12, 30, 15, tzinfo=UTC) + timedelta(days=day) for day in range(4 * 365 + 1)]
TIMES = st.integers(0, 12 * 365 * 86_400).map(lambda seconds: EVERY_DAY[0] + timedelta(seconds=seconds))


@pytest.mark.parametrize("interval", BillingInterval)
def test_periods_of_every_start_follow_one_another_without_gap_and_keep_the_day(interval: BillingInterval) -> None:
    for anchor in EVERY_DAY:
        first = anchor.year * 12 + anchor.month
        end = anchor
        for number in range(14):
            one = period(anchor, interval, number)
            assert end == one.start < one.end
            end = one.end
            assert one.start.timetz() == anchor.timetz()
            assert one.start.year * 12 + one.start.month == first + number * interval.months
            # Only the last day of a short month stands in for a missing one.
            assert one.start.day == anchor.day or (one.start + timedelta(days=1)).day == 1


def test_the_31st_comes_back_after_a_short_month() -> None:
    starts = [period(datetime(2026, 1, 31, tzinfo=UTC), BillingInterval.MONTH, number).start for number in range(4)]

    assert [(start.month, start.day) for start in starts] == [(1, 31), (2, 28), (3, 31), (4, 30)]


def test_a_leap_day_comes_back_after_four_years() -> None:
    starts = [period(datetime(2024, 2, 29, tzinfo=UTC), BillingInterval.YEAR, number).start for number in range(5)]

    assert [start.day for start in starts] == [29, 28, 28, 28, 29]


@given(TIMES, st.sampled_from(BillingInterval), st.integers(0, 10**9), st.floats(0, 1))
def test_used_and_unused_parts_add_up_to_the_amount(
    anchor: datetime, interval: BillingInterval, amount: int, share: float
) -> None:
    one = period(anchor, interval, 3)
    at = one.start + share * (one.end - one.start)

    credit = unused_credit(amount, one, at)

    assert 0 <= credit <= amount
    left = int((one.end - at).total_seconds())
    assert abs(credit * one.seconds - amount * left) < one.seconds + amount
    assert unused_credit(amount, one, one.start) == amount
    assert unused_credit(amount, one, one.end) == 0


def test_credit_is_counted_by_the_second() -> None:
    day = datetime(2026, 11, 1, tzinfo=UTC)
    month = BillingPeriod(day, add_months(day, 1))

    assert month.seconds == 30 * 86_400
    assert unused_credit(month.seconds, month, day + timedelta(seconds=1)) == month.seconds - 1
    assert unused_credit(month.seconds, month, month.end - timedelta(seconds=1)) == 1
    assert unused_credit(1_900, month, day - timedelta(days=1)) == 1_900
    assert unused_credit(1_900, month, month.end + timedelta(days=1)) == 0
