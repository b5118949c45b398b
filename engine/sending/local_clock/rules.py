"""Decide where a moving clock stops, and read durations. Pure."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from engine.base.clock import Calls
from engine.sending.local_clock.types import DueWork

MAX_AHEAD: Final = timedelta(days=3_660)  # of machine time
# The jobs that look seldom are called at the multiples of MARK, midnight among them; in a move of more than LONG, which
# would call them too often, at midnight only.
MARK: Final = timedelta(hours=6)
LONG: Final = timedelta(days=2)
DAY: Final = timedelta(days=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PART: Final = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Stop(Struct, frozen=True):
    """A time at which the moving clock waits for what is due, and whom it calls then."""

    at: datetime
    calls: Calls


def duration(text: str) -> timedelta | None:
    """Return a duration such as `90s`, `2d` or `1d12h`; None if the text is not one, or it is 0."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta()) or None


def next_stop(
    now: datetime, to: datetime, *, began: datetime, work: Iterable[DueWork], appointment: datetime | None
) -> Stop:
    """Return the next stop of a clock that moves from `began` to `to`: when something falls due, when a process has an
    appointment, at a mark, or at the end."""
    mark = next_mark(now, DAY if to - began > LONG else MARK)
    stops = [Stop(to, Calls.ALL), Stop(mark, Calls.ALL)]
    stops += [Stop(one.next_at, Calls(one.calls)) for one in work if one.next_at is not None]
    if appointment is not None:
        stops.append(Stop(appointment, Calls.MAIL))
    at = min(max(min(stop.at for stop in stops), now), to)
    return Stop(at, max(stop.calls for stop in stops if stop.at <= at))


def next_mark(now: datetime, every: timedelta) -> datetime:
    """Return the first multiple of `every` after `now`."""
    return now + every - (now - _EPOCH) % every
