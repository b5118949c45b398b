"""The outbound pipeline of one process: fetch, route, schedule, deliver, complete.

Each stage hands its deliveries to the next one and knows none above it: `fetch` reads what the process's shards owe and
puts it into the active queue (`intake`), `route` finds the servers, `schedule` starts workers within the windows of
sites, `deliver` speaks to the servers, `complete` settles the outcomes. The state that stages share (lease and shards,
active queue, site table, windows) is made here first and handed to each at construction.
"""

import asyncio
import functools
from collections.abc import Collection

import asyncpg
import structlog

from engine.base.settings import Settings
from engine.delivery.hints import HintReader, WokenShards
from engine.delivery.mx_routes import Router
from engine.delivery.sites_store import SiteRules
from engine.mail.simulator import domain_of
from engine.sending.settle import DeliveryAttempt, Settler
from engine.store import exemplars, metrics
from engine.store.database_errors import DatabaseUnavailable
from engine.store.pace import PACE
from engine.store.redis import RedisClient
from mta.outbound.active_queue import ActiveQueue
from mta.outbound.back_off import BackOff
from mta.outbound.complete import CompleteStage
from mta.outbound.deliver import WorkerTools
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.envelopes import EnvelopeBuilder
from mta.outbound.fetch import FetchStage
from mta.outbound.fetch_broadcasts import BroadcastLoader
from mta.outbound.holds import OperatorHolds
from mta.outbound.intake import RowIntake
from mta.outbound.outcome_journal import OutcomeJournal
from mta.outbound.requeue import Requeuer
from mta.outbound.resharding import Resharder
from mta.outbound.route import RouteStage
from mta.outbound.row_moves import RowMoves
from mta.outbound.schedule import MEASURE_S, TEND_QUIET_S, TEND_S, ScheduleStage
from mta.outbound.send_permission import SendPermission
from mta.outbound.sites.connections import SiteConnections
from mta.outbound.sites.proven_domains import ProvenDomains
from mta.outbound.sites.site_stats import SiteStats
from mta.outbound.sites.site_table import SiteTable
from mta.outbound.sites.windows import SiteWindows
from mta.outbound.source_ips.assignment import SourceAddresses
from mta.outbound.source_ips.unspent_quota import UnspentQuota
from mta.outbound.suppression_check import SuppressionCheck
from mta.outbound.tasks import DeliveryTasks
from mta.outbound.tls.security import TransportSecurity
from shards.load import ShardLoad
from shards.ownership import ShardOwnership

KEEP_SETTLED_S = 60.0
RELEASE_S = 2.0  # for giving leases of windows back at the end; otherwise they run out

_log = structlog.get_logger("mta")


