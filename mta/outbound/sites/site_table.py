"""The sites of one process: which pacer each keeps to, and which of them have mail or workers. No I/O.

A site is a set of MX hosts under one TLS policy; all policies towards the same hosts share a pacer, and so do all MX
sets that a rule counts as one provider. Where source addresses are configured, each has sites and pacers of its own.
"""

from collections.abc import Callable, Iterator

import msgspec

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery.routes import Route
from engine.delivery.sites import Limits, RuleBook
from engine.delivery.sources import source_key
from mta.outbound.active_queue import ActiveQueue
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.sites.pacer import Pacer
from mta.outbound.sites.site import Site, SiteGroup
from mta.outbound.source_ips.addresses import SourceAddress
from mta.outbound.source_ips.health import SourceHealth, SourceStanding
from mta.outbound.tls.policy import TlsPolicy

MAX_LIMITS = 50_000  # of sites, kept to avoid applying the rules anew


class SiteTable:
    """The sites and groups of one process, made on demand and forgotten when idle."""

    def __init__(self, settings: Settings, active: ActiveQueue, health: SourceHealth, book: RuleBook) -> None:
        self._settings = settings
        self._active = active
        self._health = health
        self._book = book
        self._limits: dict[tuple[str, SourceAddress | None], Limits] = {}  # by site
        self._sites: dict[tuple[str, str], Site] = {}  # by site and TLS policy, and by the pacer's key
        self._groups: dict[str, SiteGroup] = {}  # by the pacer's key
        self._awake: dict[Site, None] = {}  # sites with mail or workers

    def __iter__(self) -> Iterator[Site]:
        return iter(list(self._sites.values()))

    @property
    def awake(self) -> list[Site]:
        """Return the sites that have mail or workers."""
        return list(self._awake)

    @property
    def groups(self) -> list[SiteGroup]:
        """Return all groups."""
        return list(self._groups.values())

    def of(self, route: Route, policy: TlsPolicy, source: SourceAddress | None = None) -> Site:
        """Return the site for deliveries over this route under this policy, from this address."""
        limits = self.limits_of(route, source)
        place = (route.site + policy.key, limits.key)
        site = self._sites.get(place)
        if site is None:
            site = self._sites[place] = Site(route.site, self._group(limits, route, source), policy.key)
            site.group.add(site)
            self._awake[site] = None
        site.lead(route, policy)
        return site

    def group_of(self, pacer: Pacer) -> SiteGroup | None:
        """Return the sites that keep to a pacer."""
        return self._groups.get(pacer.limits.key)

    def limits_of(self, route: Route, source: SourceAddress | None = None) -> Limits:
        """Return the limits of a route's servers, as the rules have them."""
        limits = self._limits.get((route.site, source))
        if limits is None:
            if len(self._limits) >= MAX_LIMITS:
                self._limits.clear()
            hosts = [host.name for host in route.hosts]
            limits = self._book.limits(route.site, hosts, self._settings)
            if source is not None:
                limits = msgspec.structs.replace(limits, key=source_key(limits.key, source.ip))
            self._limits[route.site, source] = limits
        return limits

    def obey(self, book: RuleBook) -> list[Pacer]:
        """Apply new rules; return the pacers that keep to them. Where a rule has moved a site to another pacer, waiting
        mail goes out as before and new mail under the other."""
        if book is self._book:
            return []
        self._book = book
        self._limits.clear()
        obeying: list[Pacer] = []
        for site in self:
            limits = self.limits_of(site.route, site.source)
            if limits.key == site.pacer.limits.key:
                site.pacer.obey(limits)
                obeying.append(site.pacer)
        return obeying

    def drop(self, gone: Callable[[ActiveDelivery], bool]) -> None:
        """Drop the waiting deliveries of which `gone` is true."""
        for site in self:
            for one in site.waiting.drop(gone):
                self._active.drop(one)

    # -- sites with nothing to do ----------------------------------------------------------------

    def wake(self, site: Site) -> None:
        """Note that a site has mail."""
        self._awake[site] = None

    def is_awake(self, site: Site) -> bool:
        """Return True if a site has mail or workers."""
        return site in self._awake

    def put_to_sleep(self, site: Site) -> list[Pacer]:
        """Note that a site has neither mail nor workers; forget it unless it rests. Return pacers as `forget` does."""
        del self._awake[site]
        return self.forget(site)

    def forget(self, site: Site) -> list[Pacer]:
        """Forget a site, unless it rests or its servers are left alone. Return its pacer if no site keeps to it now:
        then its lease can be given back."""
        if site.resting or site.pacer.paused(clock.monotonic()):
            return []
        del self._sites[site.place]
        group = site.group
        group.forget(site)
        if group.sites or group.pacer.open:
            return []
        self._groups.pop(group.pacer.limits.key, None)
        return [group.pacer]

    def _group(self, limits: Limits, route: Route, source: SourceAddress | None) -> SiteGroup:
        group = self._groups.get(limits.key)
        if group is None:
            standing = None
            if source is not None:
                standing = SourceStanding(source, self.limits_of(route).key, self._health)
            group = self._groups[limits.key] = SiteGroup(Pacer(limits), standing)
        return group
