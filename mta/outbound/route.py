"""The route stage: brings deliveries from memory to their sites, by holds, keys, route, TLS policy and source address.

Looking up a domain may take many seconds where its name servers are silent. So the look-ups of unproven domains share
slots of their own, fairly by account; domains whose servers answered lately wait for no slot.
"""

import asyncio

import msgspec
import structlog

from engine.base.settings import Settings
from engine.delivery.mx_routes import Router
from engine.delivery.routes import Route, Unroutable
from engine.mail.simulator import SimulatedOutcome, simulated_outcome
from engine.store.database_errors import DatabaseUnavailable
from mta.outbound.active_queue import ActiveQueue
from mta.outbound.attempts import (
    SHARED_ATTEMPT,
    after_deaths,
    refused_by_route,
    too_late,
    without_key,
    without_recipients,
)
from mta.outbound.complete import CompleteStage
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.envelopes import EnvelopeBuilder
from mta.outbound.holds import OperatorHolds
from mta.outbound.schedule import ScheduleStage
from mta.outbound.sites.connections import SiteConnections
from mta.outbound.sites.proven_domains import ProvenDomains
from mta.outbound.sites.site_stats import SiteStats
from mta.outbound.sites.site_table import SiteTable
from mta.outbound.sites.slot_queue import SlotQueue
from mta.outbound.sites.slots import SlotClaim
from mta.outbound.source_ips.addresses import SourceAddress
from mta.outbound.tls.policy import WITHOUT, MinTls, TlsPolicy
from mta.outbound.tls.security import TransportSecurity

KEY_LOADS = 2  # at once for unproven domains, of the five connections to the database
# Half of them for unproven domains, and at most half of that for one account. A look-up asks up to three questions at
# once, and the socket buffer of a name server on Linux (208 KiB) holds fewer than 300 small packets.
LOOKUP_SLOTS = 96

_log = structlog.get_logger("mta")


