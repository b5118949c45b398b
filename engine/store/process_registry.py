"""List the running processes of all hosts: each writes its row to PostgreSQL every few seconds.

The list is for operators only (`ops nodes`); leases decide which process delivers (`shards.member`).
"""

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import asyncpg
import structlog
from msgspec import Struct

from engine.base import clock, ids
from engine.base.version import version
from engine.store.database_errors import DatabaseUnavailable
from engine.store.pace import PACE
from engine.store.queries import Queries

SHOW_S = 3.0
QUIET_SHOW_S = 3 * SHOW_S  # in a quiet service of the small profile
GONE_S = 5 * SHOW_S  # without a report for this long, a process hangs, is cut off or has crashed
FORGET_S = 600.0
RATE_S = 60.0
LEAVE_S = 1.0

_SQL = Queries.beside(__file__, "process_registry.sql")
_SHOW = _SQL.command("show_process")
_LEAVE = _SQL.command("leave_process")
_FORGET = _SQL.command("forget_processes")

_log = structlog.get_logger("presence")


class RegisteredProcess(Struct, frozen=True):
    """The last report of a process. `rate` is in messages per second over the last minute; a missing figure is None."""

    host: str
    name: str
    kind: str
    version: str
    pid: int
    since: datetime
    silent_s: float
    shards: int | None
    in_hand: int | None
    rate: float | None
    memory_bytes: int | None


class ProcessLoad(Struct, frozen=True):
    """The present workload of a process."""

    shards: int | None = None
    in_hand: int | None = None
    rate: float | None = None


READ_PROCESSES = _SQL.rows("read_processes", RegisteredProcess)


class ProcessRegistration:
    """Keeps the row of this process up to date while `run` runs."""

    def __init__(self, pool: asyncpg.Pool, *, kind: str, name: str, figures: Callable[[], ProcessLoad]) -> None:
        self._pool = pool
        self._id = ids.uuid7()
        self._kind = kind
        self._name = name
        self._since = clock.machine_now()
        self._figures = figures

    async def run(self) -> None:
        """Write the row every few seconds until cancelled, then delete it."""
        try:
            while True:
                try:
                    await self.show()
                except DatabaseUnavailable as error:
                    _log.debug("process not registered", error=repr(error))
                await PACE.wait(SHOW_S, QUIET_SHOW_S)
        finally:
            with suppress(DatabaseUnavailable, TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await _LEAVE.execute(self._pool, self._id)

    async def show(self) -> None:
        """Write the row once. Raises DatabaseUnavailable."""
        found = self._figures()
        await _SHOW.execute(
            self._pool, self._id, socket.gethostname(), self._name, self._kind, version(), os.getpid(), self._since,
            found.shards, found.in_hand, found.rate, memory_bytes(),
        )  # fmt: skip


class Rate:
    """Counts items; `of` returns their rate per second over the last minute."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self._counts: deque[tuple[int, int]] = deque()  # second, how many

    def flushed(self, then: Callable[[int, float], None]) -> Callable[[int, float], None]:
        """Return a callback for a group commit that counts its items and then calls `then`."""

        def on_flush(items: int, seconds: float) -> None:
            self.add(items)
            then(items, seconds)

        return on_flush

    def add(self, items: int) -> None:
        """Count `items` more."""
        second = int(self._now())
        if self._counts and self._counts[-1][0] == second:
            items += self._counts.pop()[1]
        self._counts.append((second, items))
        while self._counts[0][0] < second - RATE_S:
            self._counts.popleft()

    def of(self) -> float:
        """Return the rate in items per second."""
        now = self._now()
        passed = sum(items for second, items in self._counts if second > now - RATE_S)
        return passed / max(1.0, min(RATE_S, now - self._began))


async def forget(pool: asyncpg.Pool) -> None:
    """Delete the rows of processes that have not reported for a long time."""
    await _FORGET.execute(pool, FORGET_S)


def memory_bytes() -> int | None:
    """Return the resident memory of this process; None where /proc is missing."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
