"""Timestamps: exact round trips, limits, and the ends of days and months."""

import contextlib
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base import clock

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
moments = st.integers(0, 7_258_118_400_000_000).map(lambda micros: EPOCH + timedelta(microseconds=micros))  # to 2200


def whole(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def test_now_is_aware_and_in_whole_milliseconds() -> None:
    at = clock.now()

    assert at.tzinfo is UTC
    assert at.microsecond % 1000 == 0
    assert abs(at - datetime.now(UTC)) < timedelta(seconds=5)


@given(moments)
def test_what_is_written_reads_back(at: datetime) -> None:
    text = clock.iso(whole(at))

    assert clock.parse_iso(text) == whole(at)
    assert len(text) == 24
    assert text.endswith("Z")


@given(moments, st.integers(-14 * 60, 14 * 60))
def test_every_zone_is_written_as_utc(at: datetime, minutes: int) -> None:
    elsewhere = whole(at).astimezone(timezone(timedelta(minutes=minutes)))

    assert clock.iso(elsewhere) == clock.iso(whole(at))
    assert clock.parse_iso(elsewhere.isoformat(timespec="milliseconds")) == whole(at)


@given(moments)
def test_milliseconds_are_exact(at: datetime) -> None:
    exact = (whole(at) - EPOCH) // timedelta(milliseconds=1)

    assert clock.milliseconds(whole(at)) == exact


@given(st.integers(2_147_483_648_000, 2_199_000_000_000))
def test_milliseconds_are_exact_where_floats_are_not(at_ms: int) -> None:
    """In 2038 and 2039 a float product of the time stamp falls short now and then."""
    assert clock.milliseconds(EPOCH + timedelta(milliseconds=at_ms)) == at_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-20T08:09:10Z", datetime(2026, 11, 20, 8, 9, 10, tzinfo=UTC)),
        ("2026-11-20T08:09Z", datetime(2026, 11, 20, 8, 9, tzinfo=UTC)),
        ("2026-11-20T08:09:10.5Z", datetime(2026, 11, 20, 8, 9, 10, 500_000, tzinfo=UTC)),
        ("2026-11-20T08:09:10.123456789Z", datetime(2026, 11, 20, 8, 9, 10, 123_456, tzinfo=UTC)),
        ("2026-11-20T08:09:10+02:30", datetime(2026, 11, 20, 5, 39, 10, tzinfo=UTC)),
        ("2026-11-20T08:09:10+0230", datetime(2026, 11, 20, 5, 39, 10, tzinfo=UTC)),
        ("2026-11-20T22:09:10-05:00", datetime(2026, 11, 21, 3, 9, 10, tzinfo=UTC)),
        ("2024-02-29T00:00:00Z", datetime(2024, 2, 29, tzinfo=UTC)),
    ],
)
def test_usual_forms_are_read(text: str, expected: datetime) -> None:
    assert clock.parse_iso(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-20",
        "2026-11-20T08:09:10",  # whose clock?
        "2026-11-20 08:09:10Z",
        "2026-11-20T08:09:10z",
        "2026-11-20T08:09:10+02",
        "2026-11-20T08:09:10+023",
        "2026-11-20T08:09:10+24:00",
        "2026-11-20T08:09:10+01:60",
        "2026-11-20T24:00:00Z",
        "2026-11-20T08:60:00Z",
        "2026-11-20T08:09:60Z",
        "2026-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "2026-11-20T08:09:10Z\n",
        "٢٠٢٦-11-20T08:09:10Z",
        "1763625600",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        clock.parse_iso(text)


@given(st.text(max_size=40))
def test_no_text_fails_otherwise(text: str) -> None:
    with contextlib.suppress(ValueError):
        clock.parse_iso(text)


@given(moments)
def test_the_next_day_and_month_begin_at_midnight(at: datetime) -> None:
    day = at + timedelta(seconds=clock.seconds_until_next_day(at))
    month = at + timedelta(seconds=clock.seconds_until_next_month(at))

    late = day - datetime.combine(at.date() + timedelta(days=1), datetime.min.time(), UTC)
    assert timedelta(0) <= late < timedelta(seconds=1)
    assert 1 <= clock.seconds_until_next_day(at) <= 86_400
    assert 1 <= clock.seconds_until_next_month(at) <= 31 * 86_400
    assert month.date().replace(day=1) > at.date()


@pytest.mark.parametrize(
    ("at", "day_s", "month_s"),
    [
        (datetime(2026, 11, 30, 23, 59, 59, 900_000, tzinfo=UTC), 1, 1),
        (datetime(2026, 11, 30, 23, 59, 58, 900_000, tzinfo=UTC), 2, 2),
        (datetime(2026, 12, 31, 23, 59, 0, tzinfo=UTC), 60, 60),
        (datetime(2024, 2, 28, 0, 0, 0, tzinfo=UTC), 86_400, 2 * 86_400),
        (datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC), 43_200, 43_200),
    ],
)
def test_ends_of_days_and_months(at: datetime, day_s: int, month_s: int) -> None:
    assert clock.seconds_until_next_day(at) == day_s
    assert clock.seconds_until_next_month(at) == month_s


def test_the_first_of_a_month() -> None:
    assert clock.first_of_month(date(2026, 11, 20)) == date(2026, 11, 1)
