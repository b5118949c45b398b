"""Decide which domain a report is about, and on which day its rows count. Pure."""

from datetime import date, datetime, timedelta

from engine.areas.analytics.types import Period

MAX_DAYS = 90  # of a request, unless an agreement has raised the account's analytics window
KEPT_DAYS = 100  # of reports, and of delivery counts unless an agreement keeps them longer


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


def period(days: int, at: datetime) -> Period:
    """Return the last `days` UTC days, today included."""
    return Period(at.date() - timedelta(days=days - 1), at.date())


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