class RouteStage:
    """Routes the deliveries of one process, domain by domain."""

    def __init__(
        self,
        *,
        settings: Settings,
        router: Router,
        security: TransportSecurity,
        envelopes: EnvelopeBuilder,
        holds: OperatorHolds,
        site_stats: SiteStats,
        active: ActiveQueue,
        proven: ProvenDomains,
        table: SiteTable,
        scheduler: ScheduleStage,
        connections: SiteConnections,
        completer: CompleteStage,
    ) -> None:
        self._settings = settings
        self._router = router
        self._security = security
        self._envelopes = envelopes
        self._holds = holds
        self._site_stats = site_stats
        self._active = active
        self._proven = proven
        self._table = table
        self._scheduler = scheduler
        self._connections = connections
        self._completer = completer
        self._lookups = SlotQueue("lookup", LOOKUP_SLOTS)
        self._key_loads = asyncio.Semaphore(KEY_LOADS)

    def stop(self) -> None:
        """Look up no more domains: the process stops."""
        self._lookups.close()

    async def route(self, domain: str, group: list[ActiveDelivery]) -> None:
        """Bring the deliveries of a domain to their site; settle them at once if there is no route."""
        if domain in self._proven:
            await self._route(domain, group)
            return
        claim = SlotClaim(group[0].row.account_id, domain, proven=False)
        if await self._lookups.acquire(claim):
            try:
                await self._route(domain, group)
            finally:
                self._lookups.free(claim)
        else:
            self._drop(group)

    async def _route(self, domain: str, group: list[ActiveDelivery]) -> None:
        try:
            await self._route_all(domain, group)
        except DatabaseUnavailable as error:
            _log.warning("domain not routed", domain=domain, error=repr(error))
            self._drop(group)
        except Exception as error:  # noqa: BLE001 - process loop: a fault costs these deliveries an attempt, not more
            for one in group:
                self._completer.fault(one, error)

    async def _route_all(self, domain: str, group: list[ActiveDelivery]) -> None:
        signed = [one for one in group if self._active.has(one) and await self._signable(one)]
        if not signed:
            return
        route = await self._router.route(domain)
        if isinstance(route, Unroutable):
            self._proven.failed(domain)
            for one in signed:
                if self._active.has(one):
                    self._completer.settle(one, refused_by_route(one, route.answer, None, self._settings))
            return
        self._site_stats.routed(domain, route)
        signed = await self._holds.unheld(signed, route.site)
        if not route.built_in:
            self._site_stats.entered(signed)
        await self._scheduler.refresh()
        if route.built_in:
            await self._simulate(route, [one for one in signed if self._active.has(one)])
            return
        policies: dict[str | None, TlsPolicy] = {}
        for least in {one.row.min_tls for one in signed}:
            policies[least] = await self._security.policy(domain, route, MinTls(least or MinTls.OPPORTUNISTIC))
        for least, policy in policies.items():
            # A delivery may have been fenced during the look-ups.
            mail = [one for one in signed if one.row.min_tls == least and self._active.has(one)]
            for source, part in await self._scheduler.by_source(route, mail):
                await self._bring(route, policy, part, source)

    async def _simulate(self, route: Route, mail: list[ActiveDelivery]) -> None:
        """Bring deliveries to the simulator on this host: no TLS policy applies, and no source address is used. Slow
        ones get a site of their own, so that no other mail waits behind them."""
        quick: list[ActiveDelivery] = []
        slow: list[ActiveDelivery] = []
        for one in mail:
            is_slow = any(simulated_outcome(address) is SimulatedOutcome.SLOW for address in one.addresses)
            (slow if is_slow else quick).append(one)
        apart = msgspec.structs.replace(route, site=f"{SimulatedOutcome.SLOW.value}.{route.site}")
        for way, part in ((route, quick), (apart, slow)):
            if part:
                await self._bring(way, WITHOUT, part, None)

    async def _bring(
        self, route: Route, policy: TlsPolicy, mail: list[ActiveDelivery], source: SourceAddress | None
    ) -> None:
        """Let deliveries wait at their site; while it rests they share its last outcome."""
        # No await from here until mail waits at the site: an empty site could be forgotten.
        site = self._table.of(route, policy, source)
        if not site.resting and not site.connected:
            rest = self._connections.resting(route, policy, site.pacer.limits.family, source)
            if rest is not None:
                site.rest_with_host(rest.because, rest.seconds)
        because = site.rest_because if site.resting else None
        if because is not None:
            shared: dict[str, object] = {"mx": site.mx, "tls": None, "conversation": [], "note": SHARED_ATTEMPT}
            ladder_s = site.pacer.limits.ladder_s
            for one in mail:
                self._completer.settle(one, refused_by_route(one, because, shared, self._settings, ladder_s))
        else:
            await self._scheduler.put(site, mail)

    async def _signable(self, delivery: ActiveDelivery) -> bool:
        if not delivery.addresses:
            self._completer.settle(delivery, without_recipients(delivery))
            return False
        if delivery.is_too_late:
            self._completer.settle(delivery, too_late(delivery, self._settings))
            return False
        if deaths := self._envelopes.box.tell(delivery.row.message_id):
            self._completer.settle(delivery, after_deaths(delivery, deaths, self._settings))
            return False
        try:
            if await self._load_keys(delivery):
                return True
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one account's broken key must not stop the others
            self._completer.fault(delivery, error)
            return False
        self._completer.settle(delivery, without_key(delivery, self._settings))
        return False

    async def _load_keys(self, delivery: ActiveDelivery) -> bool:
        """Load the keys; for unproven domains few at a time, so that others find a database connection."""
        row = delivery.row
        if row.domain in self._proven or self._envelopes.identities.peek((row.account_id, row.from_domain)) is not None:
            return await self._envelopes.load_keys(delivery)
        async with self._key_loads:
            return await self._envelopes.load_keys(delivery)

    def _drop(self, group: list[ActiveDelivery]) -> None:
        for one in group:
            self._active.drop(one)
