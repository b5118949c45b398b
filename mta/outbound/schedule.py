"""The schedule stage of one process: mail that waits for its site, and how many connections each site gets.

Policy is elsewhere and pure (`sites/`): the site table, fair queues, pacers and slots. Here it is applied: workers are
started where mail waits, shares of windows are leased, and mail that would wait long goes back to the queue. Changed
rules take effect with the next round, every eighth of a second.
"""

import asyncio
import random
import time
from datetime import datetime, timedelta

import asyncpg
import structlog

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery import sites_store
from engine.delivery.routes import Route
from engine.delivery.sites_store import SiteRules
from engine.delivery.sources import next_midnight
from engine.delivery.wait_reasons import QueuedReason
from engine.store.database_errors import BadData, DatabaseUnavailable
from engine.store.pace import PACE
from mta.outbound.active_queue import ActiveQueue
from mta.outbound.back_off import BackOff
from mta.outbound.complete import CompleteStage
from mta.outbound.deliver import DeliveryWorker, WorkerTools
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.requeue import Requeuer
from mta.outbound.sites.connections import SiteConnections
from mta.outbound.sites.pacer import Pacer
from mta.outbound.sites.site import Site, SiteGroup, hosts_of, state_of
from mta.outbound.sites.site_table import SiteTable
from mta.outbound.sites.windows import SiteWindows
from mta.outbound.source_ips.assignment import Shares, SourceAddresses, reachable
from mta.outbound.source_ips.unspent_quota import UnspentQuota
from mta.outbound.tasks import DeliveryTasks

TEND_S = 0.125
TEND_QUIET_S = 3.0
MEASURE_S = 0.5
LOOK_LATE_S = 2.0
FORGETTING = 0.9  # part of the longest turn that is kept with every measurement
SHOW_EVERY_S = 3.0
MAX_SHOWN = 200  # states written at once
FORGET_AFTER = timedelta(days=1)

_log = structlog.get_logger("mta")


