"""Make and read the cursors of delivery analytics. A cursor keeps the last day, so that all pages show one period.

Cursors do not expire: an old one shows its period as long as the counts are kept. So that nobody writes one to see days
before the plan's window, a cursor proves that the account once had a page which ended with that day.
"""

import hmac
import re
from datetime import date, datetime, timedelta
from uuid import UUID

from engine.base.errors import invalid
from engine.base.secrets import Pepper, digest
from engine.receiving.analytics import rules
from engine.receiving.analytics.types import Period

MAX_OFFSET = 1_000_000
_CURSOR = re.compile(r"(\d{4}-\d{2}-\d{2})~(\d{1,7})~([0-9a-f]{16})", re.ASCII)


def cursor(pepper: Pepper, account: UUID, until: date, offset: int) -> str:
    """Return the cursor of the page that begins at row `offset` of a period that ends with the day `until`."""
    return f"{until.isoformat()}~{offset}~{_proof(pepper, account, until.isoformat())}"


def start(pepper: Pepper, account: UUID, days: int, text: str | None, at: datetime) -> tuple[Period, int]:
    """Return the period and the first row of a page; raise the 400 that names `cursor`."""
    if text is None:
        return rules.period(days, at), 0
    match = _CURSOR.fullmatch(text)
    if (
        match is None
        or not any(hmac.compare_digest(match[3], _proof(one, account, match[1])) for one in pepper.accepted)
        or int(match[2]) > MAX_OFFSET
    ):
        raise invalid("cursor", f"`cursor` is {text!r}; pass `nextCursor` of the page before.")
    until = date.fromisoformat(match[1])
    return Period(until - timedelta(days=days - 1), until), int(match[2])


def _proof(pepper: Pepper, account: UUID, day: str) -> str:
    return digest(pepper, f"delivery analytics of {account} until {day}").hex()[:16]
