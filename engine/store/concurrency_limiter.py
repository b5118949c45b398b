"""Limit how many slow operations a process runs at the same time, in total and per account.

A filter without an index can occupy for seconds a database session that sending needs; a large message uses memory; a
domain check waits for DNS.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from msgspec import Struct

from engine.base.errors import ErrorType, Refusal, unavailable

WAIT_S = 2.5  # plus up to 5 s of reading: within the deadline of a request


class _Owner(Struct):
    """The running and waiting operations of one owner; lives as long as there is one."""

    places: asyncio.Semaphore
    requests: int = 0  # running or waiting
    started_at: list[float] = []  # start times of the running ones, monotonic
    average_s: float = 0.0  # recent duration of one operation


class ConcurrencyLimiter:
    """Allow `at_once` operations of a process at the same time, and `each` of one owner.

    Further operations of an owner wait for one another without delaying other owners. `work` names the operations in
    error messages, in the plural. Lives as long as the process.
    """

    def __init__(self, work: str, *, at_once: int, each: int) -> None:
        self._work = work
        self._gate = asyncio.Semaphore(at_once)
        self._each = each
        self._owners: dict[Hashable, _Owner] = {}

    @asynccontextmanager
    async def of(self, owner: Hashable, *, wait_s: float = WAIT_S) -> AsyncIterator[None]:
        """Wait for a free place and hold it until the block ends.

        Raises 429 if the owner's own operations occupy its places for longer than `wait_s`, 503 if those of others do.
        """
        own = self._owners.setdefault(owner, _Owner(asyncio.Semaphore(self._each)))
        own.requests += 1
        try:
            async with AsyncExitStack() as held:
                try:
                    async with asyncio.timeout(wait_s):
                        await held.enter_async_context(own.places)
                        await held.enter_async_context(self._gate)
                except TimeoutError:
                    raise self._refusal(own) from None
                with _running(own):
                    yield
        finally:
            own.requests -= 1
            if not own.requests:
                del self._owners[owner]

    def _refusal(self, own: _Owner) -> Refusal:
        if len(own.started_at) < self._each:  # the owner has a free place: operations of others delay it
            return unavailable()
        expected_s = max(own.average_s, time.monotonic() - own.started_at[0])
        wait = max(1, math.ceil((own.requests - 1) / self._each * expected_s))
        return Refusal(
            ErrorType.RATE_LIMITED,
            f"Too many {self._work} at the same time; your limit is {self._each}. Wait {wait} s, then send fewer at "
            "a time.",
            retry_after_s=wait,
        )


@contextmanager
def _running(own: _Owner) -> Iterator[None]:
    began = time.monotonic()
    own.started_at.append(began)
    try:
        yield
    finally:
        own.started_at.remove(began)
        own.average_s += (time.monotonic() - began - own.average_s) / 2


# An API process has ten database sessions. Filtering by status is quick except in very large accounts, and must not
# wait for word searches.
SEARCHES = ConcurrencyLimiter("searches", at_once=3, each=2)
FILTERS = ConcurrencyLimiter("filtered lists", at_once=3, each=2)
LARGE_MESSAGES = ConcurrencyLimiter(
    "reads of large messages", at_once=4, each=2
)  # 40 MiB each, and as much again taken apart
