"""From deliveries in memory to their sites' lines: holds, keys, route, TLS policy and source address, in this order.

Looking up a domain may take many seconds where its name servers are silent. So the look-ups of domains that are not
proven share slots of their own, fairly by account; domains whose servers answered lately wait for nobody.
"""

import asyncio
import time

import msgspec
import structlog
from engine.store.database_errors import DatabaseUnavailable

from engine.base.settings import Settings
from engine.mail.simulator import Part, part_of
from mta.outbound.attempts import SHARED_ATTEMPT, after_deaths, refused_by_route, without_key, without_recipients
from mta.outbound.finishing import Finisher
from mta.outbound.hand import Hand
from mta.outbound.holding import Holding
from mta.outbound.prepare import Delivery, Preparer
from mta.outbound.proven_domains import ProvenDomains
from mta.outbound.route import Route, Router, Unroutable
from mta.outbound.security import Security
from mta.outbound.sites import Sites
from mta.outbound.slot_queue import SlotQueue
from mta.outbound.slots import Claim
from mta.outbound.sockets import Sockets
from mta.outbound.sources_bind import Source
from mta.outbound.tls_policy import WITHOUT, MinTls, TlsPolicy
from mta.outbound.witness import Witness

KEY_LOADS = 2  # at once for unproven domains, of the five connections to the database
LOOKUP_SLOTS = 256  # half of them for domains that are not proven, and half of that at most for one account

_log = structlog.get_logger("mta")


class Routing:
    """The way of deliveries to their sites in one process."""

    def __init__(
        self,
        *,
        settings: Settings,
        router: Router,
        security: Security,
        preparer: Preparer,
        holding: Holding,
        witness: Witness,
        hand: Hand,
        proven: ProvenDomains,
        sites: Sites,
        sockets: Sockets,
        finisher: Finisher,
    ) -> None:
        self._settings = settings
        self._router = router
        self._security = security
        self._preparer = preparer
        self._holding = holding
        self._witness = witness
        self._hand = hand
        self._proven = proven
        self._sites = sites
        self._sockets = sockets
        self._finisher = finisher
        self._lookups = SlotQueue("lookup", LOOKUP_SLOTS)
        self._key_loads = asyncio.Semaphore(KEY_LOADS)

    def stop(self) -> None:
        """The process stops: no domain is looked up any more."""
        self._lookups.close()

    async def route(self, domain: str, group: list[Delivery]) -> None:
        """Bring the deliveries of a domain to their site; without a route they settle at once."""
        if domain in self._proven:
            await self._route(domain, group)
            return
        claim = Claim(group[0].row.account_id, domain, proven=False)
        if await self._lookups.acquire(claim):
            try:
                await self._route(domain, group)
            finally:
                self._lookups.free(claim)
        else:
            self._drop(group)

    async def unheld(self, deliveries: list[Delivery], site: str | None = None) -> list[Delivery]:
        """Return those that no hold of the operator keeps back; the others leave memory."""
        held = await self._holding.set_aside(deliveries, site)
        for one in held:
            self._hand.drop(one)
        return [one for one in deliveries if self._hand.has(one)] if held else deliveries

    async def _route(self, domain: str, group: list[Delivery]) -> None:
        try:
            await self._route_all(domain, group)
        except (DatabaseUnavailable, OSError) as error:
            _log.warning("not routed", domain=domain, error=repr(error))
            self._drop(group)
        except Exception as error:  # noqa: BLE001 - process loop: a fault costs these deliveries an attempt, not more
            for one in group:
                self._finisher.fault(one, error)

    async def _route_all(self, domain: str, group: list[Delivery]) -> None:
        signed = [one for one in group if self._hand.has(one) and await self._signable(one)]
        if not signed:
            return
        route = await self._router.route(domain)
        if isinstance(route, Unroutable):
            self._proven.failed(domain)
            for one in signed:
                if self._hand.has(one):
                    self._finisher.settle(one, refused_by_route(one, route.answer, None, self._settings))
            return
        self._witness.routed(domain, route)
        signed = await self.unheld(signed, route.site)
        await self._sites.refresh()
        if route.built_in:
            await self._simulate(route, [one for one in signed if self._hand.has(one)])
            return
        policies: dict[str | None, TlsPolicy] = {}
        for least in {one.row.min_tls for one in signed}:
            policies[least] = await self._security.policy(domain, route, MinTls(least or MinTls.OPPORTUNISTIC))
        for least, policy in policies.items():
            mail = [one for one in signed if one.row.min_tls == least and self._hand.has(one)]  # not fenced meanwhile
            for source, part in await self._sites.by_source(route, mail):
                await self._bring(route, policy, part, source)

    async def _simulate(self, route: Route, mail: list[Delivery]) -> None:
        """To the simulator, which is on this host: no stranger's policy applies, and no source address leaves from it.
        What is slow has a site of its own, for nobody else to wait behind."""
        quick: list[Delivery] = []
        slow: list[Delivery] = []
        for one in mail:
            is_slow = any(part_of(address) is Part.SLOW for address in one.addresses)
            (slow if is_slow else quick).append(one)
        apart = msgspec.structs.replace(route, site=f"{Part.SLOW.value}.{route.site}")
        for way, part in ((route, quick), (apart, slow)):
            if part:
                await self._bring(way, WITHOUT, part, None)

    async def _bring(self, route: Route, policy: TlsPolicy, mail: list[Delivery], source: Source | None) -> None:
        """Into the site's line; while it is left alone they share its last outcome, or wait for its probe."""
        site = self._sites.of(route, policy, source)  # no await until it has a line: it could be forgotten
        if not site.resting and not site.connected:
            rest = self._sockets.resting(route, policy, site.pacer.limits.family, source)
            if rest is not None:
                site.rest_with_host(rest.because, rest.seconds)
        because = site.rest_because if site.resting else None
        if because is not None:
            shared: dict[str, object] = {"mx": site.mx, "tls": None, "conversation": [], "note": SHARED_ATTEMPT}
            ladder_s = site.pacer.limits.ladder_s
            for one in mail:
                self._finisher.settle(one, refused_by_route(one, because, shared, self._settings, ladder_s))
        elif site.pacer.paused(time.monotonic()):
            await self._sites.wait_for_probe(site.pacer, mail)
        else:
            for one in mail:
                site.put(one)
            self._sites.staff(site)

    async def _signable(self, delivery: Delivery) -> bool:
        if not delivery.addresses:
            self._finisher.settle(delivery, without_recipients(delivery))
            return False
        if deaths := self._preparer.box.tell(delivery.row.message_id):
            self._finisher.settle(delivery, after_deaths(delivery, deaths, self._settings))
            return False
        try:
            if await self._load_keys(delivery):
                return True
        except (DatabaseUnavailable, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - one account's broken key is nobody else's matter
            self._finisher.fault(delivery, error)
            return False
        self._finisher.settle(delivery, without_key(delivery, self._settings))
        return False

    async def _load_keys(self, delivery: Delivery) -> bool:
        """Load the keys; for unproven domains few at a time, so that others find a database connection."""
        row = delivery.row
        if row.domain in self._proven or self._preparer.keys.peek((row.account_id, row.from_domain)) is not None:
            return await self._preparer.load_keys(delivery)
        async with self._key_loads:
            return await self._preparer.load_keys(delivery)

    def _drop(self, group: list[Delivery]) -> None:
        for one in group:
            self._hand.drop(one)
