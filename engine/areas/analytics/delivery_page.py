"""Make and read the cursors of delivery analytics. A cursor keeps the last day, so that all pages show one period."""

import re
from datetime import date, datetime, timedelta

from engine.areas.analytics import rules
from engine.areas.analytics.types import Period
from engine.base.errors import invalid

MAX_OFFSET = 1_000_000
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
    # A page may be asked for after midnight, by a client that reads slowly.
    if match is None or until is None or not today.until - timedelta(days=1) <= until <= today.until:
        raise invalid("cursor", f"`cursor` is {text!r}; pass `nextCursor` of a page that is less than a day old.")
    if int(match[2]) > MAX_OFFSET:
        raise invalid("cursor", f"`cursor` is {text!r}; pass `nextCursor` of the page before.")
    return Period(until - timedelta(days=days - 1), until), int(match[2])
