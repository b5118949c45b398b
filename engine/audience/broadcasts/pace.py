"""Adapt the acceptance of a broadcast to the load of the service: the size of its batches, and pauses between them.

A batch holds the lock of its account's head, so other mail of the account waits for the rest of it. Batches that take
longer than they did lately show that the service is busy with other work, which a pause lets through. While the process
waits for processors, other mail does, too: then broadcasts are accepted at a moderate rate only. Pure.
"""

from typing import Final

from engine.audience.broadcasts.rules import MAX_BATCH

MIN_BATCH: Final = 25
FIRST_BATCH: Final = 50
STORE_S: Final = (0.003, 0.006)  # a transaction outside of these bounds makes the next one larger or smaller
GROW, SHRINK = 1.1, 0.8
BUSY_FROM: Final = 3.0  # times the quickest time lately; at five times it, pauses are as long as the batches
PAUSE_SLOPE: Final = 0.5
FORGETTING: Final = 1.001  # of the quickest time, with each batch: twice as much after some 700 batches
MAX_PAUSE_S: Final = 0.1
# While the process waits for processors for more than this part of its working time (0.07 in the mean where two are
# almost full), other mail does, too. The rate is in messages per second: 100,000 in a minute (ops/decisions/0061).
SHORT_WAIT: Final = 0.05
BUSY_RATE: Final = 1_800.0


class BatchPace:
    """The batch size of one broadcast in one process, at most `most`, and the quickest time for a message lately."""

    def __init__(self, most: int = MAX_BATCH) -> None:
        self._most = min(most, MAX_BATCH)
        self._size = float(min(FIRST_BATCH, self._most))
        self._quickest_s = float("inf")

    @property
    def size(self) -> int:
        """Return how many messages to accept in the next transaction."""
        return int(self._size)

    def pause_after(
        self, messages: int, *, composed_s: float, stored_s: float, processor_wait: float = 0.0, broadcasts: int = 1
    ) -> float:
        """Adapt to a batch that was composed and stored within these times; return the pause until the next one.

        `processor_wait`: the part of its working time that the process lately waited for a processor. `broadcasts`: how
        many it accepts at once, which share BUSY_RATE.
        """
        if 2 * messages < self.size:  # the last of a chunk, or of a slow pace, says little
            return 0.0
        if stored_s > STORE_S[1]:
            self._size = max(min(MIN_BATCH, self._most), self._size * SHRINK)
        elif stored_s < STORE_S[0]:
            self._size = min(self._most, self._size * GROW)
        took_s = composed_s + stored_s
        each_s = took_s / messages
        self._quickest_s = min(self._quickest_s * FORGETTING, each_s)
        share = PAUSE_SLOPE * (each_s / self._quickest_s - BUSY_FROM)
        pause_s = took_s * min(1.0, max(0.0, share))
        if processor_wait > SHORT_WAIT:
            pause_s = max(pause_s, messages * broadcasts / BUSY_RATE - took_s)
        return min(MAX_PAUSE_S, pause_s)
