"""Time as the service writes it: aware UTC inside, ISO 8601 with milliseconds and `Z` outside."""

import math
import re
from datetime import UTC, date, datetime, timedelta

_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?(Z|[+-]\d{2}:?\d{2})", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def now() -> datetime:
    """The present, aware, UTC, in whole milliseconds: what is hashed is what is stored and shown."""
    return whole_milliseconds(datetime.now(UTC))


def whole_milliseconds(at: datetime) -> datetime:
    """Without what is below a millisecond."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def iso(at: datetime) -> str:
    """`2026-11-20T08:09:10.123Z`."""
    utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds")[:-6] + "Z"


def parse_iso(text: str) -> datetime:
    """An ISO 8601 date-time with `Z` or a numeric offset; raises ValueError for anything else.

    The offset may stand without its colon, as `strftime` and PHP's DATE_ISO8601 write it.
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


def milliseconds(at: datetime) -> int:
    """Unix time in whole milliseconds; exact, as a product of floats would not be."""
    return (at - _EPOCH) // _MILLISECOND


def seconds_until_next_day(at: datetime) -> int:
    """Whole seconds from `at` to the next midnight UTC, never short of it: who waits so long finds the new day."""
    midnight = datetime.combine(at.date() + timedelta(days=1), datetime.min.time(), UTC)
    return math.ceil((midnight - at).total_seconds())


def first_of_month(day: date) -> date:
    """The first day of the calendar month that holds `day`."""
    return day.replace(day=1)


def seconds_until_next_month(at: datetime) -> int:
    """Whole seconds from `at` to the first of the next month, UTC, never short of it."""
    first = (first_of_month(at.date()) + timedelta(days=32)).replace(day=1)
    return math.ceil((datetime.combine(first, datetime.min.time(), UTC) - at).total_seconds())
