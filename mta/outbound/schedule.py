"""The sites of one process: which pacer each keeps to, who works for them, and what waits too long.

A site is a set of MX hosts under one TLS policy; all policies towards the same hosts share a pacer, and so do all MX
sets that a rule counts as one provider. Where source addresses are configured, each has sites and pacers of its own.
Rules that change are in force with the next look, every eighth of a second.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime, timedelta

import asyncpg
import msgspec
import structlog

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery import sites_store
from engine.delivery.sites import Limits, RuleBook
from engine.delivery.sites_store import Rules
from engine.delivery.sources import next_midnight, source_key
from engine.delivery.sources_store import WAITING
from engine.flows.settle import Attempt
from engine.store.postgres import AWAY, BAD_DATA, heed_cancellation
from mta.outbound.active_queue import ActiveQueue
from mta.outbound.attempts import without_room
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.mx_routes import Route
from mta.outbound.requeue import Requeuer
from mta.outbound.sites.connections import SiteConnections
from mta.outbound.sites.pacer import Pacer
from mta.outbound.sites.site import Site, SiteGroup, hosts_of, state_of
from mta.outbound.sites.windows import SiteWindows
from mta.outbound.source_ips.addresses import SourceAddress
from mta.outbound.source_ips.assignment import Shares, SourceAddresses, reachable
from mta.outbound.source_ips.health import SourceStanding
from mta.outbound.tls.policy import TlsPolicy

TEND_S = 0.125
MEASURE_S = 0.5
LOOK_LATE_S = 2.0
FORGETTING = 0.9  # of the longest turn, with every look
SHOW_EVERY_S = 3.0
MAX_SHOWN = 200  # states written at once; those that something happened to go first
FORGET_AFTER = timedelta(days=1)
_MAX_LIMITS = 50_000

_log = structlog.get_logger("mta")

Spawn = Callable[[Coroutine[None, None, None]], None]


class ScheduleStage:
    """Where deliveries wait. `employ` runs one worker for a site."""

    def __init__(
        self,
        *,
        settings: Settings,
        pool: asyncpg.Pool,
        active: ActiveQueue,
        windows: SiteWindows,
        process: str,
        spawn: Spawn,
        connections: SiteConnections,
        requeuer: Requeuer,
        employ: Callable[[Site], Coroutine[None, None, None]],
        settle: Callable[[ActiveDelivery, Attempt], None],
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._active = active
        self._windows = windows
        self._process = process
        self._spawn = spawn
        self._connections = connections
        self._requeuer = requeuer
        self._employ = employ
        self._settle = settle
        self.sources = SourceAddresses(settings, pool)
        active.on_unspent = self.sources.unspent
        self.rules = Rules(pool)
        self._book: RuleBook = self.rules.latest
        self._limits: dict[tuple[str, SourceAddress | None], Limits] = {}  # by site
        self._sites: dict[tuple[str, str], Site] = {}  # by site and TLS policy, and by the pacer's key
        self._groups: dict[str, SiteGroup] = {}  # by the pacer's key
        self._awake: dict[Site, None] = {}  # sites with mail or workers; the others rest
        self._forget_at = 0.0
        self._news = False  # servers are left alone, which the operator has not been shown
        self._turn_s = 0.0  # how long the loop takes to come round, the longest of late

    def __iter__(self) -> Iterator[Site]:
        return iter(list(self._sites.values()))

    def of(self, route: Route, policy: TlsPolicy, source: SourceAddress | None = None) -> Site:
        """The site for deliveries over this route under this policy, from this address."""
        limits = self._limits_of(route, source)
        place = (route.site + policy.key, limits.key)
        site = self._sites.get(place)
        if site is None:
            group = self._groups.get(limits.key)
            if group is None:
                standing = None if source is None else self._standing(route, source)
                group = self._groups[limits.key] = SiteGroup(Pacer(limits), standing)
            site = self._sites[place] = Site(route.site, group)
            site.place = place
            self._awake[site] = None
            group.sites[site] = None
        site.route, site.policy = route, policy
        return site

    async def refresh(self) -> None:
        """Heed the rules of this moment; while Postgres is away, those of the last."""
        try:
            book = await self.rules.book()
        except AWAY as error:
            heed_cancellation()
            _log.warning("site rules not read", error=repr(error))
            return
        if book is self._book:
            return
        self._book = book
        self._limits.clear()
        for site in self:
            limits = self._limits_of(site.route, site.source)
            if limits.key == site.pacer.limits.key:  # else what waits goes out as before, and new mail elsewhere
                site.pacer.obey(limits)
                self._windows.ask(site.pacer)

    # -- workers -------------------------------------------------------------------------------

    def staff(self, site: Site) -> None:
        """As many workers as the site wants and may have."""
        if site.waiting:
            self._awake[site] = None
        if self._active.closed:
            return
        now = time.monotonic()
        wish = site.wishes(now, self._turn_s)
        if not wish:
            return
        pacer = site.pacer
        hired = min(wish, pacer.room(now))
        if hired:
            site.group.hungry.pop(site, None)
        for _ in range(hired):
            site.workers += 1
            pacer.open += 1
            self._spawn(self._run_worker(site))
        if hired == wish or pacer.paused(now):
            return
        if pacer.share < pacer.most:
            self._windows.ask(pacer)
        if not site.workers and pacer.open:
            site.group.hungry[site] = None
            site.group.make_room()

    async def _run_worker(self, site: Site) -> None:
        pacer = site.pacer
        over = False
        try:
            await self._employ(site)
            over = pacer.excess
        finally:
            site.workers -= 1
            pacer.open -= 1
            if over:
                self._windows.ask(pacer)
            self._restaff(site)

    def _restaff(self, site: Site) -> None:
        """A place is free: first for who has none."""
        while site.group.hungry:
            hungry = next(iter(site.group.hungry))
            del site.group.hungry[hungry]
            if hungry.waiting and not hungry.workers:
                self.staff(hungry)
                break
        self.staff(site)

    def demand(self, pacer: Pacer) -> int:
        """Connections that the sites of a pacer could use now."""
        group = self._groups.get(pacer.limits.key)
        waiting = 0 if group is None or self._active.closed else sum(len(site.waiting) for site in group.sites)
        if not waiting or pacer.paused(time.monotonic()):
            return pacer.open
        return min(max(pacer.most, pacer.open), pacer.open + waiting, pacer.limits.connections)

    def shared(self, pacer: Pacer) -> None:
        """The share of all processes has changed: hire, or let idle connections go."""
        group = self._groups.get(pacer.limits.key)
        if group is None:
            return
        for _ in range(pacer.open - pacer.share):
            group.make_room()
        if pacer.paused(time.monotonic()):
            self.left_alone(group)
        for site in list(group.sites):
            if site.waiting:
                self.staff(site)

    # -- waiting -------------------------------------------------------------------------------

    def left_alone(self, group: SiteGroup, tell_s: float = 0.0) -> None:
        """The servers push back, so nobody asks them for a while: what waits for them does so in Postgres."""
        if tell_s:
            self._windows.tell_pause(group.pacer, tell_s)
            self._news = True
        parked = [one for site in group.sites for one in site.waiting.clear()]
        if parked:
            self._spawn(self.wait_for_probe(group.pacer, parked))

    async def wait_for_probe(self, pacer: Pacer, mail: list[ActiveDelivery]) -> None:
        """Put deliveries back until the servers, which are left alone, are asked again."""
        await self._requeuer.until_probe(pacer, mail)

    def drop(self, gone: Callable[[ActiveDelivery], bool]) -> None:
        """These need not wait any more."""
        for site in self:
            for one in site.waiting.drop(gone):
                self._active.drop(one)

    # -- upkeep --------------------------------------------------------------------------------

    async def tend(self) -> None:
        """More workers where mail waits; twice a second reckon rates, relieve a full hand, and send back what has
        waited long; forget idle sites; until cancelled."""
        ticks = 0
        while True:
            await asyncio.sleep(TEND_S)
            ticks += 1
            await self._look_at_loop()
            await self.refresh()
            self._connections.slots.end_overdue()
            self._tend_awake()
            await self._requeuer.relieve_of_unproven(self._awake)
            if ticks % (MEASURE_S / TEND_S) == 0:
                self._reckon()
                await self._requeuer.relieve(self._awake)
                await self.tend_sources()
            if ticks % (LOOK_LATE_S / TEND_S) == 0:
                await self._requeuer.send_back_late(list(self._awake), time.monotonic())
                self._forget_rested()
            if ticks % ((MEASURE_S if self._news else SHOW_EVERY_S) / TEND_S) == 0:
                await self._show()

    def _tend_awake(self) -> None:
        """Staff the sites with mail; forget those without mail and workers, once they need not rest."""
        now = time.monotonic()
        for site in list(self._awake):
            if site.waiting and site.pacer.paused(now):
                self.left_alone(site.group)
            elif site.waiting:
                self.staff(site)
            elif not site.workers:
                del self._awake[site]
                if not site.resting and not site.pacer.paused(now):
                    self._forget(site)

    def _reckon(self) -> None:
        for site in self._awake:
            site.reckon(MEASURE_S)
        self._requeuer.openings_per_s += 0.1 * (
            self._connections.take_concluded() / MEASURE_S - self._requeuer.openings_per_s
        )

    def _forget_rested(self) -> None:
        """Forget the sites that have nothing to do and need not rest any more."""
        now = time.monotonic()
        for site in self:
            if site not in self._awake and not site.resting and not site.pacer.paused(now):
                self._forget(site)

    async def _look_at_loop(self) -> None:
        """What a quick server's answer waits for here."""
        began = time.monotonic()
        await asyncio.sleep(0)
        self._turn_s = max(FORGETTING * self._turn_s, time.monotonic() - began)

    def _forget(self, site: Site) -> None:
        del self._sites[site.place]
        group = site.group
        group.forget(site)
        if not group.sites and group.pacer.open == 0:
            self._groups.pop(group.pacer.limits.key, None)
            self._windows.ask(group.pacer)  # its demand is none: the lease is given back

    def _limits_of(self, route: Route, source: SourceAddress | None = None) -> Limits:
        limits = self._limits.get((route.site, source))
        if limits is None:
            if len(self._limits) >= _MAX_LIMITS:
                self._limits.clear()
            hosts = [host.name for host in route.hosts]
            limits = self._book.limits(route.site, hosts, self._settings)
            if source is not None:
                limits = msgspec.structs.replace(limits, key=source_key(limits.key, source.ip))
            self._limits[route.site, source] = limits
        return limits

    # -- sources -------------------------------------------------------------------------------

    async def by_source(self, route: Route, mail: list[ActiveDelivery]) -> Shares:
        """Deliveries by the address they leave from; those for which no new address has room today are put back into
        Postgres until tomorrow. Raises one of AWAY."""
        if not self.sources:
            return [(None, mail)]
        limits = self._limits_of(route)
        reach = reachable(route, limits.family, self.sources.health.out_of_reach(limits.key))
        sharing = await self.sources.share_out(mail, reach, limits.key)
        if sharing.waiting:
            await self._wait_for_tomorrow([one for one in sharing.waiting if self._active.has(one)])
        return [(source, list(filter(self._still_here, part))) for source, part in sharing.shares]

    def _still_here(self, delivery: ActiveDelivery) -> bool:
        """Not fenced meanwhile; else what was taken for it is free again."""
        if self._active.has(delivery):
            return True
        self.sources.unspent(delivery)
        return False

    async def _wait_for_tomorrow(self, mail: list[ActiveDelivery]) -> None:
        now = clock.now()
        tomorrow = next_midnight(now)
        waits: dict[datetime, list[ActiveDelivery]] = {}
        for one in mail:
            ends = one.row.deliver_by
            if ends is not None and ends <= now:
                self._settle(one, without_room(one, self._settings))
            else:
                one.row.waiting = None  # whatever it waited for before: the waybill tells of this wait too
                waits.setdefault(tomorrow if ends is None else min(tomorrow, ends), []).append(one)
        for until, part in waits.items():
            await self._requeuer.postpone(part, until, WAITING)

    def _standing(self, route: Route, source: SourceAddress) -> SourceStanding:
        return SourceStanding(source, self._limits_of(route).key, self.sources.health, self._leave_to_others)

    def _leave_to_others(self, standing: SourceStanding) -> None:
        """The servers refuse an address: what waits for it is shared out anew, to others where there are others."""
        group = self._groups.get(source_key(standing.site, standing.source.ip))
        if group is not None and len(self.sources) > 1:
            self._spawn(self._share_anew(group))

    async def _share_anew(self, group: SiteGroup) -> None:
        moved = [one for site in group.sites for one in site.waiting.clear()]
        if moved:
            await self._requeuer.postpone(moved, clock.now(), "source_refused")

    async def close(self) -> None:
        """The process ends: nothing waits here any more, what workers put back at the last included."""
        self.drop(lambda _: True)
        try:
            await self.sources.close()
        except AWAY as error:
            _log.warning("allowances of sources not given back", error=repr(error))

    async def tend_sources(self) -> None:
        """Give back the allowances that were not used, and exchange what is known of refusals."""
        try:
            await self.sources.tend()
        except (*AWAY, *BAD_DATA) as error:
            heed_cancellation()
            _log.warning("sources not tended", error=repr(error))

    # -- for the operator ----------------------------------------------------------------------

    async def _show(self) -> None:
        """Write down what something happened to; what was pushed back or left alone before what only went well."""
        self._news = False
        touched = [group for group in self._groups.values() if group.pacer.touched and group.sites]
        touched.sort(key=lambda group: (group.pacer.moved is None, random.random()))
        states = []
        for group in touched[:MAX_SHOWN]:
            group.pacer.touched = False
            states.append((group.pacer.limits.key, hosts_of(group), state_of(group)))
        try:
            if states:
                await sites_store.write_states(self._pool, self._process, states)
            if time.monotonic() > self._forget_at:
                self._forget_at = time.monotonic() + 3600
                await sites_store.forget_states(self._pool, clock.now() - FORGET_AFTER)
        except (*AWAY, *BAD_DATA) as error:
            heed_cancellation()
            _log.warning("site states not shown", error=repr(error))
