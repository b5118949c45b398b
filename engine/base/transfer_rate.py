"""Decide when a transfer is too slow to continue: request bodies of the API, messages of SMTP submission.

A minimum mean rate over the whole content is not enough: a client that sends 50 MB at once could then send single bytes
for a day. So the content must grow in every window of time, and faster the more memory it holds.
"""

from typing import Final

WINDOW_S: Final = 5.0


class TransferRate:
    """The progress of one request body or message; lives as long as the transfer.

    In each window of `WINDOW_S` the content must grow by `min_bytes_per_s`, and by its size × WINDOW_S ÷ deadline: a
    client that sends at a steady rate and finishes in time always passes. With `min_bytes_per_s` 0 only the deadline
    counts.
    """

    __slots__ = ("_deadline_s", "_ends_at", "_min_bytes_per_s", "_wanted", "_window_ends_at")

    def __init__(self, began: float, *, deadline_s: float, min_bytes_per_s: float) -> None:
        self._deadline_s = deadline_s
        self._min_bytes_per_s = min_bytes_per_s
        self._ends_at = began + deadline_s
        self._begin_window(0, began)

    def timeout_s(self, size: int, now: float) -> float:
        """Return how many seconds to wait for the next bytes when `size` have arrived by `now`; 0: end the transfer."""
        if size >= self._wanted:
            self._begin_window(size, now)
        return max(0.0, min(self._window_ends_at, self._ends_at) - now)

    def _begin_window(self, size: int, now: float) -> None:
        if not self._min_bytes_per_s:
            self._wanted, self._window_ends_at = 0.0, self._ends_at
            return
        self._wanted = size + WINDOW_S * max(self._min_bytes_per_s, size / self._deadline_s)
        self._window_ends_at = now + WINDOW_S
