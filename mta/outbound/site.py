"""One site: the servers behind an MX set, the deliveries waiting for them, and the connections in use.

A worker is a task with one connection; it takes deliveries one after the other and lets go after a pause. How
many workers there may be is the window: it grows with every delivery and shrinks when the site pushes back.
A site that can't be reached at all rests, longer each time, and is then probed by one connection.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from engine.base.settings import Settings
from engine.mail.replies import Answer, Break, BreakKind, Phase, Reply
from mta.outbound.prepare import Delivery
from mta.outbound.route import Route
from mta.smtp.connection import ConnectFailed, Connection, Timeouts, TlsMode

INITIAL_WINDOW = 5.0  # Postfix initial_destination_concurrency
IDLE_S = 5.0  # how long a connection waits for more mail
MOST_ADDRESSES = 5  # Postfix smtp_mx_address_limit
CONNECTION_AGE_S = 300.0  # Postfix smtp_connection_reuse_time_limit
REST_S, LONGEST_REST_S = 15.0, 300.0
BROKEN_TLS_S = 3 * 24 * 3600.0
LEAST_WAITING = 16
SLOW_S = 0.05  # a transaction that lasts longer waits for the server, not for us: another connection helps
_MOST_BROKEN = 10_000


class Tried(Struct, frozen=True):
    """A connection attempt that led nowhere: the last answer and all steps."""

    answer: Answer
    steps: tuple[dict[str, object], ...]
    mx: str


class Sockets:
    """The connections of one process: bounded in all, and what is remembered of addresses with broken TLS."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.mta_connections)
        self._idle: dict[int, Callable[[], None]] = {}
        self._broken_tls: dict[str, float] = {}
        self._timeouts = Timeouts(
            connect_s=settings.connect_timeout_s,
            reply_s=settings.reply_timeout_s,
            final_dot_s=settings.final_dot_timeout_s,
        )

    async def open(self, route: Route) -> tuple[Connection, str] | Tried:
        """A connection to the first server that takes one, with its MX name; needs a `slot`."""
        steps: list[dict[str, object]] = []
        last: Tried | None = None
        for mx, ip in [(host.name, ip) for host in route.hosts for ip in host.addresses][:MOST_ADDRESSES]:
            for mode in self._modes(ip):
                try:
                    connection = await Connection.open(
                        (ip, route.port),
                        server_name=mx,
                        helo=self._settings.mail_host,
                        tls=mode,
                        timeouts=self._timeouts,
                    )
                except ConnectFailed as failed:
                    steps += failed.transcript
                    last = Tried(Answer(failed.phase, failed.outcome), tuple(steps), mx)
                    if failed.phase not in (Phase.TLS, Phase.STARTTLS):
                        break
                    self._remember_broken(ip)
                else:
                    return connection, mx
        return last or Tried(
            Answer(Phase.ROUTE, Break(BreakKind.DNS, "no mail server of the domain has an address")), (), route.site
        )

    async def slot(self) -> None:
        """Wait for the right to one more connection; asks the longest idle one to make room."""
        if self._slots.locked() and self._idle:
            self._idle.pop(next(iter(self._idle)))()
        await self._slots.acquire()

    def free(self) -> None:
        """The connection is closed."""
        self._slots.release()

    def idle(self, worker: int, stop: Callable[[], None]) -> None:
        """This worker's connection waits for work and may be asked to stop."""
        self._idle[worker] = stop

    def busy(self, worker: int) -> None:
        """It works again."""
        self._idle.pop(worker, None)

    def _modes(self, ip: str) -> tuple[TlsMode, ...]:
        """Opportunistic first, then once in plaintext; a peer known to break TLS is not asked again for days."""
        if self._broken_tls.get(ip, 0.0) > time.monotonic():
            return (TlsMode.OFF,)
        return (TlsMode.OPPORTUNISTIC, TlsMode.OFF)

    def _remember_broken(self, ip: str) -> None:
        if len(self._broken_tls) >= _MOST_BROKEN:
            self._broken_tls.clear()
        self._broken_tls[ip] = time.monotonic() + BROKEN_TLS_S


