"""Count the open connections to a drill's servers, from /proc/net/tcp, once a second."""

import asyncio
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

SAMPLE_S: Final = 1.0
_TABLE: Final = Path("/proc/net/tcp")


class OpenConnections:
    """Counts open and distinct connections; connections shorter than the interval may be missed.

    `pattern` matches a line of the table; its groups are the local and the remote end. An asynchronous context
    manager:
    it counts while entered.
    """

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self.max_open = 0
        self.max_to_one = 0  # at once, to the same remote end
        self._pattern = pattern
        self._seen: set[tuple[bytes, bytes]] = set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    @property
    def opened(self) -> int:
        """Return the number of distinct connections seen."""
        return len(self._seen)

    def count(self, table: bytes) -> None:
        """Count the connections in one copy of the table."""
        found = set(self._pattern.findall(table))  # the kernel shows lines twice while the table changes
        self._seen.update(found)
        self.max_open = max(self.max_open, len(found))
        each = Counter(remote for _, remote in found)
        self.max_to_one = max(self.max_to_one, max(each.values(), default=0))

    async def _run(self) -> None:
        while True:
            self.count(await asyncio.to_thread(_TABLE.read_bytes))
            await asyncio.sleep(SAMPLE_S)
