"""Manage the live tails of one process: their slots, the ends of their logs, and revoked readers.

One query per quarter second polls the ends of all tailed logs, so it sees the writes of every process. The only state
of a tail is the seq it has reached: a reader may reconnect to any process and continue there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from typing import Final
from uuid import UUID

import asyncpg
import structlog
from prometheus_client import Gauge

from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.events.tails import store
from engine.events.tails.feed import Feed, LogView
from engine.events.tails.store import TailSlot
from engine.events.tails.types import Ending, EndsRow, Filters, ShownEvent, TailReader, TailStart
from engine.store.database_errors import DatabaseError, DatabaseUnavailable

QUICK_S, QUIET_S = 0.1, 0.25  # between two polls, while events arrive and when none do
QUICK_FOR_S: Final = 2.0
CHECK_S: Final = 1.0
READS_AT_ONCE: Final = 4  # of the process's PostgreSQL connections; the others are for sends
LOOK_BACK: Final = 20  # max. pages that a filtered tail searches for its first events
RETRY_S: Final = 1.0
UNREADABLE: Final = (DatabaseError, TimeoutError)  # retried at the next poll
AT_ONCE_BYTES: Final = 64 * 1024  # max. bytes handed to a reader in one batch

TAILS_OPEN = Gauge("waybill_tails_open", "Live tails now open", multiprocess_mode="livesum")

_log = structlog.get_logger("tails")


class Tail:
    """Follow one account's log for one reader. `at` is the seq up to which the reader has got all its events."""

    def __init__(self, hub: "Tails", feed: Feed, place: TailSlot, reader: TailReader, wanted: Filters) -> None:
        self.at = 0
        self.first = 1
        self.feed = feed
        self.reader = reader
        self.place = place
        self.ended: Ending | None = None
        self._hub = hub
        self._wanted = wanted
        self._news = asyncio.Event()

    async def next(self, timeout_s: float) -> list[ShownEvent]:
        """Return the next events to show; [] after `timeout_s`, at the end, or if none of a page matches."""
        if self.ended is not None:
            return []
        if self.at < self.feed.head:
            try:
                return await self._take()
            except UNREADABLE as error:
                _log.warning("account log not read", error=repr(error))
                timeout_s = min(timeout_s, RETRY_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        self._news.clear()
        return []

    def end(self, reason: Ending) -> None:
        """End the tail; the first reason counts."""
        self.ended = self.ended or reason
        self._news.set()

    def wake(self) -> None:
        """Wake the reader, because the log has grown."""
        self._news.set()

    async def close(self) -> None:
        """Release the slot. Idempotent."""
        await self._hub.close(self)

    async def _take(self) -> list[ShownEvent]:
        through = min(self.feed.head, self.at + store.PAGE)
        found = await self.feed.after(self.at, slowest=self._hub.slowest(self.feed))
        wanted, size = [], 0
        for one in found:
            self.at = one.seq
            if self._wanted.takes(one):
                wanted.append(one)
                size += len(one.chunk)
            if size >= AT_ONCE_BYTES:
                break
        if not found:
            self.at = through  # these events were purged
        return wanted


class Tails:
    """All tails of this process. `still_allowed` returns those readers that may still read."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        settings: Settings,
        *,
        still_allowed: Callable[[Collection[TailReader]], Awaitable[Collection[TailReader]]],
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._still_allowed = still_allowed
        self._gate = asyncio.Semaphore(READS_AT_ONCE)
        self._query_timeout_s = max(
            1.0, settings.tail_lease_s / 3
        )  # per query: no lease may expire because of a query that hangs
        self._feeds: dict[tuple[UUID, LogView], tuple[Feed, set[Tail]]] = {}
        self._tails: set[Tail] = set()
        self._any = asyncio.Event()
        self._no_renewal = asyncio.Event()  # set while no query renews slots
        self._no_renewal.set()
        self._stopping = asyncio.Event()

    # -- tails ---------------------------------------------------------------------------------

    async def open(self, reader: TailReader, view: LogView, wanted: Filters, start: TailStart) -> Tail:
        """Open a tail of a log in a view at `start`.

        Raises the 429 above the account's limit, which counts the tails of all views, the 503 if this process is full.
        """
        if self._stopping.is_set() or len(self._tails) >= self._settings.tails_per_worker:
            raise Refusal(
                ErrorType.UNAVAILABLE,
                "This server has no room for another live tail. Try again in a few seconds.",
                retry_after_s=2,
            )
        account = reader.account_id
        place = await store.claim(self._pool, account, self._settings.tail_lease_s)
        fresh = Feed(self._pool, account, view, self._gate)
        feed, tails = self._feeds.setdefault((account, view), (fresh, set()))
        tail = Tail(self, feed, place, reader, wanted)
        tails.add(tail)
        self._tails.add(tail)
        TAILS_OPEN.inc()
        try:
            await self._begin(tail, wanted, start)
        except BaseException:
            await self.close(tail)
            raise
        self._any.set()
        if self._stopping.is_set():
            tail.end(Ending.SHUTDOWN)
        return tail

    async def close(self, tail: Tail) -> None:
        """Close a tail and release its slot."""
        if tail not in self._tails:
            return
        self._tails.remove(tail)
        TAILS_OPEN.dec()
        key = (tail.feed.account, tail.feed.view)
        _, tails = self._feeds[key]
        tails.remove(tail)
        if not tails:
            del self._feeds[key]
        # A renewal that has begun with this slot would claim it again after its release. Later ones leave it out.
        await self._no_renewal.wait()
        try:
            await store.release(self._pool, tail.place)
        except DatabaseUnavailable as error:
            _log.warning("tail slot not released, its lease will expire", error=repr(error))

    def stop(self) -> None:
        """End every tail and accept no more."""
        self._stopping.set()
        for tail in self._tails:
            tail.end(Ending.SHUTDOWN)

    def slowest(self, feed: Feed) -> int:
        """Return the smallest seq that the tails of a feed have reached."""
        return min(tail.at for tail in self._feeds[feed.account, feed.view][1])

    async def _begin(self, tail: Tail, wanted: Filters, start: TailStart) -> None:
        ends = await store.end(self._pool, tail.feed.account)
        tail.feed.head = max(tail.feed.head, ends.seq)
        tail.first = ends.purged_through_seq + 1
        if start.after is not None:
            tail.at = min(max(start.after, ends.purged_through_seq), ends.seq)
        else:
            tail.at = await self._look_back(tail.feed, wanted, ends, start.replay)

    async def _look_back(self, feed: Feed, wanted: Filters, ends: EndsRow, count: int) -> int:
        """Return the seq before the last `count` matching events, or as far back as the search may go."""
        through = ends.seq
        for _ in range(LOOK_BACK if count else 0):
            if through <= ends.purged_through_seq:
                break
            for one in reversed(await feed.last(through)):
                count -= wanted.takes(one)
                if count == 0:
                    return one.seq - 1
            through = max(ends.purged_through_seq, through - store.PAGE)
        return through

    # -- background tasks ----------------------------------------------------------------------

    async def run(self) -> None:
        """Poll logs, renew slots and check readers until cancelled; end all tails if that fails."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch())
                tasks.create_task(self._every(self._settings.tail_lease_s / 3, self._renew))
                tasks.create_task(self._every(CHECK_S, self._check))
        except ExceptionGroup as error:
            _log.error("all live tails ended", exc_info=error)
            self.stop()
            raise

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        quick_until = 0.0
        while True:
            if not self._tails:
                self._any.clear()
                await self._any.wait()
            if await self._run_once(self._poll):
                quick_until = loop.time() + QUICK_FOR_S
            await asyncio.sleep(QUICK_S if loop.time() < quick_until else QUIET_S)

    async def _poll(self) -> bool:
        """Wake the tails whose log has grown; return True if any has."""
        grown = False
        ends = await store.ends(self._pool, {account for account, _ in self._feeds})
        known = {row.account_id: row.seq for row in ends}
        for feed, tails in self._feeds.values():
            seq = known.get(feed.account, 0)
            if seq > feed.head:
                feed.head = seq
                grown = True
                for tail in tails:
                    tail.wake()
        return grown

    async def _renew(self) -> bool:
        tails = list(self._tails)
        if tails:
            self._no_renewal.clear()
            try:
                kept = await store.renew(self._pool, [tail.place for tail in tails], self._settings.tail_lease_s)
            finally:
                self._no_renewal.set()
            for tail in tails:
                if tail.place.holder not in kept:
                    tail.end(Ending.TOO_MANY_STREAMS)
        return True

    async def _check(self) -> bool:
        """End the tails of revoked or expired keys, of suspended accounts, and of ended sessions."""
        readers = {tail.reader for tail in self._tails}
        if readers:
            left = readers.difference(await self._still_allowed(readers))
            for tail in self._tails:
                if tail.reader in left:
                    tail.end(Ending.UNAUTHORIZED)
        return True

    async def _every(self, seconds: float, act: Callable[[], Coroutine[None, None, bool]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self._run_once(act)

    async def _run_once(self, act: Callable[[], Coroutine[None, None, bool]]) -> bool:
        """Run `act`. While PostgreSQL is unavailable, tails stay open and revocations are not seen."""
        try:
            async with asyncio.timeout(self._query_timeout_s):
                return await act()
        except UNREADABLE as error:
            _log.warning("account logs not polled", error=repr(error))
            await asyncio.sleep(RETRY_S)
            return False
