"""Decide which domain a report is about, on which day its rows count, and how much of it is stored. Pure."""

from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from typing import Final

from engine.receiving.analytics.types import Arrived, Period

MAX_DAYS = 90  # of a request, unless an agreement has raised the account's analytics window
KEPT_DAYS = 100  # of reports, and of delivery counts unless an agreement keeps them longer
# Report addresses stand in DNS, so anybody can send reports to them.
MAX_REPORT_ROWS: Final = 1_000  # stored of one report, those with the largest counts
MAX_ROWS_DAILY: Final = 10_000  # stored of the reports about a domain that arrive on a UTC day
MAX_REPORTS_DAILY: Final = 2_000  # counted of the reports of one kind about a domain that arrive on a UTC day
MAX_TEXT: Final = 128  # characters of a reporter's name, a report id and other words of a report
_HASH: Final = 64  # hexadecimal digits of SHA-256


def concerns(policy_domain: str, domain: str) -> bool:
    """Return True if a report about `policy_domain` belongs at the report address of `domain`.

    That is the domain itself, one below it, or one above it, such as its organizational domain (RFC 9990). Both are in
    lower-case A-labels.
    """
    if not policy_domain:
        return False
    return policy_domain == domain or policy_domain.endswith(f".{domain}") or domain.endswith(f".{policy_domain}")


def day_of(begin: datetime | None, received_at: datetime) -> date:
    """Return the UTC day on which the rows of a report count: that of `begin`, or of the arrival.

    The clocks of reporters may be wrong: a begin over KEPT_DAYS in the past, or in the future, does not count.
    """
    arrival = received_at.date()
    if begin is None or begin > received_at or begin.date() < arrival - timedelta(days=KEPT_DAYS):
        return arrival
    return begin.date()


def start_of_arrivals(received_at: datetime) -> datetime:
    """Return the beginning of the UTC day of arrival, from which the daily limits count."""
    return datetime.combine(received_at.astimezone(UTC).date(), datetime.min.time(), UTC)


def rows_left(arrived: Arrived) -> int | None:
    """Return how many rows the next report of the day may store; None if it doesn't count any more."""
    if arrived.reports >= MAX_REPORTS_DAILY:
        return None
    return max(0, min(MAX_REPORT_ROWS, MAX_ROWS_DAILY - arrived.stored_rows))


def stored_text(text: str) -> str:
    """Return a text of at most MAX_TEXT characters; a longer one ends with its hash, so that it stays distinct."""
    if len(text) <= MAX_TEXT:
        return text
    return text[: MAX_TEXT - _HASH] + sha256(text.encode("utf-8", "replace")).hexdigest()


def period(days: int, at: datetime) -> Period:
    """Return the last `days` UTC days, today included."""
    return Period(at.date() - timedelta(days=days - 1), at.date())


def bounds(wanted: Period) -> tuple[datetime, datetime]:
    """Return the beginning and the end of a period."""
    since = datetime.combine(wanted.since, datetime.min.time(), UTC)
    return since, datetime.combine(wanted.until + timedelta(days=1), datetime.min.time(), UTC)


def monday_of(day: date) -> date:
    """Return the first day of the calendar week of `day`."""
    return day - timedelta(days=day.weekday())


def whole_weeks(period: Period) -> tuple[date, date]:
    """Return the Monday of the first week that lies in `period` as a whole, and the Monday after the last one.

    Both are the day after the period if no week does.
    """
    after = period.until + timedelta(days=1)
    first, end = monday_of(period.since + timedelta(days=6)), monday_of(after)
    return (first, end) if first < end else (after, after)
