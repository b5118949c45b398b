"""Move the service time of an installation forward, from one due time to the next, and wait for what falls due.

The caller of `advance` or `settle` has the clock to itself. It writes the new time into the database first, because a
process that is woken looks there; then into the clock file, and calls all processes. Before the clock moves on, all that
is due must have happened, so that it happens in the order in which it would have, and no lease of a post or a job is
jumped over.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

import asyncpg

from engine.base import clock
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.settings import Settings
from engine.sending.local_clock import store
from engine.sending.local_clock.rules import MAX_AHEAD, next_stop
from engine.sending.local_clock.types import ClockState, DueWork
from engine.store import clock_schema, service_time
from engine.store.shared_clock import ClockSlot, SharedClock

LATE: Final = 0.05  # part of its wait by which a retry may be late; half the width of the jitter to one side
LOOK_S: Final = (0.002, 0.05)  # between two looks at what is still due: at first, and at last
CALL_AGAIN_S: Final = 0.1
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


async def settle(pool: asyncpg.Pool, settings: Settings, *, within_s: float) -> ClockState:
    """Wait until no delivery, post or job is due at the present service time; raise 409 after `within_s` seconds."""
    shared, ends = shared_clock(settings), time.monotonic() + within_s
    async with _alone(shared, ends):
        await _Mover(pool, settings, shared, ends).settled(everything=True)
    return state(settings)


async def advance(pool: asyncpg.Pool, settings: Settings, to: datetime | timedelta, *, within_s: float) -> ClockState:
    """Move the clock to a time, or by a duration, and wait until all that fell due until then has happened.

    Raises 409 after `within_s` seconds; the clock then stands at the last time that it has reached.
    """
    shared, ends = shared_clock(settings), time.monotonic() + within_s
    async with _alone(shared, ends):
        now = clock.now()
        wanted = now + to if isinstance(to, timedelta) else to
        if wanted < now:
            raise invalid("to", f"`to` is in the past: the clock stands at {clock.iso(now)}, and never goes back.")
        if wanted > clock.machine_now() + MAX_AHEAD:
            raise invalid("to", f"The clock can be at most {MAX_AHEAD.days} days ahead of the machine's.")
        await _Mover(pool, settings, shared, ends).move(wanted)
    return state(settings)


@asynccontextmanager
async def _alone(shared: SharedClock, ends: float) -> AsyncIterator[None]:
    """Hold the right to move the clock within the block; wait for another holder."""
    while True:
        with shared.held() as held:
            if held:
                yield
                return
        if time.monotonic() > ends:
            raise Refusal(ErrorType.INVALID_STATE, "Another request is moving the clock. Try again when it has ended.")
        await asyncio.sleep(LOOK_S[1])


class _Mover:
    """One move of the clock, which it has to itself."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings, shared: SharedClock, ends: float) -> None:
        self._pool = pool
        self._settings = settings
        self._shared = shared
        self._ends = ends  # monotonic

    async def move(self, to: datetime) -> None:
        """Move the clock from stop to stop until `to`."""
        began = last_round = clock.now()
        await self.settled(everything=False)
        while (now := clock.now()) < to:
            stop = next_stop(
                now, to, began=began, last_round=last_round, work=await self._work(), due=self._next_appointment()
            )
            await self._set(stop.at)
            await self.settled(everything=stop.everything)
            if stop.everything:
                last_round = stop.at

    async def _set(self, at: datetime) -> None:
        ahead_us = self._shared.ahead_us() + max(0, (at - clock.now()) // _MICROSECOND)
        await clock_schema.move(self._pool, ahead_us)
        self._shared.move(ahead_us)

    # -- what is due -------------------------------------------------------------------------------

    async def settled(self, *, everything: bool) -> None:
        """Call all processes, and wait until nothing is due any more. Raises 409 at the end of the time."""
        step = self._shared.call(everything=everything)
        called_at, pause_s = time.monotonic(), LOOK_S[0]
        while busy := await self._busy(step):
            now = time.monotonic()
            if now > self._ends:
                raise Refusal(
                    ErrorType.INVALID_STATE,
                    f"The clock stands at {clock.iso(clock.now())}, because this is still due or at work: {busy}."
                    " Look why, and call again, if need be with a longer `timeoutS`.",
                )
            if now > called_at + CALL_AGAIN_S:  # what has happened may have made more due
                step, called_at = self._shared.call(everything=False), now
            await asyncio.sleep(pause_s)
            pause_s = min(LOOK_S[1], pause_s * 1.5)

    async def _busy(self, step: int) -> str:
        """Return what is due or at work, in words; empty if nothing is.

        An appointment that a process keeps makes something due that the database knows. So the processes must have been
        idle before and after the database was read, with the same appointments.
        """
        before = self._shared.slots()
        if words := _at_work(before, step):
            return words
        if due := [f"{work.due} {work.kind}" for work in await self._work() if work.due]:
            return ", ".join(due)
        after = self._shared.slots()
        return _at_work(after, step) or ("" if _appointments(before) == _appointments(after) else "an appointment")

    async def _work(self) -> list[DueWork]:
        settings = self._settings
        return await store.DUE_WORK.fetch(
            self._pool,
            settings.retry_ladder_s,
            settings.webhook_ladder_s,
            LATE,
            timedelta(seconds=settings.fresh_due_s),
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
