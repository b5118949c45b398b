"""Turns of long reads: a filter without an index may read for seconds, and sends use the same sessions of Postgres."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import AsyncExitStack, asynccontextmanager

from engine.base.errors import unavailable

WAIT_S = 2.5  # and up to five seconds of reading: together within the deadline of a request


class Turns:
    """At most `at_once` reads of a process at the same time, and `each` of one owner: the others of an owner wait for
    each other, and hold nobody else up."""

    def __init__(self, *, at_once: int, each: int) -> None:
        self._gate = asyncio.Semaphore(at_once)
        self._each = each
        self._own: dict[Hashable, asyncio.Semaphore] = {}
        self._asking: dict[Hashable, int] = {}

    @asynccontextmanager
    async def of(self, owner: Hashable, *, wait_s: float = WAIT_S) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the block ends; a 503 where none comes: the others' reads take long, and
        nothing is known of this one."""
        own = self._own.setdefault(owner, asyncio.Semaphore(self._each))
        self._asking[owner] = self._asking.get(owner, 0) + 1
        try:
            async with AsyncExitStack() as held:
                try:
                    async with asyncio.timeout(wait_s):
                        await held.enter_async_context(own)
                        await held.enter_async_context(self._gate)
                except TimeoutError:
                    raise unavailable() from None
                yield
        finally:
            self._asking[owner] -= 1
            if not self._asking[owner]:
                del self._asking[owner], self._own[owner]


# Of the ten sessions of an API process. Looking for a status is quick but for accounts with very many messages, and not
# to wait behind those who look for a word.
SEARCHES = Turns(at_once=3, each=2)
FILTERS = Turns(at_once=3, each=2)
