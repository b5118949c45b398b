"""The outbound engine of one process: finds what its shards owe, brings it to its sites, settles what came back.

Hints say what is fresh; due times find everything else, retries and whatever a hint was lost for. What is in
hand is bounded, and so is what one site may hold of it: the rest waits in Postgres.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Collection, Coroutine, Iterable
from datetime import timedelta
from uuid import UUID

import asyncpg
import structlog

from engine.areas.suppressions import store as suppressions
from engine.base import clock, ids
from engine.base.settings import Settings
from engine.delivery import queue
from engine.delivery.hints import HintReader, WokenShards
from engine.delivery.outcome import Verdict
from engine.delivery.queue import Row
from engine.flows import hold
from engine.flows.settle import Attempt, Fenced, Settler
from engine.mail.address import canonical
from engine.store import metrics
from engine.store.postgres import AWAY, heed_cancellation
from engine.store.redis import Away
from mta.outbound.deliver import (
    SHARED_ATTEMPT,
    Report,
    Worker,
    at_fault,
    refused_by_route,
    without_key,
    without_recipients,
)
from mta.outbound.prepare import Delivery, Entry, Preparer
from mta.outbound.route import Router, Unroutable
from mta.outbound.security import Security
from mta.outbound.site import Site
from mta.outbound.sockets import Sockets
from mta.outbound.tls_policy import WITHOUT
from shards.member import Member

LOAD_ROWS = 256
DUE_EVERY_S = 1.0
GATHER_S = 0.005  # after a wake-up: the hints of some more milliseconds share one read and one load
TEND_S = 0.125
MEASURE_S = 0.5
FULL = 0.75  # of the hand: from here on, sites that are slow give back what they can't use soon
LEAST_PARK_S, MOST_PARK_S = 2.0, 30.0
ACK_EVERY_S = 0.1
KEEP_SETTLED_S = 60.0
BURIED_S = 3600.0
MOST_UNACKED = 100_000  # entries to acknowledge once Redis is back; a forgotten one costs a look at settled rows

_log = structlog.get_logger("mta")

Key = tuple[UUID, str]


class Outbound:
    """Delivery for one process."""

    def __init__(
        self,
        *,
        settings: Settings,
        pool: asyncpg.Pool,
        reader: HintReader,
        woken: WokenShards,
        router: Router,
        preparer: Preparer,
        settler: Settler,
        security: Security,
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._reader = reader
        self._woken = woken
        self._router = router
        self._preparer = preparer
        self._settler = settler
        self._security = security
        self._sockets = Sockets(settings)
        self._sites: dict[str, Site] = {}
        self._in_hand: dict[Key, Delivery] = {}
        self._held: Counter[int] = Counter()  # deliveries in hand by shard
        self._settled: tuple[dict[Key, int], dict[Key, int]] = ({}, {})
        self._finished: dict[int, list[bytes]] = {}
        self._more_behind = False  # more was due than fitted
        self._tasks: set[asyncio.Task[None]] = set()
        self._workers: set[Worker] = set()
        self._more_due = asyncio.Event()
        self._stopping = False
        self._longest_settling = 0.0
        self._report = Report(
            settle=self._settle,
            hand_back=self._hand_back,
            fault=self._fault,
            recheck=self._recheck,
            may_send=self._may_send,
            tls=security.count,
        )
        self.member: Member  # set by the process: the two need each other

    # -- for the process -----------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_hints())
            tasks.create_task(self._follow_due_times())
            tasks.create_task(self._acknowledge())
            tasks.create_task(self._tend_sites())
            tasks.create_task(self._security.run())

    async def drain(self, grace_s: float) -> None:
        """Finish open transactions within the grace, hand everything else back, settle what came back."""
        self._stopping = True
        self._drop_waiting(self._in_hand.values())
        for worker in list(self._workers):
            worker.stop()
        deadline = time.monotonic() + grace_s
        while self._tasks and time.monotonic() < deadline:
            await asyncio.wait(self._tasks, timeout=max(0.0, deadline - time.monotonic()))
        for task in list(self._tasks):
            task.cancel()
        await self._settler.idle()
        await self._security.flush()
        await self._ack_finished()
        self._measure()

    async def gained(self, shards: Collection[int]) -> None:
        """Shards came: what their last owner had read and not finished is looked at first."""
        try:
            hints = await self._reader.take_over(shards)
        except Away:
            hints = []
        for hint in hints:
            self._finished.setdefault(hint.shard, []).append(hint.entry)
        self._woken.some(shards)
        self._more_due.set()

    async def release(self, shards: Collection[int]) -> None:
        """Shards are to go: drop what waits, wait for what is on the wire."""
        gone = set(shards)
        if any(self._held[shard] for shard in gone):
            self._drop_waiting([one for one in self._in_hand.values() if one.row.shard in gone])
        while any(self._held[shard] for shard in gone):  # noqa: ASYNC110 - rare; no event per delivery
            await asyncio.sleep(0.05)

    def fenced(self) -> None:
        """Everything in hand belongs to others: forget it. Open transactions stop before their content."""
        self._drop_waiting(self._in_hand.values())
        self._in_hand.clear()
        self._held.clear()

    @property
    def in_hand(self) -> int:
        """Deliveries in memory."""
        return len(self._in_hand)

    # -- finding work --------------------------------------------------------------------------

    @property
    def _room(self) -> int:
        return 0 if self._stopping else self._settings.mta_active_limit - len(self._in_hand)

    async def _follow_hints(self) -> None:
        while True:
            await self._woken.wait(DUE_EVERY_S)
            await asyncio.sleep(GATHER_S)
            await self._until_room()
            shards = self._woken.take(self.member.owned)
            try:
                await self._read_hints(shards)
            except Away:
                await asyncio.sleep(0.5)  # the due times find everything meanwhile
                self._woken.all()
            except AWAY as error:
                heed_cancellation()
                _log.warning("hints not followed", error=repr(error))
                await asyncio.sleep(0.5)

    async def _read_hints(self, shards: list[int]) -> None:
        hints = await self._reader.read(shards, most=8)
        if not hints:
            return
        self._woken.some({hint.shard for hint in hints})  # there may be more behind these
        entries: dict[tuple[int, UUID], Entry] = {}
        for hint in hints:
            entry = Entry(hint.shard, hint.entry, len(hint.messages))
            for message in hint.messages:
                if (hint.shard, message) in entries:  # hinted at twice
                    self._done_with((entry,))
                else:
                    entries[hint.shard, message] = entry
        wanted = list(entries)
        while wanted:
            await self._until_room()
            fitting = min(LOAD_ROWS, self._room)
            part, wanted = wanted[:fitting], wanted[fitting:]
            rows = await queue.load_hinted(self._pool, {key[1] for key in part}, {key[0] for key in part})
            await self._take(rows, entries)
            found = {(row.shard, row.message_id) for row in rows}
            self._done_with(entries[key] for key in part if key not in found)

    async def _until_room(self) -> None:
        """Hints stay in their streams while the hand is full."""
        while self._room <= 0:  # noqa: ASYNC110 - an event would be set on every delivery
            await asyncio.sleep(0.01)

    async def _follow_due_times(self) -> None:
        while True:
            try:
                async with asyncio.timeout(DUE_EVERY_S):
                    await self._more_due.wait()
            except TimeoutError:
                pass
            self._more_due.clear()
            try:
                await self._take_due()
            except AWAY as error:
                heed_cancellation()
                _log.warning("due times not followed", error=repr(error))
                await asyncio.sleep(0.5)

    async def _take_due(self) -> None:
        owned = self.member.owned
        room = self._room
        if not owned or room <= 0:
            return
        room = min(room, max(1, self._settings.mta_active_limit // 4))
        each = max(2, 2 * room // len(owned))
        whole = [key[0] for key, one in self._in_hand.items() if one.row.total == len(one.pairs)]
        found = await queue.due(self._pool, owned, clock.now(), most_each=each, but=whole)
        keys = [key for one in found if not self._known(key := (one.message_id, one.domain))]
        if len(keys) > room:
            random.shuffle(keys)  # no shard comes last every time
            keys = keys[:room]
        for start in range(0, len(keys), LOAD_ROWS):
            await self._take(await queue.load(self._pool, keys[start : start + LOAD_ROWS]), {})
        self._more_behind = len(found) > len(keys) or len(found) >= each
        if self._more_behind and keys:
            self._ask_again()

    def _ask_again(self) -> None:
        """More is due than was taken: ask as soon as half the hand is empty."""
        if self._more_behind and len(self._in_hand) <= self._settings.mta_active_limit // 2:
            self._more_due.set()

    # -- taking work ---------------------------------------------------------------------------

    async def _take(self, rows: Iterable[Row], entries: dict[tuple[int, UUID], Entry]) -> None:
        now = time.monotonic()
        fresh: list[Delivery] = []
        for row in rows:
            entry = entries.get((row.shard, row.message_id))
            if self._known(row.key, row.attempts) or row.shard not in self.member.owned or self._stopping:
                self._done_with((entry,) if entry else ())
                continue
            delivery = Delivery(row, entry, now)
            self._in_hand[row.key] = delivery
            self._held[row.shard] += 1
            fresh.append(delivery)
        if not fresh:
            return
        try:
            await self._mark_suppressed(fresh)
        except BaseException:
            for delivery in fresh:
                self._hand_back(delivery)
            raise
        by_domain: dict[str, list[Delivery]] = {}
        for delivery in fresh:
            by_domain.setdefault(delivery.row.domain, []).append(delivery)
        for domain, group in by_domain.items():
            self._spawn(self._route(domain, group))

    def _known(self, key: Key, attempts: int | None = None) -> bool:
        """In hand, or settled so recently that a row read before its commit may still turn up."""
        if key in self._in_hand:
            return True
        if attempts is None:
            return False
        return any(known.get(key, -1) >= attempts for known in self._settled)

    async def _mark_suppressed(self, deliveries: list[Delivery]) -> None:
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

    async def _recheck(self, delivery: Delivery) -> None:
        try:
            await self._mark_suppressed([delivery])
        except AWAY:
            return  # it was checked when it was loaded; the bounce would be caught by its own settling
        delivery.loaded_at = time.monotonic()

    async def _route(self, domain: str, group: list[Delivery]) -> None:
        """Bring the deliveries of a domain to their site; without a route they settle at once."""
        try:
            await self._route_all(domain, group)
        except AWAY as error:
            _log.warning("not routed", domain=domain, error=repr(error))
            for one in group:
                self._hand_back(one)
        except Exception as error:  # noqa: BLE001 - process loop: a fault costs these deliveries an attempt, not more
            for one in group:
                self._fault(one, error)

    async def _route_all(self, domain: str, group: list[Delivery]) -> None:
        signed = [one for one in group if await self._signable(one)]
        if not signed:
            return
        route = await self._router.route(domain)
        policy = WITHOUT if isinstance(route, Unroutable) else await self._security.policy(domain, route)
        for one in signed:
            if self._in_hand.get(one.row.key) is not one:
                continue  # fenced or released meanwhile
            if isinstance(route, Unroutable):
                self._settle(one, refused_by_route(one, route.answer, None, self._settings))
                continue
            site = self._site(route.site + policy.key)
            site.route, site.policy = route, policy
            if site.resting and site.rest_because is not None:
                mx = route.hosts[0].name if route.hosts else route.site
                shared: dict[str, object] = {"mx": mx, "tls": None, "conversation": [], "note": SHARED_ATTEMPT}
                self._settle(one, refused_by_route(one, site.rest_because, shared, self._settings))
            else:
                site.put(one)
        if not isinstance(route, Unroutable):
            self._staff(self._site(route.site + policy.key))

    async def _signable(self, delivery: Delivery) -> bool:
        if not delivery.addresses:
            self._settle(delivery, without_recipients(delivery))
            return False
        try:
            if await self._preparer.load_keys(delivery):
                return True
        except AWAY:
            raise
        except Exception as error:  # noqa: BLE001 - one account's broken key is nobody else's matter
            self._fault(delivery, error)
            return False
        self._settle(delivery, without_key(delivery, self._settings))
        return False

    def _site(self, name: str) -> Site:
        site = self._sites.get(name)
        if site is None:
            site = self._sites[name] = Site(self._settings.site_connections)
        return site

    def _staff(self, site: Site) -> None:
        """As many workers as the site wants."""
        for _ in range(0 if self._stopping else site.hires(time.monotonic())):
            site.workers += 1
            self._spawn(self._employ(site))

    async def _employ(self, site: Site) -> None:
        worker = Worker(site, self._sockets, self._preparer, self._report, self._settings)
        self._workers.add(worker)
        try:
            await worker.run()
        finally:
            self._workers.discard(worker)
            site.workers -= 1
            self._staff(site)

    async def _tend_sites(self) -> None:
        """More workers where mail waits; twice a second, reckon rates, forget idle sites, relieve a full hand."""
        ticks = 0
        while True:
            await asyncio.sleep(TEND_S)
            ticks += 1
            for name, site in list(self._sites.items()):
                if site.waiting:
                    self._staff(site)
                elif not site.workers and not site.resting:
                    del self._sites[name]
            if ticks % (KEEP_SETTLED_S / TEND_S) == 0:
                self._settled = ({}, self._settled[0])
            if ticks % (MEASURE_S / TEND_S) == 0:
                self._measure()
                await self._relieve()

    def _measure(self) -> None:
        metrics.TALLY.write()
        metrics.IN_HAND.set(len(self._in_hand))
        metrics.SHARDS_OWNED.set(len(self.member.owned))
        for site in self._sites.values():
            site.reckon(MEASURE_S)
        if self._longest_settling:
            metrics.SETTLE_SECONDS.observe(self._longest_settling)
            self._longest_settling = 0.0

    async def _relieve(self) -> None:
        """A hand full of mail for slow sites hides everybody else's: the largest waits go back to Postgres until
        their site may have come near them. Fast sites empty the hand before it comes to this."""
        excess = len(self._in_hand) - int(FULL * self._settings.mta_active_limit)
        for site in sorted(self._sites.values(), key=Site.surplus, reverse=True):
            count = min(excess, site.surplus())
            if count <= 0:
                return
            excess -= count
            await self._park(site, [site.waiting.pop() for _ in range(count)])

    async def _park(self, site: Site, parked: list[Delivery]) -> None:
        wait_s = min(MOST_PARK_S, max(LEAST_PARK_S, len(site.waiting) / max(site.rate, 0.1)))
        until = clock.now() + timedelta(seconds=wait_s * random.uniform(0.8, 1.2))
        try:
            await hold.postpone(self._pool, [one.row for one in parked], until, reason="site_window")
        except AWAY as error:
            _log.warning("not parked", rows=len(parked), error=repr(error))
        for one in parked:
            self._hand_back(one)

    # -- finishing work ------------------------------------------------------------------------

    def _may_send(self, delivery: Delivery) -> bool:
        """Asked right before content is written. Fenced and joined anew, the lease stands again, but not for this."""
        return self.member.holds and self._in_hand.get(delivery.row.key) is delivery

    def _settle(self, delivery: Delivery, attempt: Attempt) -> None:
        if self._in_hand.get(delivery.row.key) is not delivery or delivery.settling:
            return  # fenced: it is somebody else's; or settled once already
        delivery.settling = True
        _tell(attempt)
        ended = time.monotonic()
        future = self._settler.settle(attempt)

        def committed(done: "asyncio.Future[bool]") -> None:
            if done.cancelled():
                return
            error = done.exception()
            if isinstance(error, Fenced):
                self.member.lose_all()
            elif error is not None:
                self._spawn(self._bury(delivery, error))
                return
            else:
                self._settled[0][delivery.row.key] = delivery.row.attempts
                self._longest_settling = max(self._longest_settling, time.monotonic() - ended)
            self._hand_back(delivery)

        future.add_done_callback(committed)

    async def _bury(self, delivery: Delivery, error: BaseException) -> None:
        """An outcome that can't be stored: nobody may deliver the message again and again meanwhile."""
        _log.error("not settled", message=str(delivery.row.message_id), exc_info=error)
        self._settled[0][delivery.row.key] = delivery.row.attempts
        try:
            until = clock.now() + timedelta(seconds=BURIED_S)
            await queue.bury(self._pool, delivery.row.key, until, f"not settled: {type(error).__name__}")
        except AWAY as away:
            _log.error("not set aside", message=str(delivery.row.message_id), error=repr(away))
        self._hand_back(delivery)

    def _fault(self, delivery: Delivery, error: Exception) -> None:
        _log.error("delivery failed on our side", message=str(delivery.row.message_id), exc_info=error)
        if delivery.addresses:
            self._settle(delivery, at_fault(delivery, error, self._settings))
        else:
            self._hand_back(delivery)

    def _hand_back(self, delivery: Delivery) -> None:
        """No longer in hand; its hint has served."""
        if self._in_hand.get(delivery.row.key) is delivery:
            del self._in_hand[delivery.row.key]
            self._held[delivery.row.shard] -= 1
            self._ask_again()
        if delivery.entry is not None:
            self._done_with((delivery.entry,))
            delivery.entry = None

    def _done_with(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            entry.left -= 1
            if entry.left == 0:
                self._finished.setdefault(entry.shard, []).append(entry.id)

    def _drop_waiting(self, deliveries: Iterable[Delivery]) -> None:
        dropped = {id(one) for one in deliveries}
        for site in self._sites.values():
            kept = [one for one in site.waiting if id(one) not in dropped]
            for one in site.waiting:
                if id(one) in dropped:
                    self._hand_back(one)
            site.waiting.clear()
            site.waiting.extend(kept)

    async def _acknowledge(self) -> None:
        while True:
            await asyncio.sleep(ACK_EVERY_S)
            await self._ack_finished()

    async def _ack_finished(self) -> None:
        finished, self._finished = self._finished, {}
        if await self._reader.ack(finished) or sum(map(len, self._finished.values())) > MOST_UNACKED:
            return
        for shard, entries in finished.items():
            self._finished.setdefault(shard, []).extend(entries)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("delivery task failed", exc_info=task.exception())


def _tell(attempt: Attempt) -> None:
    """Count every recipient; one log line for each that was not delivered, never the address."""
    for result in attempt.results:
        outcome = result.outcome
        if outcome is not None:
            metrics.TALLY.add(metrics.ATTEMPTS, outcome.verdict.value, outcome.scope.value)
        if outcome is None or outcome.verdict is not Verdict.DELIVERED:
            _log.info(
                "not delivered",
                message=ids.format_id(ids.Kind.MESSAGE, attempt.row.message_id),
                domain=attempt.row.domain,
                verdict="suppressed" if outcome is None else outcome.verdict.value,
                scope=None if outcome is None else outcome.scope.value,
                category=None if outcome is None else outcome.category.value,
                code=None if outcome is None else outcome.smtp_code,
                again=attempt.next_at,
            )
