"""Limits how many deliveries of broadcasts one process works on at once, so that its other mail need not wait. No I/O.

A delivery needs some ten turns of the event loop, and a turn lasts as long as the work of all deliveries that are ready
for it. So the window shrinks when a turn takes long, or when the process often waits for a processor that others use:
then the other mail waits in each process on its way. It grows while turns are short, as with many servers that answer
slowly. A delivery whose server keeps it waiting uses no turns, so it soon leaves the window; one whose outcome is being
stored has left it.
"""

from typing import Final

from engine.base.processor_wait import LONG_WAIT
from engine.delivery.queue import BROADCAST_PRIORITY
from mta.outbound.delivery import ActiveDelivery

FIRST: Final = 16.0
MIN_BESIDE: Final = 8.0  # deliveries, while other mail comes
MIN_ALONE: Final = 64.0  # fills the pipe on busy processors too, when no other mail waits for the event loop
BESIDE_S: Final = 3.0  # after other mail was taken
LONG_TURN_S: Final = 0.003  # other mail waits for some ten of them
SHRINK, GROW = 0.7, 1.1
FULL_FROM: Final = 0.75  # of the window: below, more room would change nothing
STUCK_S: Final = 1.0  # after which a delivery no longer counts: it waits for its server
# While the process is late beside other mail, broadcasts go on at this pace: delayed, never stopped.
MAX_HOLD_S: Final = 0.1
FEW: Final = 2  # deliveries at that pace; other mail that comes meanwhile waits for their signatures


class BroadcastWindow:
    """The deliveries of broadcasts that one process works on, and their limit, which follows the event loop."""

    def __init__(self, largest: int) -> None:
        self._largest = float(largest)
        self._size = min(FIRST, self._largest)
        self._begun: dict[ActiveDelivery, None] = {}  # in the order of beginning
        self._is_late = False
        self._other_at = float("-inf")  # when other mail was last taken
        self._begun_at = float("-inf")  # when a broadcast's was last taken

    @property
    def size(self) -> int:
        """Return how many deliveries the process may work on now."""
        return int(self._size)

    def taken(self, delivery: ActiveDelivery) -> None:
        """Note a delivery that the process starts to work on, of a broadcast or not."""
        if delivery.row.priority < BROADCAST_PRIORITY:
            self._other_at = delivery.taken_at
        else:
            self._begun[delivery] = None
            self._begun_at = delivery.taken_at

    def left(self, delivery: ActiveDelivery) -> None:
        """Note a delivery that needs no more work, or only that of storing its outcome; repeating this is harmless."""
        self._begun.pop(delivery, None)

    def clear(self) -> None:
        """Note that all deliveries are gone."""
        self._begun.clear()

    def room(self, now: float) -> int:
        """Return how many deliveries of broadcasts to take now: none, or at least a quarter of the window, because
        loading a few costs almost as much as loading many. A process that is late beside other mail takes a few at a
        time."""
        room = self.size - self._working(now)
        if self._is_late and self._is_beside(now):
            return max(0, min(FEW, room)) if now - self._begun_at >= MAX_HOLD_S else 0
        return room if room >= max(1, self.size // 4) else 0

    def measured(self, turn_s: float, processor_wait: float, now: float) -> None:
        """Adapt the window to a turn of the event loop that took `turn_s`, and to the part of its working time that the
        process lately waited for a processor."""
        self._is_late = turn_s > LONG_TURN_S or processor_wait > LONG_WAIT
        least = min(MIN_BESIDE if self._is_beside(now) else MIN_ALONE, self._largest)
        if self._is_late:
            self._size *= SHRINK
        elif self._working(now) >= FULL_FROM * self._size:
            self._size *= GROW
        self._size = min(self._largest, max(least, self._size))

    def _is_beside(self, now: float) -> bool:
        """Return True if other mail came lately."""
        return now - self._other_at < BESIDE_S

    def _working(self, now: float) -> int:
        """Forget the deliveries that wait for their servers; return how many are left."""
        while self._begun and now - (oldest := next(iter(self._begun))).taken_at > STUCK_S:
            del self._begun[oldest]
        return len(self._begun)
