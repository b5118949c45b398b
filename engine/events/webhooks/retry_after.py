"""Postpone the next attempt at a post as the receiver's `Retry-After` asks (RFC 9110 10.2.3). Pure."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from msgspec import Struct

from engine.delivery.retry_schedule import RetrySchedule

STATUSES: Final = frozenset({429, 503})  # other answers don't say when to come back
MAX_POSTPONED_S: Final = 3_600.0
_MAX_CHARS: Final = 40  # an HTTP date has 29


class NextAttempt(Struct, frozen=True):
    """The seconds until the next attempt, and the seconds by which it is later than the retry schedule."""

    wait_s: float
    late_s: int = 0


def seconds(status: int, value: str | None, at: datetime) -> float:
    """Return the seconds that an answer asks to wait, counted from `at`; 0 if it doesn't ask, or not understandably."""
    text = (value or "").strip()
    if status not in STATUSES or not text or len(text) > _MAX_CHARS:
        return 0.0
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        until = parsedate_to_datetime(text)
        return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - at).total_seconds())
    except (ValueError, OverflowError, TypeError, IndexError):  # parsedate_to_datetime raises all of these
        return 0.0


def postponed(scheduled_s: float, made: int, schedule: RetrySchedule, *, asked_s: float, late_s: int) -> NextAttempt:
    """Return the next attempt after attempt `made`, which was `late_s` behind the schedule.

    The wait is at least `scheduled_s`, or `asked_s` up to an hour. A step of more than an hour makes up for earlier
    postponements, but leaves an hour. No postponement is longer than later steps can make up for, so that the last
    attempt is never later than scheduled.
    """
    behind_s = max(0.0, late_s - max(0.0, scheduled_s - MAX_POSTPONED_S))
    wait_s = scheduled_s - (late_s - behind_s)
    spare_s = sum(max(0.0, step_s - MAX_POSTPONED_S) for step_s in schedule.steps_s[made:]) - behind_s
    more_s = max(0.0, min(asked_s, MAX_POSTPONED_S) - wait_s)
    more_s = min(more_s, max(0.0, spare_s))
    return NextAttempt(wait_s + more_s, int(behind_s + more_s))
