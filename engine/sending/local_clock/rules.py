"""Decide where a moving clock stops, and read durations. Pure."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from engine.sending.local_clock.types import DueWork

MAX_AHEAD: Final = timedelta(days=3_660)  # of machine time
MARK: Final = timedelta(hours=6)  # the jobs that look seldom are called at the multiples of it, midnight among them
LONG_MARK: Final = timedelta(days=1)  # the same for moves of more than `LONG`
LONG: Final = timedelta(days=30)
ROUND_AFTER: Final = timedelta(hours=3)  # without a call of those jobs, the next stop calls them
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PART: Final = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Stop(Struct, frozen=True):
    """A time at which the moving clock waits for what is due; `everything`: the jobs that look seldom are called too."""

    at: datetime
    everything: bool


def duration(text: str) -> timedelta | None:
    """Return a duration such as `90s`, `2d` or `1d12h`; None if the text is not one, or it is 0."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta()) or None


def next_stop(
    now: datetime, to: datetime, *, began: datetime, last_round: datetime, work: Iterable[DueWork], due: datetime | None
) -> Stop:
    """Return the next stop of a clock that moves from `began` to `to`: when something falls due (`work`, and the next
    appointment of a process, `due`), at a mark, or at the end."""
    mark = next_mark(now, LONG_MARK if to - began > LONG else MARK)
    stops = [Stop(to, everything=True), Stop(mark, everything=True)]
    stops += [Stop(one.next_at, one.seldom) for one in work if one.next_at is not None]
    if due is not None:
        stops.append(Stop(due, everything=False))
    at = min(max(min(stop.at for stop in stops), now), to)
    late = at - last_round >= ROUND_AFTER
    return Stop(at, late or any(stop.everything for stop in stops if stop.at <= at))


def next_mark(now: datetime, every: timedelta) -> datetime:
    """Return the first multiple of `every` after `now`."""
    return now + every - (now - _EPOCH) % every
