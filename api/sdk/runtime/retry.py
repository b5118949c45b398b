"""Decide whether a request is sent again, and after how many seconds. Pure."""

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

DEFAULT_RETRIES: Final = 2
MAX_RETRY_WAIT_S: Final = 30.0  # a longer `Retry-After` is raised to the caller at once
FIRST_BACKOFF_S: Final = 0.5
MAX_BACKOFF_S: Final = 8.0
# These refusals come before the service has done anything, and end by themselves.
_REFUSED_FOR_NOW: Final = frozenset({"rate_limited", "platform_paused", "too_many_streams"})
_FOR_NOW: Final = frozenset({502, 503, 504})


def backoff(tries: int, chance: float | None = None) -> float:
    """Return the seconds before try number `tries` + 1: doubled each time, with jitter from half to full."""
    full = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(tries - 1, 10))
    return full * (0.5 + 0.5 * (random.random() if chance is None else chance))


def wait_after_answer(
    status: int, kind: str, retry_after: float | None, *, tries: int, retries: int, repeatable: bool
) -> float | None:
    """Return the seconds to wait before the next try, or None to raise the error.

    A 429 of a rate limit is repeated for every request, since the service refused it before any work. A 502, 503 or 504
    is repeated only for a request that may be carried out twice without harm.
    """
    for_now = (status == 429 and kind in _REFUSED_FOR_NOW) or (repeatable and status in _FOR_NOW)
    if not for_now or tries > retries:
        return None
    if retry_after is None:
        return backoff(tries)
    return retry_after if retry_after <= MAX_RETRY_WAIT_S else None


def wait_after_failure(*, sent: bool, tries: int, retries: int, repeatable: bool) -> float | None:
    """Return the seconds to wait after a lost connection or a time-out, or None to raise the error.

    `sent` is False if the connection was never made: then any request may be sent again.
    """
    if tries > retries or (sent and not repeatable):
        return None
    return backoff(tries)


def seconds(text: str | None, now: datetime) -> float | None:
    """Return the seconds in a `Retry-After` header: a number, or the time until a date (RFC 9110 10.2.3).

    None if the header is missing or neither of them.
    """
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return float(text) if len(text) <= 9 else None
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds())
