"""How long loops wait between two looks for work: in a small service that has been quiet, longer than in a busy one.

A process of the small profile follows the pace of its service: anything that its API changes, or that arrives at its
own servers, is a sign of life (`touch`) and wakes all loops that wait. Ten seconds after the last one, they wait
longer. Everywhere else loops wait as long as they ask for.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from weakref import WeakSet

BUSY_S: Final = 10.0  # after the last sign of life
QUIET_S: Final = 5.0  # the longest wait of a loop that names no other
_TELL_EVERY_S: Final = 1.0  # to other processes, which stay busy for much longer


class Pace:
    """The pace of this process; loops wait with `wait`."""

    def __init__(self) -> None:
        self._follows = False
        self._touched_at = 0.0
        self._told_at = 0.0
        self._tell: Callable[[], None] | None = None
        self._woken: asyncio.Event | None = None
        self._events: WeakSet[asyncio.Event] = WeakSet()

    def follow(self, tell: Callable[[], None] | None = None) -> None:
        """Slow down when the service is quiet; `tell` passes signs of life on to the other processes."""
        self._follows = True
        self._tell = tell
        self._touched_at = time.monotonic()

    def touch(self) -> None:
        """Note a sign of life, and wake the loops that wait longer because it was quiet."""
        if not self._follows:
            return
        now = time.monotonic()
        if self._woken is not None:
            self._woken.set()
            self._woken = None
        if now >= self._touched_at + BUSY_S:
            for event in self._events:
                event.set()
        self._touched_at = now
        if self._tell is not None and now > self._told_at + _TELL_EVERY_S:
            self._told_at = now
            self._tell()

    def wake(self, event: asyncio.Event) -> None:
        """Set this event at the first sign of life after a quiet time, for as long as it exists."""
        self._events.add(event)

    def interval(self, seconds: float, quiet_s: float = QUIET_S) -> float:
        """Return the time that a loop waits now: `seconds`, or `quiet_s` if that is longer and the service is quiet."""
        if not self._follows or time.monotonic() < self._touched_at + BUSY_S:
            return seconds
        return max(seconds, quiet_s)

    async def wait(self, seconds: float, quiet_s: float = QUIET_S) -> None:
        """Wait for `interval`; a longer wait than `seconds` ends at the next sign of life."""
        wait_s = self.interval(seconds, quiet_s)
        if wait_s <= seconds:
            await asyncio.sleep(seconds)
            return
        if self._woken is None:
            self._woken = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._woken.wait()


PACE: Final = Pace()
