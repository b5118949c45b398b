"""When to decide a batch on cached account heads, before any is locked."""

from typing import Final

MAX_COUNTED_MISSES: Final = 5  # in a row; after so many, 31 batches are decided under the locks


class FastPathBackoff:
    """Decides whether a batch is decided on cached heads; each miss in a row doubles the number of batches that are
    decided under the locks.
    """

    def __init__(self) -> None:
        self._misses = 0
        self._locking = 0

    def may_try(self) -> bool:
        """Return True if the next batch may try the fast path; call it once per batch."""
        if self._locking == 0:
            return True
        self._locking -= 1
        return False

    def hit(self) -> None:
        """Record that the fast path stored a batch."""
        self._misses = 0

    def miss(self) -> None:
        """Record a failed fast-path attempt."""
        self._misses = min(self._misses + 1, MAX_COUNTED_MISSES)
        self._locking = 2**self._misses - 1
