"""Read and convert times: aware UTC inside the service; ISO 8601 with milliseconds and `Z` outside. Used everywhere.

There are two clocks. Service time decides what is due, expired or a new day, and dates all records; local mode can move
it forward (engine.store.service_time). Machine time never moves: it measures durations and leases, and is compared with
the clocks of others. `time.monotonic()` and the event loop have machine time; in SQL, `pg_catalog.now()` is its mark.
"""

import math
import re
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from enum import IntEnum

_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?(Z|[+-]\d{2}:?\d{2})", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)


class Calls(IntEnum):
    """The loops that a jump of service time wakes to look for due work; each group includes those before it."""

    MAIL = 0  # deliveries and webhook posts, and appointments that are due
    QUEUES = 1  # jobs that take from a queue
    ALL = 2  # jobs that look seldom, if they are due


_ahead_us: Callable[[], int] | None = None  # how far service time is ahead, in microseconds; None: it never is


def follow(ahead_us: Callable[[], int] | None) -> None:
    """Move the service time of this process by `ahead_us`, which never falls; None: service time is machine time."""
    global _ahead_us  # noqa: PLW0603 - set once when a process of local mode starts
    _ahead_us = ahead_us


def can_move() -> bool:
    """Return True if the service time of this process can move: in local mode."""
    return _ahead_us is not None


def now() -> datetime:
    """Return the service time: aware, UTC, in whole milliseconds, so that hashed, stored and shown times are equal."""
    at = datetime.now(UTC)
    return whole_milliseconds(at if _ahead_us is None else at + _ahead_us() * _MICROSECOND)


def unix_ms() -> int:
    """Return the service time as Unix time in whole milliseconds."""
    return (time.time_ns() if _ahead_us is None else time.time_ns() + _ahead_us() * 1000) // 1_000_000


def unix_s() -> int:
    """Return the service time as Unix time in whole seconds."""
    return unix_ms() // 1000


def monotonic() -> float:
    """Return seconds that pass with service time and never fall, for waits and ages that service time decides."""
    return time.monotonic() if _ahead_us is None else time.monotonic() + ahead_s()


def ahead_s() -> float:
    """Return by how many seconds service time is ahead of machine time."""
    return 0.0 if _ahead_us is None else _ahead_us() / 1_000_000


def machine_now() -> datetime:
    """Return the machine's time: aware, UTC, in whole milliseconds; for what is compared with the clocks of others."""
    return whole_milliseconds(datetime.now(UTC))


def machine_time(at: datetime) -> datetime:
    """Return the machine's time at the service time `at`, if the clock was not moved in between."""
    return at if _ahead_us is None else at - _ahead_us() * _MICROSECOND


def whole_milliseconds(at: datetime) -> datetime:
    """Round `at` down to a whole millisecond."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def iso(at: datetime) -> str:
    """Format a time as `2026-11-20T08:09:10.123Z`."""
    utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds")[:-6] + "Z"


def iso_or_none(at: datetime | None) -> str | None:
    """Format a time as `iso` does, None as None."""
    return None if at is None else iso(at)


def parse_iso(text: str) -> datetime:
    """Parse an ISO 8601 date-time with `Z` or a numeric offset. Raises ValueError for anything else.

    The offset may lack its colon, as `strftime` and PHP's DATE_ISO8601 write it.
    """
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError("expected an ISO 8601 date-time with Z or a numeric offset")
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    micro = int((fraction or "0").ljust(6, "0")[:6])
    offset = timedelta()
    if zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        if hours > 23 or minutes > 59:
            raise ValueError("the offset is out of range")
        offset = timedelta(hours=hours, minutes=minutes) * (1 if zone[0] == "+" else -1)
    local = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), micro, UTC)
    try:
        return local - offset
    except OverflowError as error:
        raise ValueError("the date is out of range") from error


def microseconds(at: datetime) -> int:
    """Return the Unix time in whole microseconds, which is the precision of a datetime."""
    return (at - _EPOCH) // _MICROSECOND


def from_microseconds(number: int) -> datetime:
    """Return the time (UTC) of a Unix time in microseconds; raises OverflowError beyond the year 9999."""
    return _EPOCH + number * _MICROSECOND


def milliseconds(at: datetime) -> int:
    """Return the Unix time in whole milliseconds, without the rounding errors of float arithmetic."""
    return (at - _EPOCH) // _MILLISECOND


def at_milliseconds(unix_ms: int) -> datetime:
    """Return the time of a Unix time in milliseconds."""
    return _EPOCH + unix_ms * _MILLISECOND


def seconds_until_next_day(at: datetime) -> int:
    """Return the seconds from `at` to the next midnight UTC, rounded up, for use as a Retry-After."""
    midnight = datetime.combine(at.date() + timedelta(days=1), datetime.min.time(), UTC)
    return math.ceil((midnight - at).total_seconds())


def first_of_month(day: date) -> date:
    """Return the first day of the calendar month of `day`."""
    return day.replace(day=1)


def seconds_until_next_month(at: datetime) -> int:
    """Return the seconds from `at` to the first of the next month (UTC), rounded up."""
    first = (first_of_month(at.date()) + timedelta(days=32)).replace(day=1)
    return math.ceil((datetime.combine(first, datetime.min.time(), UTC) - at).total_seconds())
