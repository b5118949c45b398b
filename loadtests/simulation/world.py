"""The simulated world of one run: its time, its seeded choices, the events to come, and the schedule that came of them.

Everything that happens outside of Python code is an event at a simulated time: a statement that PostgreSQL runs, a
message on the network, a timer. The event loop (`loop`) asks for the next one whenever no callback is ready. Real time
decides nothing.
"""

import hashlib
import heapq
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Final

START: Final = 1_000.0  # monotonic seconds; above zero, because zero means "never" in places
EPOCH: Final = datetime(2026, 1, 7, 9, 30, tzinfo=UTC)  # at START: a Wednesday, far from the ends of day and week
TURN_S: Final = 0.000_002  # that a callback takes
MAX_EVENTS: Final = 2_000_000  # in one run: more means that two parts wait for one another without an end


class Violation(Exception):  # noqa: N818 - named for what happened
    """An invariant does not hold."""


class World:
    """Time, choices and schedule of one run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = START
        self.schedule: list[str] = []
        self.violations: list[str] = []
        self._digest = hashlib.blake2b(digest_size=8)
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()
        self._fired = 0

    def rng(self, purpose: str) -> random.Random:
        """Return the random numbers for one purpose, so that another purpose's use does not change them."""
        return random.Random(f"{self.seed} {purpose}")

    # -- events --------------------------------------------------------------------------------

    def at(self, when: float, call: Callable[[], object]) -> None:
        """Call `call` at a monotonic time."""
        heapq.heappush(self._events, (when, next(self._numbers), call))

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Call `call` after `seconds`."""
        self.at(self.now + seconds, call)

    def fire_due(self) -> None:
        """Run the events whose time has come."""
        while self._events and self._events[0][0] <= self.now:
            self._fire()

    def advance(self) -> None:
        """Move time to the next event and run it. Raises Violation if nothing will ever happen again."""
        if not self._events:
            raise Violation("nothing is left to happen: all tasks wait for one another")
        self._fire()

    def _fire(self) -> None:
        when, _, call = heapq.heappop(self._events)
        self.now = max(self.now, when)
        self._fired += 1
        if self._fired > MAX_EVENTS:
            raise Violation(f"no end after {MAX_EVENTS} events")
        call()

    # -- time ----------------------------------------------------------------------------------

    def utc(self) -> datetime:
        """Return the present time of all simulated clocks."""
        return EPOCH + timedelta(microseconds=round((self.now - START) * 1e6))

    # -- the schedule --------------------------------------------------------------------------

    def note(self, who: str, what: str) -> None:
        """Add a line to the schedule."""
        line = f"{self.now - START:11.6f} {who:<9} {what}"
        self.schedule.append(line)
        self._digest.update(line.encode())

    def violate(self, what: str) -> None:
        """Note that an invariant does not hold."""
        self.note("INVARIANT", what)
        self.violations.append(what)

    @property
    def digest(self) -> str:
        """Return the hash of the schedule so far."""
        return self._digest.hexdigest()
