"""The part of the fetch stage that loads the mail of broadcasts: a few rows at a time, as the window has room.

The fetch stage finds due rows of broadcasts beside all others and offers their keys. They wait here without content, so
that a broadcast fills neither the active queue nor the event loop. A row whose key is forgotten is still due.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable

import asyncpg
import structlog

from engine.base.processor_wait import ProcessorWait
from engine.delivery import queue
from engine.store.database_errors import DatabaseUnavailable
from mta.outbound.active_queue import FULL, ActiveQueue, Key
from mta.outbound.intake import RowIntake
from mta.outbound.row_moves import RowMoves
from mta.outbound.shares import UNPROVEN, unproven_room
from mta.outbound.sites.proven_domains import ProvenDomains

MAX_AHEAD = 512  # keys that wait
FEW_AHEAD = 128  # at which more are asked for, if there are more
LOAD_ROWS = 64  # at once
RUN = 8  # rows of one domain in a row: keeps a connection busy, and lets other domains pass
KEEP_S = 5.0  # after which a key is forgotten: its row may have been postponed meanwhile, else it is found again
TICK_S = 0.01

_log = structlog.get_logger("mta")


class BroadcastLoader:
    """The keys of due rows of broadcasts in one process, domain by domain, and the loading of their rows."""

    def __init__(
        self,
        *,
        pool: asyncpg.Pool,
        active: ActiveQueue,
        proven: ProvenDomains,
        row_moves: RowMoves,
        intake: RowIntake,
    ) -> None:
        self._pool = pool
        self._active = active
        self._window = active.broadcasts
        self._proven = proven
        self._row_moves = row_moves
        self._intake = intake
        self._offered_at: dict[Key, float] = {}
        self._domains: OrderedDict[str, dict[Key, None]] = OrderedDict()  # the next one first
        self._more = False  # behind the keys that were offered last
        self._came = asyncio.Event()
        self._processor_wait = ProcessorWait()

    @property
    def ahead(self) -> Iterable[Key]:
        """Return the keys that wait or are being loaded."""
        return self._offered_at.keys()

    @property
    def is_low(self) -> bool:
        """Return True while there is room for many more keys."""
        return len(self._offered_at) <= MAX_AHEAD // 2

    def offer(self, keys: Iterable[Key], *, more: bool) -> None:
        """Keep keys of due rows, as many as fit. `more`: there are more behind them."""
        now = time.monotonic()
        self._more = more
        for key in keys:
            if key in self._offered_at:
                continue
            if len(self._offered_at) >= MAX_AHEAD:
                self._more = True
                break
            self._offered_at[key] = now
            self._domains.setdefault(key[1], {})[key] = None
        if self._offered_at:
            self._came.set()

    async def run(self) -> None:
        """Load rows as the window has room, until cancelled."""
        while True:
            await self._came.wait()
            await self._measure()
            keys = self._take(self._room())
            try:
                await self._load(keys)
            except (DatabaseUnavailable, OSError) as error:
                _log.warning("broadcast rows not loaded", error=repr(error))
                await asyncio.sleep(0.5)  # they are still due
            for key in keys:
                del self._offered_at[key]
            self._ask_for_more()

    async def _measure(self) -> None:
        """Wait for a tick, and adapt the window to how late the event loop ends it."""
        began = time.monotonic()
        await asyncio.sleep(TICK_S)
        await asyncio.sleep(0)  # a whole turn
        now = time.monotonic()
        self._window.measured(now - began - TICK_S, self._processor_wait.look(), now)

    def _room(self) -> int:
        active = self._active
        return min(self._window.room(time.monotonic()), active.room, int(FULL * active.limit) - len(active), LOAD_ROWS)

    def _take(self, count: int) -> list[Key]:
        """Remove and return at most `count` keys, domains in turns, without those that waited for long."""
        taken: list[Key] = []
        since = time.monotonic() - KEEP_S
        while self._domains and len(taken) < count:
            domain, keys = next(iter(self._domains.items()))
            for key in list(keys)[: min(RUN, count - len(taken))]:
                del keys[key]
                if self._offered_at[key] > since:
                    taken.append(key)
                else:
                    del self._offered_at[key]
            self._domains.move_to_end(domain)
            if not keys:
                del self._domains[domain]
        return taken

    async def _load(self, keys: list[Key]) -> None:
        """Hand rows to the intake; those for unproven domains only while these have room in the active queue."""
        if any(key[1] not in self._proven for key in keys):
            room = unproven_room(self._active.by_domain, int(UNPROVEN * self._active.limit), self._proven)
            keys = [key for key in keys if key[1] in self._proven or (room := room - 1) >= 0]
        if keys:
            with self._row_moves.reading():
                await self._intake.take(queue.load(self._pool, keys))

    def _ask_for_more(self) -> None:
        if not self._offered_at:
            self._came.clear()
        if self._more and len(self._offered_at) <= FEW_AHEAD:
            self._more = False  # until the next offer
            self._active.refill.set()
