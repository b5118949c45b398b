"""Dates are read in the forms that mail programs write, or not at all: never hours wrong without a warning."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.dates import MAX_DATE, read_date
from engine.mail.received import summarise
from tests.harness.sampling import examples

DAY = "Mon, 18 Nov 2024 "


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("+0100", "08:26:24"), ("-0000", "09:26:24"), ("", "09:26:24"), ("Z", "09:26:24"), ("UT", "09:26:24"),
        ("GMT +0100", "08:26:24"), ("GMT+0100", "08:26:24"), ("GMT+1", "08:26:24"), ("UTC+2", "07:26:24"),
        ("UTC +02:00", "07:26:24"), ("+02:00", "07:26:24"), ("+02", "07:26:24"), ("+2", "07:26:24"), ("-5", "14:26:24"),
        ("PM +0000", "21:26:24"), ("pm", "21:26:24"), ("AM -0500", "14:26:24"), ("p.m. GMT", "21:26:24"),
        ("EST", "14:26:24"), ("-0500 EST", "14:26:24"), ("EST -0500", "14:26:24"), ("CET", "08:26:24"),
        ("CEST", "07:26:24"), ("JST", "00:26:24"), ("+0530 IST", "03:56:24"), ("+0100 (CET)", "08:26:24"),
        ("+0100 (Central European (Winter) Time)", "08:26:24"), ("+0100 Central European Time", "08:26:24"),
        ("(UTC)", "09:26:24"), ("BRT", "12:26:24"), ("NST", "12:56:24"),
        ("XYZ", "09:26:24"), ("A", "09:26:24"), (".123 +0100", "08:26:24"),
    ],
)  # fmt: skip
def test_zones_are_read_in_many_spellings(zone: str, expected: str) -> None:
    blank = "" if zone.startswith(".") else " "
    assert read_date(f"{DAY}09:26:24{blank}{zone}") == datetime.fromisoformat(f"2024-11-18T{expected}+00:00")


@pytest.mark.parametrize(
    "zone",
    ["+0199", "+9959", "+01000", "--0100", "+-0100", "0100", "GMT+", "+01:00:00", "America/New_York", "+0000 PM",
     "EST5EDT", "+0100 2024", "PM AM", "at noon"],
)  # fmt: skip
def test_what_is_not_understood_behind_the_time_makes_the_date_unreadable(zone: str) -> None:
    value = f"{DAY}09:26:24 {zone}"

    assert read_date(value) is None
    found = summarise(f"From: a@b.test\r\nDate: {value}\r\n\r\nx".encode())
    assert (found.date, [one.code for one in found.warnings]) == (None, ["date_unreadable"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Mon , 18 Nov 2024 09:26:24", "09:26:24"),
        ("Mon Nov 18 09:26:24 2024", "09:26:24"), ("Mon Nov 18 09:26:24 2024 +0100", "08:26:24"),
        ("Mon Nov 18 09:26:24 CET 2024", "08:26:24"), ("Mon Nov 18 09:26:24 +0100 2024", "08:26:24"),
        ("Mon Nov 18 2024 09:26:24 GMT+0100 (Central European Standard Time)", "08:26:24"),
        ("Nov 18, 2024 9:26:24 PM +0100", "20:26:24"), ("Monday, 18 November 2024 09:26:24", "09:26:24"),
        ("Mon, 18-Nov-2024 09:26:24 GMT", "09:26:24"), ("18 Nov 24 09.26.24 UTC", "09:26:24"),
        ("2024-11-18 09:26:24 +0100", "08:26:24"), ("2024-11-18T09:26:24.000Z", "09:26:24"),
        ("2024-11-18 09:26:24 UTC", "09:26:24"), ("2024/11/18 09:26:24 PM", "21:26:24"),
        ("2024-11-18T09:26:24+01:00", "08:26:24"), ("20241118T092624Z", "09:26:24"),
        ("Mon, 18 Nov 2024 12:26:24 AM", "00:26:24"), ("Mon, 18 Nov 2024 12:26:24 PM", "12:26:24"),
        ("Mon, 18 Nov 2024 21:26:24 PM", "21:26:24"), ("Mon, 18 Nov 124 09:26:24 +0000", "09:26:24"),
    ],
)  # fmt: skip
def test_forms_of_other_programs_are_read(value: str, expected: str) -> None:
    assert read_date(value) == datetime.fromisoformat(f"2024-11-18T{expected}+00:00")


@pytest.mark.parametrize(
    "value",
    ["", "yesterday", "18 Nov 2024", "Mon, 18 Nov 2024 24:00:00 +0000", "Mon, 18 Nov 2024 09:26:75 +0000",
     "11/18/2024 09:26", "Mon, 18 Nov 20245 09:26:24", "Mon, 31 Nov 2024 09:26:24 +0000", "2024-13-18 09:26:24"],
)  # fmt: skip
def test_what_is_no_time_is_not_read(value: str) -> None:
    assert read_date(value) is None


zones = st.one_of(
    st.sampled_from(["+0000", "-0330", "+1400", "-1200", "EST", "GMT", "UT", "EDT", "PST", "(comment)", "+0100 (CET)",
                     "", "GMT +0100", "+02:00", "UTC+2", "PM +0000", "+0100 CET", "+01000", "junk words", "2024"]),
    st.text("+-0123: GMTPA()", max_size=8),
)  # fmt: skip
times = st.datetimes(datetime(1971, 1, 1), datetime(2099, 12, 31))  # noqa: DTZ001


@given(times, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)))
@examples(5_000)
def test_dates_of_the_standard_library_are_read(at: datetime, offset: timedelta) -> None:
    shifted = at.replace(tzinfo=UTC, microsecond=0) + timedelta(minutes=offset.total_seconds() // 60)
    assert read_date(format_datetime(shifted)) == shifted


@given(times, zones)
@examples(5_000)
def test_a_date_is_read_as_the_standard_library_reads_it_unless_a_rule_says_otherwise(at: datetime, zone: str) -> None:
    value = f"{at:%a, %d %b %Y %H:%M:%S} {zone}"
    ours = read_date(value)
    try:
        theirs = parsedate_to_datetime(value)
    except (ValueError, IndexError, TypeError):
        return
    theirs = theirs.replace(tzinfo=theirs.tzinfo or UTC)
    # Rules: Python ignores AM and PM, what stands before or behind an offset, colons in it, and offsets that are none.
    well_formed = zone.strip() in {
        "+0000",
        "-0330",
        "+1400",
        "-1200",
        "EST",
        "GMT",
        "UT",
        "EDT",
        "PST",
        "+0100 (CET)",
        "",
    }
    if well_formed:
        assert ours == theirs
    elif ours is not None and ours != theirs:
        assert any(letter in zone for letter in "+-PpAa") or zone.strip().isalpha()


@given(st.text("Mon, 18Nov2024:+-GTPAM()/T.", max_size=MAX_DATE * 2))
@examples(5_000)
def test_any_text_is_read_or_not(value: str) -> None:
    found = read_date(value)
    assert found is None or found.tzinfo is UTC


@pytest.mark.parametrize("piece", ["1", "(", " ", "Mon ", "1:", "+0", "Mon, 18 Nov 2024 09:26:24 a "])
def test_hostile_dates_take_bounded_time(piece: str) -> None:
    began = time.thread_time()
    read_date(piece * 100_000)
    assert time.thread_time() - began < 0.5
