"""Move the service time of an installation forward, from one due time to the next, and wait for what falls due.

The caller of `advance` or `settle` has the clock to itself. It writes the new time into the database first, because
processes that are woken look there; then into the clock file; then it calls all processes. Before the clock moves on,
all that is due must have happened: so it happens in its order, and no lease of a post or a job is jumped over.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

import asyncpg

from engine.base import clock
from engine.base.clock import Calls
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.settings import Settings
from engine.sending.local_clock import store
from engine.sending.local_clock.rules import MAX_AHEAD, next_stop
from engine.sending.local_clock.types import ClockState, DueWork
from engine.store import clock_schema, service_time
from engine.store.shared_clock import ClockSlot, SharedClock

LATE: Final = 0.05  # part of its wait by which a retry may be late; half the width of the jitter to one side
LOOK_S: Final = (0.004, 0.01)  # between two looks at what is still due: at first, and at last
# What has happened, or the time that passed meanwhile, may have made more due.
CALL_AGAIN_S: Final = {Calls.MAIL: 0.05, Calls.QUEUES: 0.02}
_MICROSECOND: Final = timedelta(microseconds=1)


def shared_clock(settings: Settings) -> SharedClock:
    """Return the clock of the installation; raise the 404 outside of local mode."""
    follower = service_time.follower()
    if settings.delivery != "local":
        raise Refusal(
            ErrorType.NOT_FOUND, f"The clock can't be moved: WAYBILL_DELIVERY is {settings.delivery}, not local."
        )
    if follower is None:
        raise Refusal(ErrorType.NOT_FOUND, "The clock can't be moved: this process was not started by `ops up`.")
    return follower.shared


def state(settings: Settings) -> ClockState:
    """Return service time, machine time and their difference."""
    ahead_us = shared_clock(settings).ahead_us()
    return ClockState(clock.now(), clock.machine_now(), ahead_us)


async def settle(settings: Settings, *, within_s: float) -> ClockState:
    """Wait until no delivery, post or job is due at the present service time; raise 409 after `within_s` seconds."""
    shared, ends = shared_clock(settings), time.monotonic() + within_s
    async with _mover(settings, shared, ends) as mover:
        await mover.settled(Calls.ALL)
    return state(settings)


async def advance(settings: Settings, to: datetime | timedelta, *, within_s: float) -> ClockState:
    """Move the clock to a time, or by a duration, and wait until all that fell due until then has happened.

    Raises 409 after `within_s` seconds; the clock then stands at the last time that it has reached.
    """
    shared, ends = shared_clock(settings), time.monotonic() + within_s
    async with _mover(settings, shared, ends) as mover:
        now = clock.now()
        wanted = now + to if isinstance(to, timedelta) else to
        if wanted < now:
            raise invalid("to", f"`to` is in the past: the clock shows {clock.iso(now)} and never goes back.")
        if wanted > clock.machine_now() + MAX_AHEAD:
            raise invalid("to", f"The clock can be at most {MAX_AHEAD.days} days ahead of the machine's.")
        await mover.move(wanted)
    return state(settings)


@asynccontextmanager
async def _mover(settings: Settings, shared: SharedClock, ends: float) -> AsyncIterator["_Mover"]:
    """Hold the right to move the clock within the block; wait for another holder."""
    assert settings.database_url is not None
    while True:
        with shared.held() as held:
            if held:
                connection = await clock_schema.open_mover(settings.database_url)
                try:
                    # A mover that was ended between its two writes has moved the database alone.
                    shared.move(max(shared.ahead_us(), await clock_schema.ahead_us(connection)))
                    yield _Mover(connection, settings, shared, ends)
                finally:
                    connection.terminate()
                return
        if time.monotonic() > ends:
            raise Refusal(ErrorType.INVALID_STATE, "Another request is moving the clock. Retry when it has finished.")
        await asyncio.sleep(LOOK_S[1])


class _Mover:
    """Moves the clock once, while it holds the lock of the clock."""

    def __init__(self, connection: asyncpg.Connection, settings: Settings, shared: SharedClock, ends: float) -> None:
        self._connection = connection
        self._settings = settings
        self._shared = shared
        self._ends = ends  # monotonic
        self._fresh = timedelta(seconds=settings.fresh_due_s)
        self._known: list[DueWork] = []  # what was read last

    async def move(self, to: datetime) -> None:
        """Move the clock from stop to stop until `to`."""
        began = clock.now()
        await self.settled(Calls.QUEUES)
        while (now := clock.now()) < to:
            stop = next_stop(now, to, began=began, work=self._known, appointment=self._next_appointment())
            await self._set(stop.at)
            await self.settled(stop.calls)

    async def _set(self, at: datetime) -> None:
        ahead_us = self._shared.ahead_us() + max(0, (at - clock.now()) // _MICROSECOND)
        await clock_schema.move(self._connection, ahead_us)
        self._shared.move(ahead_us)

    # -- what is due -------------------------------------------------------------------------------

    async def settled(self, calls: Calls) -> None:
        """Call these, and wait until nothing is due any more. Raises 409 at the end of the time."""
        step = self._shared.call(calls)
        called_at, pause_s = time.monotonic(), LOOK_S[0]
        while busy := await self._busy(step):
            now = time.monotonic()
            if now > self._ends:
                raise Refusal(
                    ErrorType.INVALID_STATE,
                    f"The clock stopped at {clock.iso(clock.now())} because work is still due: {busy}. Check why, "
                    "then retry, with a longer `timeoutS` if needed.",
                )
            whom = Calls.QUEUES if any(work.due and work.calls for work in self._known) else Calls.MAIL
            if now > called_at + CALL_AGAIN_S[whom]:
                step, called_at = self._shared.call(whom), now
            await asyncio.sleep(pause_s)
            pause_s = min(LOOK_S[1], pause_s * 1.2)

    async def _busy(self, step: int) -> str:
        """Return what is due or at work, in words; empty if nothing is.

        An appointment that a process keeps makes something due that the database knows. So the processes must have been
        idle before and after the database was read, with the same appointments.
        """
        before = self._shared.slots()
        if words := _at_work(before, step):
            return words
        [mail] = await store.MAIL_IS_DUE.records(self._connection, self._fresh)
        if mail["due"]:
            return "deliveries"
        self._known = await self._work()
        if due := [f"{work.due} {work.kind}" for work in self._known if work.due]:
            return ", ".join(due)
        after = self._shared.slots()
        return _at_work(after, step) or ("" if _appointments(before) == _appointments(after) else "an appointment")

    async def _work(self) -> list[DueWork]:
        settings = self._settings
        return await store.DUE_WORK.fetch(
            self._connection,
            settings.retry_ladder_s,
            settings.webhook_ladder_s,
            LATE,
            self._fresh,
        )

    def _next_appointment(self) -> datetime | None:
        due_us = min(_appointments(self._shared.slots()), default=None)
        return None if due_us is None else clock.from_microseconds(due_us)


def _at_work(slots: list[ClockSlot], step: int) -> str:
    """Return the processes that have not looked yet or are at work, in words."""
    now_us = clock.microseconds(clock.now())
    names = [str(slot.pid) for slot in slots if slot.seen < step or slot.busy or 0 < slot.due_us <= now_us]
    return f"jobs of the processes {', '.join(names)}" if names else ""


def _appointments(slots: list[ClockSlot]) -> list[int]:
    return [slot.due_us for slot in slots if slot.due_us]
