"""When a message is sent, and when its delivery is given up: `scheduledAt` and `deliverBy`. Pure."""

from datetime import datetime, timedelta

from engine.base import clock
from engine.base.errors import invalid
from engine.sending.emails.limits import AT_ONCE_S
from engine.sending.emails.types import Timing


def timing_of(scheduled_at: str | None, deliver_by: str | None, at: datetime, *, give_up_s: float) -> Timing:
    """Return when the message is sent and when its delivery is given up; raise the 400 for an invalid time.

    `at` is the time of the request. The plan's limit for `scheduledAt` is checked elsewhere.
    """
    wanted = None if scheduled_at is None else _moment("scheduledAt", scheduled_at)
    later = wanted if wanted is not None and wanted > at + timedelta(seconds=AT_ONCE_S) else None
    if deliver_by is None:
        return Timing(later)
    end = _moment("deliverBy", deliver_by)
    if end <= at:
        raise invalid(
            "deliverBy", f"`deliverBy` is {deliver_by}, which is in the past. Give a later time or remove it."
        )
    if wanted is not None and end <= wanted:
        raise invalid("deliverBy", f"`deliverBy` ({deliver_by}) must be later than `scheduledAt` ({scheduled_at}).")
    if end > (later or at) + timedelta(seconds=give_up_s):
        hours = f"{give_up_s / 3600:g}"
        raise invalid("deliverBy", f"`deliverBy` can be at most {hours} hours after the send; retries stop then.")
    return Timing(later, end)


def _moment(field: str, text: str) -> datetime:
    """Parse a time and cut it to whole milliseconds."""
    try:
        found = clock.parse_iso(text)
    except ValueError as error:
        raise invalid(
            field, f"`{field}` is not a time such as 2026-11-20T08:00:00Z or 2026-11-20T09:00:00+01:00: {error}."
        ) from None
    return found.replace(microsecond=found.microsecond // 1000 * 1000)
