"""Turns at long work: what takes a request seconds must not hold up the others, nor one account all the others.

A filter without an index may read for seconds, and sends use the same sessions of Postgres; a large message fills the
memory, a check of a domain waits for DNS.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from msgspec import Struct

from engine.base.errors import ErrorType, Refusal, unavailable

WAIT_S = 2.5  # and up to five seconds of reading: together within the deadline of a request


class _Owner(Struct):
    """The work of one owner: lives while any of it waits or runs."""

    turns: asyncio.Semaphore
    asking: int = 0  # at work, or waiting
    at_work: list[float] = []  # when each of them began, by the monotonic clock
    typical_s: float = 0.0  # what a turn took lately


class ConcurrencyLimiter:
    """At most `at_once` turns of a process at the same time, and `each` of one owner: the others of an owner wait for
    each other, and hold nobody else up. `work` names what is done, in the plural."""

    def __init__(self, work: str, *, at_once: int, each: int) -> None:
        self._work = work
        self._gate = asyncio.Semaphore(at_once)
        self._each = each
        self._owners: dict[Hashable, _Owner] = {}

    @asynccontextmanager
    async def of(self, owner: Hashable, *, wait_s: float = WAIT_S) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the block ends.

        Raises 429 where the owner's own work has all its turns for longer than `wait_s`, 503 where others' work has.
        """
        own = self._owners.setdefault(owner, _Owner(asyncio.Semaphore(self._each)))
        own.asking += 1
        try:
            async with AsyncExitStack() as held:
                try:
                    async with asyncio.timeout(wait_s):
                        await held.enter_async_context(own.turns)
                        await held.enter_async_context(self._gate)
                except TimeoutError:
                    raise self._refusal(own) from None
                with _at_work(own):
                    yield
        finally:
            own.asking -= 1
            if not own.asking:
                del self._owners[owner]

    def _refusal(self, own: _Owner) -> Refusal:
        if len(own.at_work) < self._each:  # its next waits for the others' work, and this one behind it
            return unavailable()
        turn_s = max(own.typical_s, time.monotonic() - own.at_work[0])
        wait = max(1, math.ceil((own.asking - 1) / self._each * turn_s))
        return Refusal(
            ErrorType.RATE_LIMITED,
            f"Too many {self._work} of this account at once: {self._each} may run at the same time, and those before "
            f"this one take long. Wait {wait} s, and send fewer at the same time.",
            retry_after_s=wait,
        )


@contextmanager
def _at_work(own: _Owner) -> Iterator[None]:
    began = time.monotonic()
    own.at_work.append(began)
    try:
        yield
    finally:
        own.at_work.remove(began)
        own.typical_s += (time.monotonic() - began - own.typical_s) / 2


# Of the ten sessions of an API process. Looking for a status is quick but for accounts with very many messages, and not
# to wait behind those who look for a word.
SEARCHES = ConcurrencyLimiter("searches", at_once=3, each=2)
FILTERS = ConcurrencyLimiter("filtered lists", at_once=3, each=2)
LARGE_MESSAGES = ConcurrencyLimiter(
    "reads of large messages", at_once=4, each=2
)  # 40 MiB each, and as much again taken apart
