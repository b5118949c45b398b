"""Argon2id in a thread of its own, of low priority: signing in never starves sending.

The thread is niced, so that on a busy machine the event loops go first, and how many may wait is bounded: beyond it a
sign-in is refused for a moment instead of piling up.
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

# OWASP Password Storage Cheat Sheet, Argon2id. One lane: a hash keeps to one core, for 24 ms (`ops bench --people`).
TIME_COST, MEMORY_KIB, LANES = 2, 19_456, 1
THREADS = 1
MAX_WAITING = 64
NICENESS = 19

Made = TypeVar("Made")


class Passwords:
    """Hashing and checking as one process does them (RFC 9106)."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher(TIME_COST, MEMORY_KIB, LANES)
        self._threads = ThreadPoolExecutor(THREADS, "passwords", initializer=_step_back)
        self._waiting = 0
        self._nobody: str | None = None

    async def hashed(self, password: str) -> str:
        """The hash to store, in PHC form."""
        return await self._apart(lambda: self._hasher.hash(password))

    async def matches(self, stored: str | None, password: str) -> bool:
        """Whether the password is the one of that hash; without a hash it takes the same time and is False."""
        return await self._apart(lambda: self._verify(stored, password))

    def outdated(self, stored: str) -> bool:
        """Whether a hash was made with weaker parameters than today's."""
        return self._hasher.check_needs_rehash(stored)

    async def apart(self, work: Callable[[], Made]) -> Made:
        """Other heavy work about passwords, such as judging one, in the same threads under the same bound."""
        return await self._apart(work)

    def close(self) -> None:
        """End the threads, once what they do is done."""
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
            if self._nobody is None:
                self._nobody = self._hasher.hash("nobody's password")
            with suppress(VerificationError):
                self._hasher.verify(self._nobody, password)
            return False
        try:
            return self._hasher.verify(stored, password)
        except (VerificationError, InvalidHashError):
            return False


def _step_back() -> None:
    """Linux counts niceness by thread; elsewhere nothing happens."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
