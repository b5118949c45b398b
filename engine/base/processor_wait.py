"""Measures how much the event loop of this process waits for a processor that other work uses.

Linux counts for each thread how long it ran, and how long it was ready to run without a processor: the first two
numbers of /proc/self/schedstat, in nanoseconds (Documentation/scheduler/sched-stats.rst). Elsewhere nothing is known.
"""

from pathlib import Path
from typing import Final

# Of the working time, from which on other work waits, too: 0.4 to 0.5 while all processors are in use, 0.1 to 0.2 while
# a fifth is (ops/decisions/0061).
LONG_WAIT: Final = 0.15
DECAY: Final = 0.8  # of the times measured before, with each look: with a look every 10 ms, the last 50 ms count most
_COUNTERS: Final = Path("/proc/self/schedstat")  # of the main thread, which runs the event loop


class ProcessorWait:
    """The time that the main thread lately ran, and the time that it waited for a processor."""

    def __init__(self, counters: Path = _COUNTERS) -> None:
        self._counters = counters
        self._seen = self._read()
        self._ran_ns = self._waited_ns = 0.0

    def look(self) -> float:
        """Return the part of its working time that the thread lately waited for a processor, from 0 to 1.

        0 where the system does not tell.
        """
        ran_ns, waited_ns = self._read()
        self._ran_ns = DECAY * self._ran_ns + ran_ns - self._seen[0]
        self._waited_ns = DECAY * self._waited_ns + waited_ns - self._seen[1]
        self._seen = ran_ns, waited_ns
        working_ns = self._ran_ns + self._waited_ns
        return self._waited_ns / working_ns if working_ns > 0 else 0.0

    def _read(self) -> tuple[int, int]:
        """Return the nanoseconds that the thread ran and waited since its start."""
        try:
            ran_ns, waited_ns, _ = map(int, self._counters.read_bytes().split())
        except (OSError, ValueError):
            return 0, 0
        return ran_ns, waited_ns
