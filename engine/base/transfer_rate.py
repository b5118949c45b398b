"""When content that arrives too slowly is given up: request bodies of the API, messages of the relay.

A mean rate over the whole content is no bound: 50 MB sent at once pay for a day of single octets. So the content has to
grow in every window of time, and the more memory it holds, the faster.
"""

from typing import Final

WINDOW_S: Final = 5.0


class TransferRate:
    """The progress of one request body or message.

    In each window of `WINDOW_S` it has to grow by `min_bytes_per_s`, and by the part of its size that makes a constant
    rate from the beginning to the deadline: a client that sends steadily and ends in time never falls below. With
    `min_bytes_per_s` 0 the deadline alone counts.
    """

    __slots__ = ("_deadline_s", "_ends_at", "_min_bytes_per_s", "_wanted", "_window_ends_at")

    def __init__(self, began: float, *, deadline_s: float, min_bytes_per_s: float) -> None:
        self._deadline_s = deadline_s
        self._min_bytes_per_s = min_bytes_per_s
        self._ends_at = began + deadline_s
        self._begin_window(0, began)

    def patience_s(self, size: int, now: float) -> float:
        """Return the seconds that the next octets may take when `size` have arrived by `now`; 0: give it up."""
        if size >= self._wanted:
            self._begin_window(size, now)
        return max(0.0, min(self._window_ends_at, self._ends_at) - now)

    def _begin_window(self, size: int, now: float) -> None:
        if not self._min_bytes_per_s:
            self._wanted, self._window_ends_at = 0.0, self._ends_at
            return
        self._wanted = size + WINDOW_S * max(self._min_bytes_per_s, size / self._deadline_s)
        self._window_ends_at = now + WINDOW_S
