"""Make and read the cursors of delivery analytics. A cursor keeps the last day, so that all pages show one period."""

import re
from datetime import date, datetime, timedelta

from engine.areas.analytics import rules
from engine.areas.analytics.types import Period
from engine.base.errors import invalid

MAX_OFFSET = 1_000_000
FIRST_DAY = date(2000, 1, 1)  # of a cursor; older ones were made up
_CURSOR = re.compile(r"(\d{4}-\d{2}-\d{2})~(\d{1,7})", re.ASCII)


def cursor(until: date, offset: int) -> str:
    """Return the cursor of the page that begins at row `offset` of a period that ends with the day `until`."""
    return f"{until.isoformat()}~{offset}"


def start(days: int, text: str | None, at: datetime) -> tuple[Period, int]:
    """Return the period and the first row of a page; raise the 400 that names `cursor`."""
    today = rules.period(days, at)
    if text is None:
        return today, 0
    match = _CURSOR.fullmatch(text)
    try:
        until = date.fromisoformat(match[1]) if match else None
    except ValueError:
        until = None
    # Cursors do not expire: their period stays the same, and is empty once its counts are deleted.
    if match is None or until is None or not FIRST_DAY <= until <= today.until or int(match[2]) > MAX_OFFSET:
        raise invalid("cursor", f"`cursor` is {text!r}; pass `nextCursor` of the page before.")
    return Period(until - timedelta(days=days - 1), until), int(match[2])
