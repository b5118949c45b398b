"""Hash and verify passwords with Argon2id in a low-priority thread, so that sign-ins do not delay sending.

On a busy machine the event loops run first. The number of waiting operations is limited: beyond it, a sign-in is
refused with 503.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from engine.base.errors import ErrorType, Refusal

# OWASP Password Storage Cheat Sheet, Argon2id. With one lane a hash uses one core for 24 ms (`ops bench --people`).
TIME_COST, MEMORY_KIB, LANES = 2, 19_456, 1
THREADS = 1
MAX_WAITING = 64
NICENESS = 19

Made = TypeVar("Made")


class Passwords:
    """The hashing thread of one process and its queue (RFC 9106); lives as long as the process."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher(TIME_COST, MEMORY_KIB, LANES)
        self._threads = ThreadPoolExecutor(THREADS, "passwords", initializer=_lower_priority)
        self._waiting = 0
        self._dummy_hash: str | None = None

    async def hashed(self, password: str) -> str:
        """Return the hash to store, in PHC string format."""
        return await self._apart(lambda: self._hasher.hash(password))

    async def matches(self, stored: str | None, password: str) -> bool:
        """Return True if the password matches the hash; without a hash, take the same time and return False."""
        return await self._apart(lambda: self._verify(stored, password))

    def outdated(self, stored: str) -> bool:
        """Return True if a hash was made with weaker parameters than today's."""
        return self._hasher.check_needs_rehash(stored)

    async def apart(self, work: Callable[[], Made]) -> Made:
        """Run other expensive work on passwords, such as a strength check, in the same thread with the same limit."""
        return await self._apart(work)

    def close(self) -> None:
        """Stop the thread after its current operation."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _apart(self, work: Callable[[], Made]) -> Made:
        if self._waiting >= MAX_WAITING:
            raise Refusal(
                ErrorType.UNAVAILABLE, "Too many people are signing in right now. Try again shortly.", retry_after_s=2
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1

    def _verify(self, stored: str | None, password: str) -> bool:
        if stored is None:
            if self._dummy_hash is None:
                self._dummy_hash = self._hasher.hash("dummy password")
            with suppress(VerificationError):
                self._hasher.verify(self._dummy_hash, password)
            return False
        try:
            return self._hasher.verify(stored, password)
        except (VerificationError, InvalidHashError):
            return False


def _lower_priority() -> None:
    """Lower the priority of this thread. Linux counts niceness per thread; elsewhere nothing happens."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
