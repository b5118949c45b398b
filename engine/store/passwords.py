"""Hash and verify passwords with Argon2id in a low-priority thread, so that sign-ins do not delay sending.

On a busy machine the event loops run first. The number of waiting operations is limited: beyond it, a sign-in is
refused with 429.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from msgspec import Struct

from engine.base.errors import ErrorType, Refusal

# OWASP Password Storage Cheat Sheet, Argon2id. With one lane a hash uses one core for 24 ms (ops/decisions/0019).
TIME_COST, MEMORY_KIB, LANES = 2, 19_456, 1
THREADS = 1
MAX_WAITING = 64  # per queue: the last one waits 1.5 s
NICENESS = 19

Made = TypeVar("Made")


class _Waiting(Struct):
    work: Callable[[], Any]
    done: asyncio.Future[Any]


class Passwords:
    """The hashing thread of one process and its two queues (RFC 9106); lives as long as the process.

    `known` marks work for a signed-in person, or from a network that the person is known from. It goes first, so that
    strangers who fill their queue lock nobody out of their usual networks.
    """

    def __init__(self) -> None:
        self._hasher = PasswordHasher(TIME_COST, MEMORY_KIB, LANES)
        self._threads = ThreadPoolExecutor(THREADS, "passwords", initializer=_lower_priority)
        self._known: deque[_Waiting] = deque()
        self._strangers: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None
        self._dummy_hash: str | None = None

    async def hashed(self, password: str, *, known: bool = False) -> str:
        """Return the hash to store, in PHC string format."""
        return await self.apart(lambda: self._hasher.hash(password), known=known)

    async def matches(self, stored: str | None, password: str, *, known: bool = False) -> bool:
        """Return True if the password matches the hash; without a hash, take the same time and return False."""
        return await self.apart(lambda: self._verify(stored, password), known=known)

    @property
    def is_crowded(self) -> bool:
        """Return True while half of the strangers' queue is taken."""
        return len(self._strangers) >= MAX_WAITING // 2

    def outdated(self, stored: str) -> bool:
        """Return True if a hash was made with weaker parameters than today's."""
        return self._hasher.check_needs_rehash(stored)

    async def apart(self, work: Callable[[], Made], *, known: bool = False) -> Made:
        """Run work in the thread, such as a strength check; raises 429 while MAX_WAITING others of its kind wait."""
        queue = self._known if known else self._strangers
        if len(queue) >= MAX_WAITING:
            raise Refusal(
                ErrorType.RATE_LIMITED,
                "Too many people are signing in right now. Wait 2 s, then try again.",
                retry_after_s=2,
            )
        done: asyncio.Future[Made] = asyncio.get_running_loop().create_future()
        queue.append(_Waiting(work, done))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await done

    def close(self) -> None:
        """Stop the thread after its current operation."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        """Run what waits, one after the other, until both queues are empty."""
        loop = asyncio.get_running_loop()
        while queue := self._known or self._strangers:
            one = queue.popleft()
            if one.done.done():  # its request was cancelled
                continue
            try:
                result = await loop.run_in_executor(self._threads, one.work)
            except Exception as error:  # noqa: BLE001 - raised to the request that waits
                if not one.done.done():
                    one.done.set_exception(error)
            else:
                if not one.done.done():
                    one.done.set_result(result)

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
