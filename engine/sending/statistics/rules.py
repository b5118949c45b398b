"""Compute the days and months of a statistics request. Pure."""

import re
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo

from engine.base import clock
from engine.base.errors import Refusal, invalid
from engine.sending.statistics.types import Bucket, Counts, Day, Days

QUARTER = timedelta(minutes=15)  # since 1972, every zone's offset is a multiple of it
DEFAULT_DAYS, MAX_DAYS = 30, 366
MAX_HOUR_DAYS = 31  # of hours: as many rows as two years of days
KEPT_DAYS = 400  # a little longer than the longest series of the API
MONTHS = 13  # the current one and a year back
ZONE_PATTERN = r"^[A-Za-z0-9_+/-]{1,64}$"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTH = re.compile(r"(\d{4})-(\d{2})", re.ASCII)


def zone_of(name: str) -> ZoneInfo:
    """Return a zone by its IANA name; raise the 400 that names `tz`."""
    if name not in _names():
        hint = " Write + as %2B in a query string." if " " in name else ""
        raise invalid(
            "tz", f"`tz` is {name!r}, which isn't an IANA time zone. Use a name such as Europe/Berlin or UTC.{hint}"
        )
    return ZoneInfo(name)


def local_days(zone: ZoneInfo, at: datetime, count: int) -> Days:
    """Return `count` calendar days of a zone, the last of which contains `at`.

    A midnight that a clock change skips is the time of the change; of a midnight that occurs twice, the first counts.
    """
    today = at.astimezone(zone).date()
    dates = [today + timedelta(days=step) for step in range(1 - count, 2)]
    starts = [datetime.combine(one, time(), zone).astimezone(UTC) for one in dates]
    days = [Day(one, start) for one, start in zip(dates[:-1], starts[:-1], strict=True)]
    return Days(days, starts[-1])


def period(
    zone: ZoneInfo, at: datetime, bucket: Bucket, *, days: int | None, since: datetime | None, until: datetime | None
) -> Days:
    """Return the local days or hours from `since` to before `until`, the first and last cut to these times.

    Without `since`, they begin with the day that makes `days`, the last of which contains `at`; by default 30 days, or
    one day of hours. Without `until`, they end with that day. Raises the 400 for an empty or too long period.
    """
    if since is not None and days is not None:
        raise invalid("days", "`days` can't be combined with `from`. Remove one of the two.")
    whole = local_days(zone, at, days or (DEFAULT_DAYS if bucket is Bucket.DAY else 1))
    start, end = since or whole.days[0].starts_at, until or whole.ends_at
    if start >= end:
        raise invalid("until", "`until` must be later than the beginning of the period.")
    longest = timedelta(days=MAX_DAYS if bucket is Bucket.DAY else MAX_HOUR_DAYS)
    if end - start > longest + timedelta(hours=1) or at - start > timedelta(days=MAX_DAYS):
        raise invalid(
            "from" if since is not None else "days",
            f"With `bucket={bucket.value}`, request at most {longest.days} days, beginning at most {MAX_DAYS} days "
            "ago.",
        )
    starts = [start]
    while (following := _next_start(zone, starts[-1], bucket)) < end:
        starts.append(following)
    return Days([Day(one.astimezone(zone).date(), one) for one in starts], end)


def quarter_hour(name: str, text: str) -> datetime:
    """Return a time on a quarter hour from the parameter `name`; raise the 400 for any other text."""
    try:
        found = clock.parse_iso(text)
    except ValueError:
        found = None
    if found is None or not text.endswith("Z") or (found - _EPOCH) % QUARTER:
        raise invalid(name, f"`{name}` must be a UTC time at minute 00, 15, 30 or 45, such as 2026-11-20T08:15:00Z.")
    return found


def _next_start(zone: ZoneInfo, start: datetime, bucket: Bucket) -> datetime:
    """Return the start of the day or hour after the one that contains `start`."""
    local = start.astimezone(zone)
    if bucket is Bucket.DAY:
        return datetime.combine(local.date() + timedelta(days=1), time(), zone).astimezone(UTC)
    following = (start + timedelta(hours=1)).astimezone(zone)
    begun = timedelta(minutes=following.minute, seconds=following.second, microseconds=following.microsecond)
    aligned = following.astimezone(UTC) - begun
    return aligned if aligned > start else start + timedelta(hours=1)


def quarter_of(at: datetime) -> int:
    """Return the number of quarter hours since 1970, as the database computes it."""
    return (at - _EPOCH) // QUARTER


def rate(part: int, counts: Counts) -> float | None:
    """Return `part` as a share of the settled messages, None if there are none."""
    return round(part / counts.settled, 6) if counts.settled else None


def month_of(text: str | None, at: datetime) -> date:
    """Return the first day of a month such as `2026-11` (None: the month of `at`); raise the 400 for an invalid one."""
    present = clock.first_of_month(at.date())
    if text is None:
        return present
    month = _first_of(text)
    oldest = _back(present, MONTHS - 1)
    if month is None or not oldest <= month <= present:
        raise _bad_month(oldest, present)
    return month


def days_of(month: date, at: datetime) -> list[date]:
    """Return the days of a month, up to the day of `at`."""
    following = clock.first_of_month(month + timedelta(days=32))
    end = min(following, at.date() + timedelta(days=1))
    return [month + timedelta(days=step) for step in range((end - month).days)]


def _first_of(text: str) -> date | None:
    match = _MONTH.fullmatch(text)
    if match is None or not 1 <= int(match[2]) <= 12 or int(match[1]) < 1:
        return None
    return date(int(match[1]), int(match[2]), 1)


def _back(month: date, count: int) -> date:
    for _ in range(count):
        month = clock.first_of_month(month - timedelta(days=1))
    return month


def _bad_month(oldest: date, present: date) -> Refusal:
    return invalid("month", f"`month` must be from {oldest:%Y-%m} to {present:%Y-%m}, in this form.")


@cache
def _names() -> frozenset[str]:
    """Return the zones of the package tzdata, not of other files on the host."""
    return frozenset((resources.files("tzdata") / "zones").read_text("utf-8").split())
