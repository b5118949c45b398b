"""Record a complaint for mail to `complained@`, seconds after its delivery is recorded, like any other complaint.

Pending complaints wait in memory. A process that drains records its own at once. After a kill, the next process that
starts looks for missing complaints among the messages of the last minutes.
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
from engine.flows.sending.settle import Attempt
from engine.mail.simulator import Part, part_of
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
    """The pending complaints of one process: call `settled` for every attempt, and `drain` after `run` ended."""

    def __init__(self, pool: asyncpg.Pool, domain: str, *, delay_s: float = DELAY_S) -> None:
        self._pool = pool
        self._domain = domain
        self._delay_s = delay_s
        # Due time, message, place of the recipient; oldest first.
        self._waiting: deque[tuple[float, UUID, int]] = deque(maxlen=MAX_WAITING)
        self._came = asyncio.Event()

    def settled(self, attempt: Attempt) -> None:
        """Schedule complaints for the simulated recipients of a recorded attempt."""
        if not attempt.simulated:
            return
        for one in attempt.results:
            delivered = one.outcome is not None and one.outcome.verdict is Verdict.DELIVERED
            if delivered and part_of(one.address) is Part.COMPLAINED:
                self._add(attempt.row.message_id, one.place)

    async def run(self) -> None:
        """Record each complaint when it is due, until cancelled."""
        await self._find()
        while True:
            if not self._waiting:
                self._came.clear()
                await self._came.wait()
            await asyncio.sleep(max(0.0, self._waiting[0][0] - time.monotonic()))
            if not await self._next():
                await asyncio.sleep(AGAIN_S)

    async def drain(self) -> None:
        """Record pending complaints at once, for at most `DRAIN_S` seconds."""
        ends = time.monotonic() + DRAIN_S
        while self._waiting and time.monotonic() < ends and await self._next():
            pass

    def _add(self, message: UUID, place: int) -> None:
        self._waiting.append((time.monotonic() + self._delay_s, message, place))
        self._came.set()

    async def _next(self) -> bool:
        """Record the oldest complaint; False when Postgres is unavailable and the complaint stays pending."""
        _, message, place = self._waiting[0]
        try:
            await complain(self._pool, message, place, at=clock.now(), simulated=True)
        except DatabaseUnavailable as error:
            _log.warning("simulated complaint delayed: database unavailable", error=repr(error))
            return False
        except Exception:  # noqa: BLE001 - process loop: an error drops this complaint only
            _log.exception("simulated complaint failed", message=str(message))
        self._waiting.popleft()
        return True

    async def _find(self) -> None:
        """Schedule complaints that a killed process may have left; one recorded already is not recorded again."""
        now = clock.now()
        since, until = (ids.floor_of(clock.milliseconds(at)) for at in (now - LOOK_BACK, now + LOOK_BACK))
        ending = f"@{self._domain}"
        try:
            found = await _DELIVERED_LATELY.records(self._pool, since, until, Part.COMPLAINED.value, ending, MAX_FOUND)
        except DatabaseUnavailable as error:
            _log.warning("search for missing simulated complaints failed: database unavailable", error=repr(error))
            return
        for row in found:
            self._add(row["message_id"], row["place"])
