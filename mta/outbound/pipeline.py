"""The outbound engine of one process: takes what its shards owe, brings it to its sites, settles what came back.

What finds work, holds it in hand, paces it and finishes it has a file each; here they meet.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Collection, Coroutine, Iterable

import asyncpg
import structlog

from engine.areas.suppressions import store as suppressions
from engine.base.settings import Settings
from engine.delivery.hints import HintReader, WokenShards
from engine.delivery.queue import Row
from engine.flows.settle import Attempt
from engine.mail.address import canonical
from engine.store import metrics
from engine.store.postgres import AWAY, heed_cancellation
from engine.store.redis import Client
from mta.outbound.active_queue import ActiveQueue
from mta.outbound.complete import AttemptSettler, CompleteStage
from mta.outbound.deliver import DeliveryWorker
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.envelopes import EnvelopeBuilder
from mta.outbound.fetch import Entries, FetchStage
from mta.outbound.holds import OperatorHolds
from mta.outbound.mx_routes import Router
from mta.outbound.report import Report
from mta.outbound.requeue import Requeuer
from mta.outbound.resharding import Resharder
from mta.outbound.route import RouteStage
from mta.outbound.row_moves import RowMoves
from mta.outbound.schedule import MEASURE_S, TEND_S, ScheduleStage
from mta.outbound.sites.connections import SiteConnections
from mta.outbound.sites.proven_domains import ProvenDomains
from mta.outbound.sites.site import Site
from mta.outbound.sites.site_stats import SiteStats
from mta.outbound.sites.windows import SiteWindows
from mta.outbound.tls.security import TransportSecurity
from shards.load import Load
from shards.member import Member

KEEP_SETTLED_S = 60.0
RELEASE_S = 2.0  # for giving leases of windows back at the end: without it they run out by themselves

_log = structlog.get_logger("mta")


def _nobody(_: Attempt) -> None:
    """Who listens when nobody does."""


class OutboundPipeline:
    """Delivery for one process. `process` is a name that no other living process has; `loading`, where there is one,
    has the sessions that find and load work; `settled` hears of each attempt once it is on record."""

    def __init__(
        self,
        *,
        settings: Settings,
        pool: asyncpg.Pool,
        client: Client,
        process: str,
        reader: HintReader,
        woken: WokenShards,
        router: Router,
        envelopes: EnvelopeBuilder,
        settler: AttemptSettler,
        security: TransportSecurity,
        loading: asyncpg.Pool | None = None,
        settled: Callable[[Attempt], None] = _nobody,
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._envelopes = envelopes
        self._security = security
        self.holds = OperatorHolds(pool)
        self.site_stats = SiteStats(pool)
        self.load = Load()
        self._process = process
        self._connections = SiteConnections(settings, watch=self.site_stats.watch)
        self._tasks: set[asyncio.Task[None]] = set()
        self._workers: set[DeliveryWorker] = set()
        self._active = active = ActiveQueue(settings.mta_active_limit)
        self._windows = SiteWindows(client, process, lambda: len(self.member.owned) / settings.shards)
        self._row_moves = RowMoves()
        self._proven = ProvenDomains()
        requeuer = Requeuer(pool, active, self._proven)
        self._fetcher = FetchStage(
            settings=settings, pool=loading or pool, reader=reader, woken=woken, active=active, proven=self._proven,
            row_moves=self._row_moves, owned=lambda: self.member.owned, take=self._take, leave=requeuer.leave,
        )  # fmt: skip
        self._resharder = Resharder(
            pool, shards=settings.shards, row_moves=self._row_moves, in_hand=active.known,
            owned=lambda: self.member.owned, member=lambda: self.member.id,
        )  # fmt: skip
        self._completer = CompleteStage(
            settings=settings, pool=pool, reader=reader, settler=settler, active=active, spawn=self._spawn,
            on_fenced=self._lose_all, saw=self._saw, settled=settled,
        )  # fmt: skip
        self._sites = ScheduleStage(
            settings=settings, pool=pool, active=active, windows=self._windows, process=process, spawn=self._spawn,
            connections=self._connections, requeuer=requeuer, employ=self._employ,
            settle=self._completer.settle,
        )  # fmt: skip
        self._routing = RouteStage(
            settings=settings, router=router, security=security, envelopes=envelopes, holds=self.holds,
            site_stats=self.site_stats, active=active, proven=self._proven, sites=self._sites,
            connections=self._connections, completer=self._completer,
        )  # fmt: skip
        self._report = Report(
            settle=self._completer.settle,
            hand_back=active.drop,
            fault=self._completer.fault,
            recheck=self._recheck,
            may_send=self._may_send,
            tls=security.count,
            token=self._windows.token,
            left_alone=self._sites.left_alone,
        )
        self.caches = (
            self._sites.rules.cache, *self._sites.sources.caches, self.holds.cache, self.site_stats.cache,
            self._resharder.cache,
        )  # for the process's Stamps  # fmt: skip
        self.member: Member  # set by the process: the two need each other

    # -- for the process -----------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._fetcher.follow_hints())
            tasks.create_task(self._fetcher.follow_due_times())
            tasks.create_task(self._fetcher.finish_left())
            tasks.create_task(self._resharder.run())
            tasks.create_task(self.load.run(self._pool, self._process, lambda: self.member.owned))
            tasks.create_task(self._completer.acknowledge())
            tasks.create_task(self._windows.run(self._sites.demand, self._sites.shared))
            tasks.create_task(self._sites.tend())
            tasks.create_task(self._tend())
            tasks.create_task(self._security.run())

    async def drain(self, grace_s: float) -> None:
        """Finish open transactions within the grace, hand everything else back, settle what came back."""
        self.stop_taking()
        self._routing.stop()
        self._connections.stop()
        self._sites.drop(lambda _: True)
        for worker in list(self._workers):
            worker.stop()
        deadline = time.monotonic() + grace_s
        while self._tasks and time.monotonic() < deadline:
            await asyncio.wait(self._tasks, timeout=max(0.0, deadline - time.monotonic()))
        for task in list(self._tasks):
            task.cancel()
        await self._completer.idle()
        await self._security.flush()
        await self._completer.acknowledge_once()
        await self._sites.close()
        self._measure()
        try:
            async with asyncio.timeout(RELEASE_S):
                await self._windows.release()
        except TimeoutError:
            _log.info("site windows left to run out")

    def stop_taking(self) -> None:
        """Take no more work and hire nobody."""
        self._active.closed = True

    async def gained(self, shards: Collection[int]) -> None:
        """Shards came."""
        await self._fetcher.gained(shards)

    async def release(self, shards: Collection[int]) -> None:
        """Shards are to go: drop what waits, wait for what is on the wire."""
        gone = set(shards)
        if self._active.of_any(gone):
            self._sites.drop(lambda one: one.row.shard in gone)
            for one in self._active:  # what is not routed yet may wait long for that
                if one.row.shard in gone and one.waits and not one.settling:
                    self._active.drop(one)
        while self._active.of_any(gone):  # noqa: ASYNC110 - rare; no event per delivery
            await asyncio.sleep(0.05)
        await self._sites.tend_sources()  # before others look for the room that was taken here

    def fenced(self) -> None:
        """Everything in hand belongs to others: forget it. Open transactions stop before their content."""
        self._sites.drop(lambda _: True)
        self._active.forget_all()

    def _saw(self, attempt: Attempt) -> Attempt:
        self.load.count(attempt.row.shard, attempt.row.domain)
        return self.site_stats.saw(attempt)

    def _lose_all(self) -> None:
        self.member.lose_all()

    @property
    def in_hand(self) -> int:
        """Deliveries in memory."""
        return len(self._active)

    # -- taking work ---------------------------------------------------------------------------

    async def _take(self, rows: Iterable[Row], entries: Entries) -> None:
        now = time.monotonic()
        fresh: list[ActiveDelivery] = []
        for row in rows:
            entry = entries.get((row.shard, row.message_id))
            if (
                self._active.known(row.key, row.attempts)
                or row.shard not in self.member.owned
                or self._active.closed
                or self._row_moves.refuses(row)
            ):
                self._active.done_with((entry,) if entry else ())
                continue
            delivery = ActiveDelivery(row, entry, now)
            self._active.add(delivery)
            fresh.append(delivery)
        if not fresh:
            return
        try:
            await self._mark_suppressed([one for one in fresh if one.row.suspect])
            fresh = await self._routing.unheld(fresh)
        except BaseException:
            for delivery in fresh:
                self._active.drop(delivery)
            raise
        by_domain: dict[str, list[ActiveDelivery]] = {}
        for delivery in fresh:
            by_domain.setdefault(delivery.row.domain, []).append(delivery)
        for domain, group in by_domain.items():
            self._spawn(self._routing.route(domain, group))

    async def _recall(self) -> None:
        """A new hold stops what waits in hand too."""
        try:
            await self.site_stats.tell()
            if not await self.holds.refresh():
                return
            for site in self._sites:
                held = site.waiting.drop(functools.partial(self._is_held, site.name))
                try:
                    await self._routing.unheld(held, site.name)
                except AWAY:
                    for one in held:
                        self._active.drop(one)
                    raise
        except AWAY as error:
            heed_cancellation()
            _log.warning("holds not heeded yet", error=repr(error))

    def _is_held(self, site: str, delivery: ActiveDelivery) -> bool:
        return self.holds.of(delivery, site) is not None

    async def _mark_suppressed(self, deliveries: list[ActiveDelivery]) -> None:
        if not deliveries:
            return
        found = await suppressions.blocking(
            self._pool,
            [
                (one.row.account_id, canonical(address), one.row.message_id)
                for one in deliveries
                for _, address in one.pairs
            ],
        )
        for one in deliveries if found else ():
            for _, address in one.pairs:
                reason = found.get((one.row.account_id, canonical(address), one.row.message_id))
                if reason is not None:
                    one.suppressed[address] = reason

    async def _recheck(self, delivery: ActiveDelivery) -> None:
        try:
            await self._mark_suppressed([delivery])
        except AWAY:
            return  # it was checked when it was loaded; the bounce would be caught by its own settling
        delivery.loaded_at = time.monotonic()

    async def _employ(self, site: Site) -> None:
        worker = DeliveryWorker(site, self._connections, self._proven, self._envelopes, self._report, self._settings)
        self._workers.add(worker)
        try:
            await worker.run()
        finally:
            self._workers.discard(worker)

    # -- upkeep --------------------------------------------------------------------------------

    async def _tend(self) -> None:
        """Heed the operator's holds; twice a second, measure; forget what was settled long ago."""
        ticks = 0
        while True:
            await asyncio.sleep(TEND_S)
            ticks += 1
            await self._recall()
            if ticks % (KEEP_SETTLED_S / TEND_S) == 0:
                self._active.turn()
            if ticks % (MEASURE_S / TEND_S) == 0:
                self._measure()

    def _measure(self) -> None:
        metrics.TALLY.write()
        metrics.IN_HAND.set(len(self._active))
        self._connections.measure()
        metrics.SHARDS_OWNED.set(len(self.member.owned))
        self._completer.measure()

    def _may_send(self, delivery: ActiveDelivery) -> bool:
        """Asked right before content is written. Fenced and joined anew, the lease stands again, but not for this."""
        return self.member.holds and self._active.has(delivery) and self.holds.of(delivery) is None

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("delivery task failed", exc_info=task.exception())
