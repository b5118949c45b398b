"""Find open connections through /proc (proc(5)): of one process, or counted once a second."""

import asyncio
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

SAMPLE_S: Final = 1.0
_TABLE: Final = Path("/proc/net/tcp")
_LISTENING: Final = "0A"  # TCP_LISTEN in the column `st`


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


def connections_of(pid: int, port: int, *, accepted: bool = False) -> frozenset[int]:
    """Return the local ports of a process's established connections to `port`, or the remote ports of those that it
    `accepted` at its own `port` (proc(5), net/tcp)."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            target = str(entry.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text("utf-8").splitlines()[1:]:
        words = line.split()
        here, there = (int(word.partition(":")[2], 16) for word in words[1:3])
        server, client = (here, there) if accepted else (there, here)
        if words[9] in inodes and server == port and words[3] != _LISTENING:
            found.add(client)
    return frozenset(found)
