"""The complete stage: settles outcomes, and sets aside what cannot be settled."""

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import asyncpg
import structlog

from engine.base import clock, ids, trace_context
from engine.base.settings import Settings
from engine.delivery import queue
from engine.delivery.outcome import Verdict
from engine.sending.settle import DeliveryAttempt, Fenced, Settler
from engine.store import metrics
from engine.store.database_errors import DatabaseUnavailable
from engine.store.traces import TRACES
from mta.outbound import spans
from mta.outbound.active_queue import ActiveQueue, Key
from mta.outbound.attempts import at_fault
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.outcome_journal import OutcomeJournal
from mta.outbound.sites.site_stats import SiteStats
from mta.outbound.sites.site_table import SiteTable
from mta.outbound.tasks import DeliveryTasks
from shards.load import ShardLoad
from shards.ownership import ShardOwnership

BURIED_S = 3600.0
MAX_KEPT = 10_000  # deliveries whose faults are counted
MAX_UNSETTLED = 256  # of broadcasts, and of other mail: another host would send those of a killed process again

_log = structlog.get_logger("mta")


class CompleteStage:
    """Ends the deliveries of one process: makes attempts durable and clears the active queue."""

    def __init__(
        self,
        *,
        settings: Settings,
        pool: asyncpg.Pool,
        settler: Settler,
        journal: OutcomeJournal,
        active: ActiveQueue,
        sites: SiteTable,
        ownership: ShardOwnership,
        load: ShardLoad,
        site_stats: SiteStats,
        simulated: "asyncio.Queue[DeliveryAttempt]",
        tasks: DeliveryTasks,
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._settler = settler
        self._journal = journal
        self._active = active
        self._sites = sites
        self._ownership = ownership
        self._load = load
        self._site_stats = site_stats
        self._simulated = simulated
        self._tasks = tasks
        self._longest_s = 0.0
        self._unsettled: Counter[bool] = Counter()  # by whether they are of broadcasts
        self._faults: dict[tuple[UUID, str], int] = {}

    def settle(self, delivery: ActiveDelivery, attempt: DeliveryAttempt) -> None:
        """Hand an attempt to the settler; with the commit the delivery leaves the active queue. Do nothing for a
        delivery that was fenced, or settled already."""
        if not self._active.has(delivery) or delivery.settling:
            return  # fenced, so another process has it; or settled already
        delivery.settling = True
        self._active.broadcasts.left(delivery)
        self._load.count(attempt.row.shard, attempt.row.domain)
        attempt = self._site_stats.saw(attempt)
        _tell(attempt)
        ended = time.monotonic()
        tracer = TRACES.sampling(attempt.row.traceparent)
        times = None if tracer is None else spans.times_of(delivery, attempt)
        kind = _is_broadcast(delivery)
        self._unsettled[kind] += 1
        future = self._settler.settle(attempt)

        def committed(done: "asyncio.Future[bool]") -> None:
            self._unsettled[kind] -= 1
            if done.cancelled():
                return
            error = done.exception()
            if isinstance(error, Fenced):
                self._ownership.lose()
                self.forget_all()
            elif error is not None:
                self._tasks.start(self._bury(delivery, error))
                return
            else:
                if done.result() and attempt.simulated:
                    self._offer(attempt)
                self._active.remember(delivery)
                self._longest_s = max(self._longest_s, time.monotonic() - ended)
            self._active.drop(delivery)
            if tracer is not None and times is not None and error is None and done.result():
                spans.settled(tracer, attempt, times, clock.now())

        future.add_done_callback(committed)

    def is_behind(self, delivery: ActiveDelivery) -> bool:
        """Return True while this delivery should not begin, because many outcomes of its kind wait for their commit, or
        outcomes that cannot be committed are not kept in the journal yet."""
        return self._unsettled[_is_broadcast(delivery)] >= MAX_UNSETTLED or self._journal.is_behind

    def forget_all(self) -> None:
        """Forget every delivery: other processes own the shards by now. Open transactions stop before content."""
        self._sites.drop(lambda _: True)
        self._active.forget_all()

    def fault(self, delivery: ActiveDelivery, error: Exception) -> None:
        """Count a fault of this software on a delivery as an attempt."""
        _log.error("delivery failed by an internal fault", message=str(delivery.row.message_id), exc_info=error)
        if delivery.addresses:
            if len(self._faults) >= MAX_KEPT:
                self._faults.clear()
            faults = self._faults[delivery.row.key] = self._faults.get(delivery.row.key, 0) + 1
            self.settle(delivery, at_fault(delivery, error, faults, self._settings))
        else:
            self._active.drop(delivery)

    async def idle(self) -> None:
        """Wait until every outcome is committed."""
        await self._settler.idle()

    async def settle_left(self) -> None:
        """Settle what ended processes of this host kept; called before this one takes their shards. Waits for Postgres.

        An attempt whose row has changed since was settled, or made again by another host: it is left out.
        """
        for left, attempts in self._journal.left():
            settling = [self._settler.settle(one) for one in attempts]
            results = await asyncio.gather(*settling, return_exceptions=True)
            if any(isinstance(one, Fenced) for one in results):
                return  # the next membership settles them
            for attempt, result in zip(attempts, results, strict=True):
                if isinstance(result, BaseException):
                    await self._set_aside(attempt.row.key, result)
                elif result and attempt.simulated:
                    self._offer(attempt)
            _log.info("outcomes of an ended process settled", kept=len(attempts), unsettled=results.count(True))
            left.remove()

    def measure(self) -> None:
        """Observe the longest settling since the last call."""
        if self._longest_s:
            metrics.SETTLE_SECONDS.observe(self._longest_s)
            self._longest_s = 0.0

    def _offer(self, attempt: DeliveryAttempt) -> None:
        """Hand a settled attempt at the simulator on; drop it where thousands wait already."""
        with suppress(asyncio.QueueFull):
            self._simulated.put_nowait(attempt)

    async def _bury(self, delivery: ActiveDelivery, error: BaseException) -> None:
        """Set a delivery aside whose outcome cannot be stored, so that it is not delivered again and again."""
        self._active.remember(delivery)
        await self._set_aside(delivery.row.key, error)
        self._active.drop(delivery)

    async def _set_aside(self, key: Key, error: BaseException) -> None:
        _log.error("attempt not settled", message=str(key[0]), exc_info=error)
        try:
            until = clock.now() + timedelta(seconds=BURIED_S)
            await queue.bury(self._pool, key, until, f"not settled: {type(error).__name__}")
        except DatabaseUnavailable as away:
            _log.error("unsettled attempt not set aside", message=str(key[0]), error=repr(away))


def _is_broadcast(delivery: ActiveDelivery) -> bool:
    return delivery.row.priority >= queue.BROADCAST_PRIORITY


def _tell(attempt: DeliveryAttempt) -> None:
    """Count every recipient and the waiting time, and log each that was not delivered, without its address."""
    for cause, ms in (attempt.waits or {}).items():
        metrics.TALLY.add(metrics.DELIVERY_WAIT_SECONDS, cause, by=ms / 1_000)
    for result in attempt.results:
        outcome = result.outcome
        if outcome is not None:
            metrics.TALLY.add(metrics.ATTEMPTS, outcome.verdict, outcome.scope)
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
                **trace_context.log_fields(attempt.row.traceparent, attempt.row.message_id),
            )
        elif _log.is_enabled_for(logging.DEBUG):  # asked first, because formatting the id costs as much as the rest
            _log.debug(
                "delivered",
                message=ids.format_id(ids.Kind.MESSAGE, attempt.row.message_id),
                domain=attempt.row.domain,
                **trace_context.log_fields(attempt.row.traceparent, attempt.row.message_id),
            )
