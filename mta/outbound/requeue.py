"""Puts deliveries back into the queue that would wait long in memory: for a pause to end, for their site's turn, for a
connection. Their rows fall due again later, and a wait of more than 30 s is recorded on the waybill."""

import random
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from heapq import heappop, heappush
from uuid import UUID

import asyncpg
import structlog

from engine.base import clock
from engine.delivery import queue
from engine.delivery.wait_reasons import QueuedReason
from engine.delivery.waits import WaitCause, divided, stored
from engine.sending import postpone
from engine.store.database_errors import DatabaseUnavailable
from mta.outbound.active_queue import ActiveQueue
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.shares import MAX_PUT_BACK, MAX_UNPROVEN, overflow, unproven_room
from mta.outbound.sites.pacer import Pacer
from mta.outbound.sites.proven_domains import ProvenDomains
from mta.outbound.sites.site import Site

LATE_S = 25.0  # in memory without a try: back to Postgres, so that a long wait is recorded on the waybill
MIN_PARK_S, MAX_PARK_S = 2.0, 30.0
MIN_TURN_S, MAX_TURN_S = 5.0, 120.0  # until a connection may be possible
SPREAD_S = 10.0  # over which rows that waited for a pause come back
_PARTS = 10  # that come back at different times

_log = structlog.get_logger("mta")