class Site:
    """Deliveries that wait for one site, its window, and whether it rests."""

    def __init__(self, limit: int) -> None:
        self.route = Route("", (), 0)  # that of the latest delivery: its hosts are shuffled anew for each
        self.limit = float(limit)
        self.window = min(INITIAL_WINDOW, self.limit)
        self.waiting: deque[Delivery] = deque()
        self.workers = 0  # connections open or being opened
        self.busy: dict[int, float] = {}  # worker -> when its present transaction, or its opening, began
        self.sleepers: list[asyncio.Future[bool]] = []  # idle workers
        self.connected = 0
        self.done = 0  # transactions since the rate was last reckoned
        self.rate = 1.0  # transactions a second, a moving mean
        self.rest_until = 0.0
        self.rest_because: Answer | None = None
        self._rests = 0

    @property
    def resting(self) -> bool:
        """True while the site is left alone."""
        return time.monotonic() < self.rest_until

    def put(self, delivery: Delivery, *, first: bool = False) -> None:
        """Add work and wake an idle worker."""
        if first:
            self.waiting.appendleft(delivery)
        else:
            self.waiting.append(delivery)
        while self.sleepers:
            sleeper = self.sleepers.pop()
            if not sleeper.done():
                sleeper.set_result(True)
                break

    def reckon(self, elapsed_s: float) -> None:
        """Bring the rate up to date."""
        self.rate += 0.3 * (self.done / elapsed_s - self.rate)
        self.done = 0

    def surplus(self) -> int:
        """Waiting deliveries beyond what keeps its connections busy."""
        return max(0, len(self.waiting) - max(LEAST_WAITING, 2 * int(self.window)))

    def hires(self, now: float) -> int:
        """How many more connections would help and are allowed: the first at once, then twice as many whenever all
        of them wait for the server; a site that has rested is probed by one."""
        if not self.waiting or self.sleepers:
            return 0
        if self.workers == 0:
            return 1
        slow = len(self.busy) == self.workers and all(now - began > SLOW_S for began in self.busy.values())
        if self._rests or not slow:
            return 0
        return max(0, min(self.workers, int(self.window) - self.workers, len(self.waiting)))

    def succeeded(self) -> None:
        """A delivery went through: the site is well."""
        self.window = min(self.limit, self.window + 1 / max(self.window, 1.0))
        self._rests = 0
        self.rest_because = None

    def pushed_back(self) -> None:
        """The site asked for less: halve the window."""
        self.window = max(1.0, min(self.window, float(max(self.workers, 1))) / 2)

    def rest(self, because: Answer) -> None:
        """Leave the site alone for a while, longer each time, never in step with other processes."""
        seconds = min(LONGEST_REST_S, REST_S * 2**self._rests) * random.uniform(0.8, 1.2)
        self._rests += 1
        self.rest_until = time.monotonic() + seconds
        self.rest_because = because
        self.window = min(INITIAL_WINDOW, self.limit)

    async def work(self, sleep_s: float) -> bool:
        """Wait for something to do; False when nothing came."""
        if self.waiting:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.sleepers.append(future)
        try:
            async with asyncio.timeout(sleep_s):
                return await future
        except TimeoutError:
            return False
        finally:
            if future in self.sleepers:
                self.sleepers.remove(future)


def worn_out(connection: Connection, opened_at: float, most_messages: int) -> bool:
    """True when a connection has done its share."""
    return (
        not connection.usable
        or connection.messages_sent >= most_messages
        or time.monotonic() - opened_at > CONNECTION_AGE_S
    )


def blames_site(outcome: Reply | Break) -> bool:
    """False for breaks that are our own doing."""
    return not (isinstance(outcome, Break) and outcome.kind is BreakKind.LOCAL)
