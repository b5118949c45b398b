"""Limit the number of DNS queries in flight. Names that were answered before never wait behind unknown ones.

A name whose servers do not respond holds its slot for seconds, and a customer's address list may have thousands of
them.
"""

import asyncio
from collections import deque
from typing import Final

MAX_QUERIES: Final = 256  # open sockets; further queries wait within their own time limit
KEPT: Final = 64  # reserved for names that were answered before


class QuerySlots:
    """The slots of one resolver, within one event loop."""

    def __init__(self, total: int = MAX_QUERIES, kept: int = KEPT) -> None:
        self._free = total
        self._kept = kept
        self._known: deque[asyncio.Future[None]] = deque()
        self._unknown: deque[asyncio.Future[None]] = deque()

    @property
    def is_crowded(self) -> bool:
        """Return True while queries for names that were never answered wait."""
        return bool(self._unknown)

    async def acquire(self, *, known: bool) -> None:
        """Wait for a slot, which the caller must release. `known`: the name was answered before."""
        if self._free > (0 if known else self._kept):
            self._free -= 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._known if known else self._unknown).append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Release a slot."""
        self._free += 1
        self._grant(self._known, 0)
        self._grant(self._unknown, self._kept)

    def _grant(self, waiting: deque[asyncio.Future[None]], kept: int) -> None:
        while waiting and (self._free > kept or waiting[0].done()):
            future = waiting.popleft()
            if not future.done():  # else it was cancelled
                self._free -= 1
                future.set_result(None)