class Requeuer:
    """Puts deliveries of one process back into Postgres."""

    def __init__(self, pool: asyncpg.Pool, active: ActiveQueue, proven: ProvenDomains) -> None:
        self._pool = pool
        self._active = active
        self._proven = proven
        self._returns: list[float] = []  # when deliveries that wait for a connection come back, a heap
        self.openings_per_s = 25.0  # to unproven servers, a moving mean

    async def postpone(self, deliveries: list[ActiveDelivery], until: datetime, reason: QueuedReason) -> None:
        """Put deliveries back until a time. While Postgres is away they fall due as they were."""
        now = clock.now()
        for one in deliveries:
            one.row.waits = one.wait.postponed(now, one.row, reason)
        try:
            await postpone.postpone(self._pool, [one.row for one in deliveries], until, reason=reason)
        except DatabaseUnavailable as error:
            _log.warning("deliveries not put back", rows=len(deliveries), error=repr(error))
        for one in deliveries:
            self._active.drop(one)

    async def until_probe(self, pacer: Pacer, parked: list[ActiveDelivery]) -> None:
        """Put deliveries back until the paused servers are probed."""
        left_s = max(0.0, pacer.paused_until - clock.monotonic())
        spread_s = min(SPREAD_S, left_s)
        for number in range(_PARTS):
            part = parked[number::_PARTS]
            after_s = left_s + spread_s * (number + random.random()) / _PARTS
            if part:
                await self.postpone(part, clock.now() + timedelta(seconds=after_s), QueuedReason.SITE_PAUSED)

    async def until_turn(self, site: Site, parked: list[ActiveDelivery]) -> None:
        """Put deliveries back until the site has probably worked off what waits before them."""
        reason = waits_for(site, clock.monotonic())
        if reason == QueuedReason.CONNECTION_SLOT:
            await self._until_slot(parked)
            return
        wait_s = min(MAX_PARK_S, max(MIN_PARK_S, len(site.waiting) / max(site.rate, 0.1)))
        await self.postpone(parked, clock.now() + timedelta(seconds=wait_s * random.uniform(0.8, 1.2)), reason)

    async def share_anew(self, moved: list[ActiveDelivery]) -> None:
        """Put deliveries back to be assigned another source address at once."""
        await self.postpone(moved, clock.now(), QueuedReason.SOURCE_REFUSED)

    async def leave(self, keys: Collection[tuple[UUID, str]]) -> None:
        """Let due rows wait in the queue, unloaded, until the mail that waits for connections already may be through.
        Raises DatabaseUnavailable."""
        rows = await queue.load_light(self._pool, keys)
        now = clock.now()
        for row in rows:
            waited = divided(row, clock.milliseconds(now), 0.0, {})
            row.waits = stored(now, waited, {WaitCause.CONNECTION: 1.0})
        await postpone.postpone(self._pool, rows, self._until(len(rows)), reason=QueuedReason.CONNECTION_SLOT)

    async def _until_slot(self, parked: list[ActiveDelivery]) -> None:
        await self.postpone(parked, self._until(len(parked)), QueuedReason.CONNECTION_SLOT)

    def _until(self, count: int) -> datetime:
        """Return when the mail that waits for connections already may be through; `count` more wait from now on."""
        now = clock.monotonic()
        while self._returns and self._returns[0] < now:
            heappop(self._returns)
        wait_s = min(MAX_TURN_S, max(MIN_TURN_S, len(self._returns) / max(self.openings_per_s, 1.0)))
        wait_s *= random.uniform(0.8, 1.2)
        for _ in range(count):
            heappush(self._returns, now + wait_s)
        return clock.now() + timedelta(seconds=wait_s)

    def note_openings(self, per_s: float) -> None:
        """Count how many connections to unproven servers came about or failed in a second."""
        self.openings_per_s += 0.1 * (per_s - self.openings_per_s)

    # -- relief --------------------------------------------------------------------------------

    async def relieve(self, sites: Iterable[Site]) -> None:
        """Put the longest waits back when the active queue is full: mail for slow sites would keep all other mail out
        of memory. Fast sites empty the queue before it comes to this."""
        excess = self._active.excess
        for site in sorted(sites, key=Site.surplus, reverse=True) if excess > 0 else ():
            count = min(excess, site.surplus())
            if count <= 0:
                return
            excess -= count
            await self.until_turn(site, site.waiting.shed(count))

    async def relieve_of_unproven(self, sites: Iterable[Site]) -> None:
        """Put back what is too much for unproven domains, except deliveries that a connection is being opened for."""
        if unproven_room(self._active.by_domain, int(MAX_UNPROVEN * self._active.limit), self._proven) >= 0:
            return
        sites = list(sites)
        heads = {site.waiting.peek() for site in sites if site.opening}
        excess = set(overflow(self._active, self._active.limit, self._proven, heads))
        if not excess:
            return
        lined_up = [one for site in sites for one in site.waiting.drop(excess.__contains__)]
        unrouted = list(excess.difference(lined_up))
        for one in unrouted:  # first, so that routing does not put them into a site's queue meanwhile
            self._active.drop(one)
        await self._until_slot(lined_up + unrouted)

    async def send_back_late(self, sites: Iterable[Site], now: float) -> None:
        """Put back what has waited long, except the delivery that a first connection is being opened for."""
        sites = list(sites)
        await self._send_back_unrouted(sites, now)
        for_slot: list[ActiveDelivery] = []  # of many sites with little mail each: together, not a transaction for each
        for site in sites:
            head = site.waiting.peek() if site.opening and not site.connected else None
            late = site.waiting.drop(lambda one, head=head: one is not head and now - one.taken_at > LATE_S)  # type: ignore[misc]
            if late and waits_for(site, now) == QueuedReason.CONNECTION_SLOT:
                for_slot += late
            elif late:
                await self.until_turn(site, late)
        for start in range(0, len(for_slot), MAX_PUT_BACK):
            await self._until_slot(for_slot[start : start + MAX_PUT_BACK])

    async def _send_back_unrouted(self, sites: Iterable[Site], now: float) -> None:
        late = {one for one in self._active if one.waits and not one.settling and now - one.taken_at > LATE_S}
        if not late:
            return
        unrouted = list(late.difference(one for site in sites for one in site.waiting))
        for one in unrouted:  # first, so that routing does not put them into a site's queue meanwhile
            self._active.drop(one)
        if unrouted:
            await self.postpone(unrouted, self._until(len(unrouted)), QueuedReason.LOOKUP_SLOT)


def waits_for(site: Site, now: float) -> QueuedReason:
    """Return why mail for a site waits, in the words of its waybill."""
    if site.pacer.limits.rates and site.pacer.token_at > now:
        return QueuedReason.SITE_RATE
    if site.connected:
        return QueuedReason.SITE_WINDOW
    if site.opening:
        return QueuedReason.SITE_OPENING
    return QueuedReason.CONNECTION_SLOT if site.asking else QueuedReason.SITE_WINDOW
