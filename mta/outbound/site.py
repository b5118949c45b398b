"""One site: the servers behind an MX set, under one TLS policy, the deliveries waiting for them, and their connections.

A worker is a task with one connection; it takes deliveries one after the other and lets go after a pause. How
many workers there may be is the window: it grows with every delivery and shrinks when the site pushes back.
A site that can't be reached at all rests, longer each time, and is then probed by one connection.
"""

import asyncio
import random
import time
from collections import deque

from engine.mail.replies import Answer, Break, BreakKind, Reply
from mta.outbound.prepare import Delivery
from mta.outbound.route import Route
from mta.outbound.tls_policy import WITHOUT
from mta.smtp.connection import Connection

INITIAL_WINDOW = 5.0  # Postfix initial_destination_concurrency
IDLE_S = 5.0  # how long a connection waits for more mail
CONNECTION_AGE_S = 300.0  # Postfix smtp_connection_reuse_time_limit
REST_S, LONGEST_REST_S = 15.0, 300.0
LEAST_WAITING = 16
SLOW_S = 0.05  # a transaction that lasts longer waits for the server, not for us: another connection helps


class Site:
    """Deliveries that wait for one site, its window, and whether it rests."""

    def __init__(self, limit: int) -> None:
        self.route = Route("", (), 0)  # that of the latest delivery: its hosts are shuffled anew for each
        self.policy = WITHOUT  # likewise; all that meet here demand the same of their connections
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
