"""Finishing work: outcomes settle, their hints are acknowledged, and what can't be settled is set aside."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import asyncpg
import structlog
from engine.store.database_errors import DatabaseUnavailable

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.delivery import queue
from engine.delivery.hints import HintReader
from engine.delivery.outcome import Verdict
from engine.flows.settle import Attempt, Fenced
from engine.store import metrics
from mta.outbound.attempts import at_fault
from mta.outbound.hand import Hand
from mta.outbound.prepare import Delivery

ACK_EVERY_S = 0.1
BURIED_S = 3600.0
MAX_KEPT = 10_000  # deliveries whose faults are counted

_log = structlog.get_logger("mta")

Spawn = Callable[[Coroutine[None, None, None]], None]


class Settles(Protocol):
    """What a Finisher needs of a Settler."""

    def settle(self, attempt: Attempt) -> "asyncio.Future[bool]":
        """See Settler."""

    async def idle(self) -> None:
        """See Settler."""


class Finisher:
    """What becomes of the deliveries in one process's hand. `on_fenced` hears that the leases are gone; `saw` is
    shown every attempt before it is settled, and may add to it; `settled` hears of those that are on record."""

    def __init__(
        self,
        *,
        settings: Settings,
        pool: asyncpg.Pool,
        reader: HintReader,
        settler: Settles,
        hand: Hand,
        spawn: Spawn,
        on_fenced: Callable[[], None],
        saw: Callable[[Attempt], Attempt],
        settled: Callable[[Attempt], None],
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._reader = reader
        self._settler = settler
        self._hand = hand
        self._spawn = spawn
        self._on_fenced = on_fenced
        self._saw = saw
        self._settled = settled
        self._longest_s = 0.0
        self._faults: dict[tuple[UUID, str], int] = {}

    def settle(self, delivery: Delivery, attempt: Attempt) -> None:
        """Make an attempt history; the delivery leaves the hand with the commit."""
        if not self._hand.has(delivery) or delivery.settling:
            return  # fenced: it is somebody else's; or settled once already
        delivery.settling = True
        attempt = self._saw(attempt)
        _tell(attempt)
        ended = time.monotonic()
        future = self._settler.settle(attempt)

        def committed(done: "asyncio.Future[bool]") -> None:
            if done.cancelled():
                return
            error = done.exception()
            if isinstance(error, Fenced):
                self._on_fenced()
            elif error is not None:
                self._spawn(self._bury(delivery, error))
                return
            else:
                if done.result():
                    self._settled(attempt)
                self._hand.remember(delivery)
                self._longest_s = max(self._longest_s, time.monotonic() - ended)
            self._hand.drop(delivery)

        future.add_done_callback(committed)

    def fault(self, delivery: Delivery, error: Exception) -> None:
        """Something of ours broke on this delivery: that counts as an attempt."""
        _log.error("delivery failed on our side", message=str(delivery.row.message_id), exc_info=error)
        if delivery.addresses:
            if len(self._faults) >= MAX_KEPT:
                self._faults.clear()
            faults = self._faults[delivery.row.key] = self._faults.get(delivery.row.key, 0) + 1
            self.settle(delivery, at_fault(delivery, error, faults, self._settings))
        else:
            self._hand.drop(delivery)

    async def acknowledge(self) -> None:
        """Acknowledge finished hints, until cancelled."""
        while True:
            await asyncio.sleep(ACK_EVERY_S)
            await self.acknowledge_once()

    async def acknowledge_once(self) -> None:
        """Those that are finished now."""
        finished = self._hand.take_finished()
        if not await self._reader.ack(finished):
            self._hand.not_acknowledged(finished)

    async def idle(self) -> None:
        """Wait until every outcome is committed."""
        await self._settler.idle()

    def measure(self) -> None:
        """The longest settling since the last look."""
        if self._longest_s:
            metrics.SETTLE_SECONDS.observe(self._longest_s)
            self._longest_s = 0.0

    async def _bury(self, delivery: Delivery, error: BaseException) -> None:
        """An outcome that can't be stored: nobody may deliver the message again and again meanwhile."""
        _log.error("not settled", message=str(delivery.row.message_id), exc_info=error)
        self._hand.remember(delivery)
        try:
            until = clock.now() + timedelta(seconds=BURIED_S)
            await queue.bury(self._pool, delivery.row.key, until, f"not settled: {type(error).__name__}")
        except DatabaseUnavailable as away:
            _log.error("not set aside", message=str(delivery.row.message_id), error=repr(away))
        self._hand.drop(delivery)


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
        else:
            _log.debug(
                "delivered", message=ids.format_id(ids.Kind.MESSAGE, attempt.row.message_id), domain=attempt.row.domain
            )
