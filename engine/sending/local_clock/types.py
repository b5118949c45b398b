"""Define the state of the clock, and the work that falls due."""

from datetime import datetime

from msgspec import Struct


class ClockState(Struct, frozen=True):
    """The two clocks of an installation; `ahead_us` is the difference in microseconds."""

    service_time: datetime
    machine_time: datetime
    ahead_us: int


class DueWork(Struct, frozen=True):
    """The work of one kind: how much is due now or in hand, and when more falls due (null: none is known).

    `seldom`: the job that does it looks seldom, so that it has to be called.
    """

    kind: str
    due: int
    next_at: datetime | None
    seldom: bool