class ScheduleStage:
    """Gives waiting deliveries to workers, within the windows of their sites."""

    def __init__(
        self,
        *,
        settings: Settings,
        pool: asyncpg.Pool,
        process: str,
        rules: SiteRules,
        table: SiteTable,
        sources: SourceAddresses,
        unspent: UnspentQuota,
        active: ActiveQueue,
        windows: SiteWindows,
        connections: SiteConnections,
        requeuer: Requeuer,
        back_off: BackOff,
        completer: CompleteStage,
        tools: WorkerTools,
        tasks: DeliveryTasks,
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._process = process
        self._rules = rules
        self._table = table
        self._sources = sources
        self._unspent = unspent
        self._active = active
        self._windows = windows
        self._connections = connections
        self._requeuer = requeuer
        self._back_off = back_off
        self._completer = completer
        self._tools = tools
        self._tasks = tasks
        self._workers: set[DeliveryWorker] = set()
        self._forget_at = 0.0
        self._turn_s = 0.0  # the longest turn of the event loop lately

    # -- mail comes in ---------------------------------------------------------------------------

    async def by_source(self, route: Route, mail: list[ActiveDelivery]) -> Shares:
        """Return deliveries by the address they leave from; put those for which no new address has quota today back
        into Postgres until tomorrow. Raises DatabaseUnavailable."""
        if not self._sources:
            return [(None, mail)]
        limits = self._table.limits_of(route)
        reach = reachable(route, limits.family, self._sources.health.out_of_reach(limits.key))
        sharing = await self._sources.share_out(mail, reach, limits.key)
        if sharing.waiting:
            await self._wait_for_tomorrow([one for one in sharing.waiting if self._active.has(one)])
        return [(source, list(filter(self._still_here, part))) for source, part in sharing.shares]

    async def put(self, site: Site, mail: list[ActiveDelivery]) -> None:
        """Let deliveries wait for their site and start workers; while its servers are paused, requeue the mail."""
        if site.pacer.paused(clock.monotonic()):
            await self._requeuer.until_probe(site.pacer, mail)
            return
        for one in mail:
            site.put(one)
        self._staff(site)

    async def refresh(self) -> None:
        """Apply the rules of this moment; while Postgres is away, keep to those that were read last."""
        try:
            book = await self._rules.book()
        except DatabaseUnavailable as error:
            _log.warning("site rules not read", error=repr(error))
            return
        for pacer in self._table.obey(book):
            self._windows.ask(pacer)

    def _still_here(self, delivery: ActiveDelivery) -> bool:
        """Return False for a delivery that was fenced meanwhile; its quota is free again."""
        if self._active.has(delivery):
            return True
        self._unspent.add(delivery)
        return False

    async def _wait_for_tomorrow(self, mail: list[ActiveDelivery]) -> None:
        now = clock.now()
        tomorrow = next_midnight(now)
        waits: dict[datetime, list[ActiveDelivery]] = {}
        for one in mail:
            ends = one.row.deliver_by
            one.row.waiting = None  # so that the waybill records this wait too
            waits.setdefault(tomorrow if ends is None else min(tomorrow, ends), []).append(one)
        for until, part in waits.items():
            await self._requeuer.postpone(part, until, QueuedReason.WARM_UP)

    # -- workers ---------------------------------------------------------------------------------

    def _staff(self, site: Site) -> None:
        """Start as many workers as the site wants and may have."""
        if site.waiting:
            self._table.wake(site)
        if self._active.closed:
            return
        now = clock.monotonic()
        wish = site.wishes(now, self._turn_s)
        if not wish:
            return
        pacer = site.pacer
        hired = min(wish, pacer.room(now))
        if hired:
            site.group.hungry.pop(site, None)
        for _ in range(hired):
            site.hire()
            self._tasks.start(self._run_worker(site))
        if hired == wish or pacer.paused(now):
            return
        if pacer.share < pacer.most:
            self._windows.ask(pacer)
        if not site.workers and pacer.open:
            site.group.hungry[site] = None
            site.group.make_room()

    async def _run_worker(self, site: Site) -> None:
        worker = DeliveryWorker(site, self._tools)
        self._workers.add(worker)
        over = False
        try:
            await worker.run()
            over = site.pacer.excess
        finally:
            self._workers.discard(worker)
            site.dismiss()
            if over:
                self._windows.ask(site.pacer)
            self._restaff(site)

    def _restaff(self, site: Site) -> None:
        """Give a free place first to a site of the group that has none."""
        while site.group.hungry:
            hungry = next(iter(site.group.hungry))
            del site.group.hungry[hungry]
            if hungry.waiting and not hungry.workers:
                self._staff(hungry)
                break
        self._staff(site)

    # -- windows ---------------------------------------------------------------------------------

    async def follow_windows(self) -> None:
        """Lease connections over all processes, until cancelled."""
        while True:
            for batch in await self._windows.due():
                wants = [self._demand(pacer) for pacer in batch]
                for pacer in await self._windows.lease(batch, wants):
                    self._use_share(pacer)

    def _demand(self, pacer: Pacer) -> int:
        """Return how many connections the sites of a pacer could use now."""
        group = self._table.group_of(pacer)
        waiting = 0 if group is None or self._active.closed else sum(len(site.waiting) for site in group.sites)
        if not waiting or pacer.paused(clock.monotonic()):
            return pacer.open
        return min(max(pacer.most, pacer.open), pacer.open + waiting, pacer.limits.connections)

    def _use_share(self, pacer: Pacer) -> None:
        """Start workers for a larger share, or let idle connections go for a smaller one."""
        group = self._table.group_of(pacer)
        if group is None:
            return
        for _ in range(pacer.open - pacer.share):
            group.make_room()
        if pacer.paused(clock.monotonic()):
            self._back_off.pause(group)
        for site in list(group.sites):
            if site.waiting:
                self._staff(site)

    # -- upkeep ----------------------------------------------------------------------------------

    async def tend(self) -> None:
        """Start workers where mail waits; twice a second compute rates and relieve a full active queue; requeue what
        has waited long; forget idle sites; until cancelled."""
        ticks = 0
        while True:
            await PACE.wait(TEND_S, TEND_QUIET_S)
            ticks += 1
            await self._measure_loop()
            await self.refresh()
            self._connections.slots.end_overdue()
            self._tend_awake()
            await self._requeuer.relieve_of_unproven(self._table.awake)
            if ticks % (MEASURE_S / TEND_S) == 0:
                self._compute_rates()
                await self._check_ahead()
                await self._requeuer.relieve(self._table.awake)
                await self.tend_sources()
            if ticks % (LOOK_LATE_S / TEND_S) == 0:
                await self._requeuer.send_back_late(self._table.awake, clock.monotonic())
                self._forget_rested()
            if ticks % ((MEASURE_S if self._back_off.has_news else SHOW_EVERY_S) / TEND_S) == 0:
                await self._show()

    def _tend_awake(self) -> None:
        """Staff the sites with mail; forget those without mail and workers, once they need not rest."""
        now = clock.monotonic()
        for site in self._table.awake:
            if site.waiting and site.pacer.paused(now):
                self._back_off.pause(site.group)
            elif site.waiting:
                self._staff(site)
            elif not site.workers:
                self._give_back(self._table.put_to_sleep(site))

    def _forget_rested(self) -> None:
        """Forget the sites that have nothing to do and need not rest any more."""
        for site in self._table:
            if not self._table.is_awake(site):
                self._give_back(self._table.forget(site))

    def _give_back(self, pacers: list[Pacer]) -> None:
        """Give the leases of pacers back that no site keeps to: their demand is none."""
        for pacer in pacers:
            self._windows.ask(pacer)

    async def _check_ahead(self) -> None:
        """Repeat the check of suppressions for mail that waits long, shortly before its turn."""
        now = clock.monotonic()
        soon = [one for site in self._table.awake for one in site.stale_soon(now)]
        if soon:
            await self._tools.suppression.refresh(soon)

    def _compute_rates(self) -> None:
        for site in self._table.awake:
            site.compute_rate(MEASURE_S)
        self._requeuer.note_openings(self._connections.take_concluded() / MEASURE_S)

    async def _measure_loop(self) -> None:
        """Measure how long one turn of the event loop takes: the answer of a quick server waits for it."""
        began = time.monotonic()
        await asyncio.sleep(0)
        self._turn_s = max(FORGETTING * self._turn_s, time.monotonic() - began)

    async def tend_sources(self) -> None:
        """Give back the warm-up quota that was not used, and exchange what is known of refusals."""
        try:
            await self._sources.tend()
        except (DatabaseUnavailable, BadData) as error:
            _log.warning("source addresses not updated", error=repr(error))

    # -- the end ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let nothing wait any more, and let every worker end after its present delivery."""
        self._table.drop(lambda _: True)
        for worker in list(self._workers):
            worker.stop()

    async def close(self) -> None:
        """Drop what the workers put back at the last, and give warm-up quota back: the process ends."""
        self._table.drop(lambda _: True)
        try:
            await self._sources.close()
        except DatabaseUnavailable as error:
            _log.warning("warm-up quota not given back", error=repr(error))

    # -- for the operator ------------------------------------------------------------------------

    async def _show(self) -> None:
        """Write the states of groups that something happened to; pauses and push-backs before mere successes."""
        self._back_off.take_news()
        try:
            if states := self._states():
                await sites_store.write_states(self._pool, self._process, states)
            if clock.monotonic() > self._forget_at:
                self._forget_at = clock.monotonic() + 3600
                await sites_store.forget_states(self._pool, clock.now() - FORGET_AFTER)
        except (DatabaseUnavailable, BadData) as error:
            _log.warning("site states not written", error=repr(error))

    def _states(self) -> list[tuple[str, str, str]]:
        """Return key, hosts and state of the groups to show."""
        touched = [group for group in self._table.groups if group.pacer.touched and group.sites]
        touched.sort(key=lambda group: (group.pacer.moved is None, random.random()))
        return [_shown(group) for group in touched[:MAX_SHOWN]]


def _shown(group: SiteGroup) -> tuple[str, str, str]:
    group.pacer.shown()
    return group.pacer.limits.key, hosts_of(group), state_of(group)
