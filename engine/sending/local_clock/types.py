"""Define the state of the clock, and the work that falls due."""

from datetime import datetime

from msgspec import Struct


class ClockState(Struct, frozen=True):
    """The two clocks of an installation; `ahead_us` is the difference in microseconds."""

    service_time: datetime
    machine_time: datetime
    ahead_us: int


class DueWork(Struct, frozen=True):
    """The work of one kind: how much is due now or in hand, when more falls due (null: none is known), and whom to call
    then (`Calls` of engine.base.clock)."""

    kind: str
    due: int
    next_at: datetime | None
    calls: int
