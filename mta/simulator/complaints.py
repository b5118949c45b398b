"""Record complaints for mail to `complained@`, seconds after its delivery is stored, like any other complaint.

Pending complaints are kept in memory. A process that drains records its own at once; those of a killed process are
found by the next one that starts, among the messages of the last minutes.
"""

import asyncio
import time
from collections import deque
from datetime import timedelta
from uuid import UUID

import asyncpg
import structlog

from engine.base import clock, ids
from engine.delivery.outcome import Verdict
from engine.flows.sending.complaint import complain
from engine.flows.sending.settle import DeliveryAttempt
from engine.mail.simulator import SimulatedOutcome, simulated_outcome
from engine.store.database_errors import DatabaseUnavailable
from engine.store.queries import Queries

DELAY_S = 3.0
LOOK_BACK = timedelta(minutes=2)
MAX_WAITING = 100_000
MAX_FOUND = 1_000
AGAIN_S = 1.0
DRAIN_S = 2.0

_log = structlog.get_logger("simulator")
_DELIVERED_LATELY = Queries.beside(__file__, "complaints.sql").command("delivered_lately")


class SimulatedComplaints:
    """The pending complaints of one process: call `run` during delivery, then `drain`.

    `settled` is the queue of recorded attempts at the simulator.
    """

    def __init__(
        self, pool: asyncpg.Pool, domain: str, settled: "asyncio.Queue[DeliveryAttempt]", *, delay_s: float = DELAY_S
    ) -> None:
        self._pool = pool
        self._domain = domain
        self._settled = settled
        self._delay_s = delay_s
        self._waiting: deque[tuple[float, UUID, int]] = deque(maxlen=MAX_WAITING)  # when, message, place; oldest first
        self._came = asyncio.Event()

    async def run(self) -> None:
        """Record each complaint when it is due, until cancelled."""
        await self._find()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._collect())
            tasks.create_task(self._complain())

    async def drain(self) -> None:
        """Record the pending complaints at once, for up to `DRAIN_S` seconds."""
        while not self._settled.empty():
            self._note(self._settled.get_nowait())
        ends = time.monotonic() + DRAIN_S
        while self._waiting and time.monotonic() < ends and await self._next():
            pass

    async def _collect(self) -> None:
        while True:
            self._note(await self._settled.get())

    def _note(self, attempt: DeliveryAttempt) -> None:
        for one in attempt.results:
            delivered = one.outcome is not None and one.outcome.verdict is Verdict.DELIVERED
            if delivered and simulated_outcome(one.address) is SimulatedOutcome.COMPLAINED:
                self._add(attempt.row.message_id, one.place)

    async def _complain(self) -> None:
        while True:
            if not self._waiting:
                self._came.clear()
                await self._came.wait()
            await asyncio.sleep(max(0.0, self._waiting[0][0] - time.monotonic()))
            if not await self._next():
                await asyncio.sleep(AGAIN_S)

    def _add(self, message: UUID, place: int) -> None:
        self._waiting.append((time.monotonic() + self._delay_s, message, place))
        self._came.set()

    async def _next(self) -> bool:
        """Record the oldest complaint; return False, and keep it pending, if PostgreSQL is unavailable."""
        _, message, place = self._waiting[0]
        try:
            await complain(self._pool, message, place, at=clock.now(), simulated=True)
        except DatabaseUnavailable as error:
            _log.warning("simulated complaint not recorded yet", error=repr(error))
            return False
        except Exception:  # noqa: BLE001 - process loop: a fault costs this complaint, not the next
            _log.exception("simulated complaint failed", message=str(message))
        self._waiting.popleft()
        return True

    async def _find(self) -> None:
        """Add the complaints that a killed process may have left; a recorded one is not recorded again."""
        now = clock.now()
        since, until = (ids.floor_of(clock.milliseconds(at)) for at in (now - LOOK_BACK, now + LOOK_BACK))
        ending = f"@{self._domain}"
        try:
            found = await _DELIVERED_LATELY.records(
                self._pool, since, until, SimulatedOutcome.COMPLAINED.value, ending, MAX_FOUND
            )
        except DatabaseUnavailable as error:
            _log.warning("search for simulated complaints failed", error=repr(error))
            return
        for row in found:
            self._add(row["message_id"], row["place"])