class OutboundPipeline:
    """Delivery in one process. `process` is a name that no other living process has; `loading`, where given, has the
    sessions that find and load work; settled attempts at the simulator go to the queue `simulated`."""

    def __init__(
        self,
        *,
        settings: Settings,
        pool: asyncpg.Pool,
        client: RedisClient,
        process: str,
        ownership: ShardOwnership,
        reader: HintReader,
        woken: WokenShards,
        router: Router,
        envelopes: EnvelopeBuilder,
        settler: Settler,
        security: TransportSecurity,
        simulated: "asyncio.Queue[DeliveryAttempt]",
        loading: asyncpg.Pool | None = None,
    ) -> None:
        self._pool = pool
        self._process = process
        self._ownership = ownership
        self._security = security
        # State and policy that the stages share.
        self.tasks = tasks = DeliveryTasks()
        self.load = load = ShardLoad()
        self.site_stats = site_stats = SiteStats(settings, pool)
        unspent = UnspentQuota()
        self.active = active = ActiveQueue(settings.mta_active_limit, unspent)
        self._holds = holds = OperatorHolds(pool, active)
        self.sources = sources = SourceAddresses(settings, pool, unspent)
        rules = SiteRules(pool)
        self.table = table = SiteTable(settings, active, sources.health, rules.latest)
        self._windows = windows = SiteWindows(client, process, ownership)
        self._connections = connections = SiteConnections(settings, watch=site_stats.watch)
        proven, row_moves, suppression = ProvenDomains(), RowMoves(), SuppressionCheck(pool)
        requeuer = Requeuer(pool, active, proven)
        back_off = BackOff(windows, requeuer, tasks, several_sources=len(sources) > 1)
        self._resharder = Resharder(pool, row_moves=row_moves, active=active, ownership=ownership)
        # The stages, the last one first: each gets the one that it hands its deliveries to.
        self._journal = journal = OutcomeJournal(settings, settler)
        self._completer = completer = CompleteStage(
            settings=settings, pool=pool, settler=settler, journal=journal, active=active, sites=table,
            ownership=ownership, load=load, site_stats=site_stats, simulated=simulated, tasks=tasks,
        )  # fmt: skip
        tools = WorkerTools(
            settings=settings, connections=connections, proven=proven, envelopes=envelopes, active=active,
            suppression=suppression, permission=SendPermission(ownership, active, holds), windows=windows,
            back_off=back_off, security=security, completer=completer,
        )  # fmt: skip
        self.scheduler = scheduler = ScheduleStage(
            settings=settings, pool=pool, process=process, rules=rules, table=table, sources=sources, unspent=unspent,
            active=active, windows=windows, connections=connections, requeuer=requeuer, back_off=back_off,
            completer=completer, tools=tools, tasks=tasks,
        )  # fmt: skip
        self._routing = routing = RouteStage(
            settings=settings, router=router, security=security, envelopes=envelopes, holds=holds,
            site_stats=site_stats, active=active, proven=proven, table=table, scheduler=scheduler,
            connections=connections, completer=completer,
        )  # fmt: skip
        intake = RowIntake(
            simulator=domain_of(settings.mail_host), sealer=envelopes.sealer, active=active, ownership=ownership,
            row_moves=row_moves, suppression=suppression, holds=holds, routing=routing, tasks=tasks,
        )  # fmt: skip
        self._broadcasts = BroadcastLoader(
            pool=loading or pool, active=active, proven=proven, row_moves=row_moves, intake=intake
        )
        self._fetcher = FetchStage(
            settings=settings, pool=loading or pool, reader=reader, woken=woken, active=active, proven=proven,
            row_moves=row_moves, ownership=ownership, intake=intake, requeuer=requeuer, broadcasts=self._broadcasts,
        )  # fmt: skip
        self.caches = (
            rules.cache, *sources.caches, holds.cache, site_stats.cache, self._resharder.cache
        )  # for the process's Stamps  # fmt: skip

    # -- for the process -----------------------------------------------------------------------

    @property
    def in_hand(self) -> int:
        """The number of deliveries in memory."""
        return len(self.active)

    async def run(self) -> None:
        """Run all stages until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._fetcher.follow_hints())
            tasks.create_task(self._fetcher.load_later())
            tasks.create_task(self._fetcher.follow_due_times())
            tasks.create_task(self._broadcasts.run())
            tasks.create_task(self._resharder.run())
            tasks.create_task(self.load.run(self._pool, self._process, self._ownership))
            tasks.create_task(self._journal.run())
            tasks.create_task(self.scheduler.follow_windows())
            tasks.create_task(self.scheduler.tend())
            tasks.create_task(self._tend())
            tasks.create_task(self._security.run())

    async def drain(self, grace_s: float) -> None:
        """Finish open transactions within the grace, hand everything else back, settle what came back."""
        self.stop_taking()
        self._routing.stop()
        self._connections.stop()
        self.scheduler.stop()
        await self.tasks.finish(grace_s)
        await self._completer.idle()
        self._journal.clear()
        await self._security.flush()
        await self.site_stats.flush()
        await self.scheduler.close()
        self._measure()
        try:
            async with asyncio.timeout(RELEASE_S):
                await self._windows.release()
        except TimeoutError:
            _log.info("site windows not given back; their leases run out")

    def stop_taking(self) -> None:
        """Take no more work and start no worker."""
        self.active.close()

    # -- shards come and go --------------------------------------------------------------------

    async def settle_left(self) -> None:
        """Settle what ended processes of this host could not settle."""
        await self._completer.settle_left()

    async def gained(self, shards: Collection[int]) -> None:
        """Read recent hints and due rows of shards that this process has just gained."""
        self._fetcher.gained(shards)

    async def release(self, shards: Collection[int]) -> None:
        """Drop what waits of these shards, and return once nothing of them is on the wire any more."""
        gone = set(shards)
        if self.active.of_any(gone):
            self.table.drop(lambda one: one.row.shard in gone)
            for one in self.active:  # deliveries that are not routed yet may wait long for that
                if one.row.shard in gone and one.waits and not one.settling:
                    self.active.drop(one)
        while self.active.of_any(gone):  # noqa: ASYNC110 - rare: not worth an event with every delivery
            await asyncio.sleep(0.05)
        await self.scheduler.tend_sources()  # before the next owner looks for the quota that was taken here

    def fenced(self) -> None:
        """Forget everything in memory: it belongs to other processes. Open transactions stop before their content."""
        self._completer.forget_all()

    # -- upkeep --------------------------------------------------------------------------------

    async def _tend(self) -> None:
        """Apply the operator's holds; twice a second measure; forget what was settled long ago; until cancelled."""
        ticks = 0
        while True:
            await PACE.wait(TEND_S, TEND_QUIET_S)
            ticks += 1
            await self._apply_holds()
            if ticks % (KEEP_SETTLED_S / TEND_S) == 0:
                self.active.turn()
            if ticks % (MEASURE_S / TEND_S) == 0:
                self._measure()

    async def _apply_holds(self) -> None:
        """Show conversations to operators who watch, and set aside what a new hold stops while it waits."""
        try:
            await self.site_stats.tell()
            await self.site_stats.flush_due()
            if await self._holds.refresh():
                await self._put_held_aside()
            await self._holds.report_drain(self._ownership.member_id)
        except DatabaseUnavailable as error:
            _log.warning("holds not read", error=repr(error))

    async def _put_held_aside(self) -> None:
        for site in self.table:
            held = site.waiting.drop(functools.partial(self._is_held, site.name))
            try:
                await self._holds.unheld(held, site.name)
            except DatabaseUnavailable:
                for one in held:
                    self.active.drop(one)
                raise

    def _is_held(self, site: str, delivery: ActiveDelivery) -> bool:
        return self._holds.of(delivery, site) is not None

    def _measure(self) -> None:
        metrics.TALLY.write()
        exemplars.KEPT.write()
        metrics.IN_HAND.set(len(self.active))
        self._connections.measure()
        metrics.SHARDS_OWNED.set(len(self._ownership.shards))
        self._completer.measure()
