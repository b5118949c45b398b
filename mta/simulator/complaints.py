"""Make complaints about mail to `complained@`, seconds after its delivery is stored.

A complaint goes as a report (ARF) to the return path of the mail, through the MX of this host, and takes the way of
any other complaint from there. It is recorded directly where no MX takes it, and where it is not on record soon after.

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
from msgspec import Struct, structs

from engine.base import clock, ids
from engine.base.netaddr import connect_host
from engine.base.secrets import DerivedKey
from engine.base.settings import Settings
from engine.delivery.outcome import Verdict
from engine.mail import return_path
from engine.mail.outgoing_reports import ReportedMail, complaint_report
from engine.mail.simulator import SimulatedOutcome, simulated_outcome
from engine.sending.complaint import complain
from engine.sending.domains.records import bounce_domain
from engine.sending.settle import DeliveryAttempt
from engine.store import service_time
from engine.store.database_errors import DatabaseUnavailable
from engine.store.queries import Queries
from engine.store.service_time import Wake
from mta.smtp.client.report_mail import send_report

DELAY_S = 3.0
LOOK_BACK = timedelta(minutes=2)
MAX_WAITING = 100_000
MAX_FOUND = 1_000
AGAIN_S = 1.0
CONFIRM_S = 30.0  # within which the worker has read a report that the MX took
DRAIN_S = 2.0

_log = structlog.get_logger("simulator")
_DELIVERED_LATELY = Queries.beside(__file__, "complaints.sql").command("delivered_lately")


class ReportRoute(Struct, frozen=True):
    """The way of reports: the MX, and the key and domain of return paths."""

    mx: tuple[str, int]
    path_key: DerivedKey
    bounce_domain: str

    @classmethod
    def of(cls, settings: Settings) -> "ReportRoute | None":
        """Return the way to the MX of this host; None if it runs none."""
        if "mx" not in settings.processes or settings.key_pepper is None:
            return None
        return cls(
            (connect_host(settings.mx_host), settings.mx_port),
            return_path.key_of(settings.pepper),
            bounce_domain(settings.mail_host.lower()),
        )


class PendingComplaint(Struct, frozen=True):
    """A complaint that is due at `due` (monotonic clock)."""

    due: float
    message: UUID
    place: int


class SimulatedComplaints:
    """The pending complaints of one process: call `run` during delivery, then `drain`.

    `settled` is the queue of recorded attempts at the simulator. `route`: None to record complaints directly.
    """

    def __init__(
        self,
        pool: asyncpg.Pool,
        domain: str,
        settled: "asyncio.Queue[DeliveryAttempt]",
        *,
        delay_s: float = DELAY_S,
        route: ReportRoute | None = None,
        confirm_s: float = CONFIRM_S,
    ) -> None:
        self._pool = pool
        self._domain = domain
        self._settled = settled
        self._delay_s = delay_s
        self._route = route
        self._confirm_s = confirm_s
        self._waiting: deque[PendingComplaint] = deque(maxlen=MAX_WAITING)  # oldest first
        self._mailed: deque[PendingComplaint] = deque(maxlen=MAX_WAITING)  # taken by the MX, to be confirmed
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
        for pending in (self._waiting, self._mailed):
            while pending and time.monotonic() < ends and await self._recorded(pending[0]):
                pending.popleft()

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
            oldest = [pending[0].due for pending in (self._waiting, self._mailed) if pending]
            if not oldest:
                self._came.clear()
                with service_time.resting():
                    await self._came.wait()
                continue
            # Mail that comes meanwhile may be due before the oldest that waits for its confirmation.
            await service_time.sleep(min(max(0.0, min(oldest) - clock.monotonic()), self._delay_s), Wake.APPOINTMENT)
            if not await self._next():
                await asyncio.sleep(AGAIN_S)

    def _add(self, message: UUID, place: int) -> None:
        self._waiting.append(PendingComplaint(clock.monotonic() + self._delay_s, message, place))
        self._came.set()

    async def _next(self) -> bool:
        """Make the complaints that are due; return False, and keep one pending, if PostgreSQL is unavailable."""
        now = clock.monotonic()
        while self._mailed and self._mailed[0].due <= now:
            if not await self._recorded(self._mailed[0]):
                return False
            self._mailed.popleft()
        if self._waiting and self._waiting[0].due <= now:
            one = self._waiting[0]
            if await self._mail(one):
                self._mailed.append(structs.replace(one, due=clock.monotonic() + self._confirm_s))
            elif not await self._recorded(one):
                return False
            self._waiting.popleft()
        return True

    async def _mail(self, one: PendingComplaint) -> bool:
        """Send the complaint to the MX; return True if it took the report."""
        route = self._route
        if route is None:
            return False
        path = return_path.return_path(route.path_key, one.message, one.place, route.bounce_domain)
        mail = ReportedMail(
            self._domain, path, f"{SimulatedOutcome.COMPLAINED.value}@{self._domain}", f"Return-Path: <{path}>".encode()
        )
        report = complaint_report(mail, clock.now())
        return await send_report(route.mx, helo=self._domain, recipient=path, content=report)

    async def _recorded(self, one: PendingComplaint) -> bool:
        """Record a complaint unless it is recorded; return False if PostgreSQL is unavailable."""
        try:
            await complain(self._pool, one.message, one.place, at=clock.now(), simulated=True)
        except DatabaseUnavailable as error:
            _log.warning("simulated complaint not recorded yet", error=repr(error))
            return False
        except Exception:  # noqa: BLE001 - process loop: a fault costs this complaint, not the next
            _log.exception("simulated complaint failed", message=str(one.message))
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
