"""Stop asking a scanner that does not answer, so that it does not cost every message its time limit."""

import time
from collections.abc import Callable
from typing import Final

FAILURES: Final = 3  # in a row, after which the scanner is left alone
PAUSE_S: Final = 10.0


class ScannerUnavailable(Exception):  # noqa: N818 - named for the state
    """A scanner is down, hangs, or answers something else than its protocol; the text says which."""


class CircuitBreaker:
    """The recent failures of one scanner; lives as long as the process.

    After `FAILURES` in a row, calls fail at once for `PAUSE_S`; then one call may try again.
    """

    def __init__(self, name: str, now: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._now = now
        self._failures = 0
        self._retry_at = 0.0

    @property
    def is_open(self) -> bool:
        """Return True while calls fail at once."""
        return self._failures >= FAILURES and self._now() < self._retry_at

    def check(self) -> None:
        """Raise ScannerUnavailable while the scanner is left alone; otherwise allow the call."""
        if self._failures < FAILURES:
            return
        if self.is_open:
            raise ScannerUnavailable(f"{self._name} failed {self._failures} times in a row and is tried again shortly")
        self._retry_at = self._now() + PAUSE_S  # this call tries; the others go on failing until it has succeeded

    def succeeded(self) -> None:
        """Record an answer."""
        self._failures = 0

    def failed(self) -> None:
        """Record a failure."""
        self._failures += 1
        self._retry_at = self._now() + PAUSE_S
