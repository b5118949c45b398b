"""A site under one TLS policy: the deliveries that wait for it, and the workers that deliver them.

A worker is a task with one connection; it takes deliveries one after the other and ends after a pause. The pacer, which
all TLS policies towards the same servers share, limits how many there are. A site that cannot be reached at all rests,
longer each time, and is then probed by one connection.
"""

import asyncio
import random
import time
from datetime import timedelta

import msgspec

from engine.base import clock
from engine.delivery.outcome import classify
from engine.delivery.routes import Route
from engine.mail.replies import Answer, Break, BreakKind, Reply
from engine.store.deadlines import within
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.sites.fair_queue import FairQueue
from mta.outbound.sites.pacer import Pacer, PacerNote
from mta.outbound.source_ips.addresses import SourceAddress
from mta.outbound.source_ips.health import SourceStanding
from mta.outbound.tls.policy import WITHOUT, TlsPolicy
from mta.outbound.wait_clock import FirstOpening, WaitClock
from mta.smtp.client.connection import SmtpConnection

IDLE_S = 5.0  # how long a connection waits for more mail
CONNECTION_AGE_S = 300.0  # Postfix smtp_connection_reuse_time_limit
REST_S, MAX_REST_S = 15.0, 300.0
MIN_WAITING = 16
SLOW_S = 0.05  # a longer transaction waits for the server: another connection helps
TURNS = 5  # turns of the event loop that a transaction with a quick server takes
QUICK_S = 0.005  # one connection fills the pipe to a server that answers within this
BACKLOG_S = 1.0  # mail that would wait longer at the present pace wants more connections
WORTH = 16  # so many deliveries are left to each connection being opened
PATIENCE_S = 1.0  # unless the opening lasts longer: another server may be quicker
STALE_S = 5.0  # suppressions are checked again for a delivery that waited longer
AHEAD_S = 1.5  # before its turn: a check at its turn would keep it from being pipelined
TURN = 20  # messages of a connection while others wait for its place
_MAX_HOSTS = 20  # of a group, shown to the operator


class SiteGroup:
    """The sites that keep to one pacer, and which of them want a connection or could spare one."""

    def __init__(self, pacer: Pacer, standing: SourceStanding | None = None) -> None:
        self.pacer = pacer
        self.standing = standing  # of the source address for all of them, where one is configured
        self.sites: dict[Site, None] = {}
        self.hungry: dict[Site, None] = {}  # sites with mail and without a worker, in the order of asking
        self.idle: dict[Site, None] = {}  # sites whose workers wait for mail
        self.waits = WaitClock(clock.monotonic())

    def add(self, site: "Site") -> None:
        """Add a site that keeps to this pacer."""
        self.sites[site] = None

    def make_room(self) -> None:
        """Close one idle connection, because another site needs its place."""
        while self.idle:
            if next(reversed(self.idle)).wake(work=False):
                return

    def take_waiting(self) -> list[ActiveDelivery]:
        """Return everything that waits for these sites; nothing waits afterwards."""
        return [one for site in list(self.sites) for one in site.waiting.clear()]

    def forget(self, site: "Site") -> None:
        """Remove a site that has nothing left."""
        for known in (self.sites, self.hungry, self.idle):
            known.pop(site, None)


class Site:
    """The deliveries that wait for one site, its workers, and whether it rests."""

    def __init__(self, name: str, group: SiteGroup, tls_key: str = "") -> None:
        self.name = name  # the key of the MX set
        self.group = group
        self.pacer = group.pacer
        self.standing = group.standing
        self.place = (name + tls_key, group.pacer.limits.key)  # among the sites of the process
        self.route = Route("", (), 0)  # of the latest delivery: its hosts are shuffled anew for each
        self.policy = WITHOUT  # of the latest delivery; all policies here demand the same
        self.waiting = FairQueue()
        self.workers = 0  # connections open or being opened
        self.connected = 0
        self.asking = 0  # workers that wait for a slot
        self.opening = 0
        self.first = FirstOpening()
        self.greeted = False  # a server of the site was ready for MAIL
        self.opens_s = 0.0  # how long opening the latest connection took
        self.busy: dict[int, float] = {}  # worker -> when its present transaction, or its opening, began
        self.sleepers: list[asyncio.Future[bool]] = []  # idle workers
        self.done = 0  # transactions since the rate was last computed
        self.lasts_s = 0.0  # duration of a transaction, a moving mean
        self.rate = 1.0  # transactions per second, a moving mean
        self.rest_until = 0.0
        self.rest_because: Answer | None = None
        self._rests = 0

    @property
    def resting(self) -> bool:
        """Return True while the site rests."""
        return clock.monotonic() < self.rest_until

    @property
    def mx(self) -> str:
        """Return the host that is tried first, for waybills."""
        return self.route.hosts[0].name if self.route.hosts else self.route.site

    @property
    def source(self) -> SourceAddress | None:
        """Return the address that connections are bound to; None: the system chooses."""
        return None if self.standing is None else self.standing.source

    @property
    def crowded(self) -> bool:
        """Return True while another site of the group waits for a place."""
        return any(one.waiting and not one.workers for one in self.group.hungry)

    def lead(self, route: Route, policy: TlsPolicy) -> None:
        """Take the route and the policy of the latest delivery for the next connections."""
        self.route, self.policy = route, policy

    # -- workers ---------------------------------------------------------------------------------

    def hire(self) -> None:
        """Count one more worker."""
        self.workers += 1
        self.pacer.connection_wanted()
        self._time_changes(workers=1)

    def dismiss(self) -> None:
        """Count one worker less."""
        self.workers -= 1
        self.pacer.connection_given_up()
        self._time_changes(workers=-1)

    def count_asking(self, change: int) -> None:
        """Count the workers that wait for a slot."""
        self.asking += change
        self._time_changes(opening=change)

    def count_opening(self, change: int) -> None:
        """Count the connections that are being opened."""
        self.opening += change
        self._time_changes(opening=change)

    def count_pacing(self, change: int) -> None:
        """Count the workers that wait for the right to begin a message."""
        self._time_changes(pacing=change)

    def opened_within(self, seconds: float) -> None:
        """Note how long the latest opening took."""
        self.opens_s = seconds

    def connection_ready(self) -> None:
        """Count a connection whose server is ready for MAIL."""
        self.greeted = True
        self.connected += 1
        self.pacer.connection_ready()
        self._time_changes()

    def connection_closed(self) -> None:
        """Count a connection less that was ready."""
        self.connected -= 1
        self.pacer.connection_closed()
        self._time_changes()

    def _time_changes(self, *, workers: int = 0, opening: int = 0, pacing: int = 0) -> None:
        """Tell the clock of waiting times of a change."""
        now = clock.monotonic()
        self.group.waits.change(now, workers=workers, opening=opening, pacing=pacing)
        self.first.goes_on(now, opening=self.workers > 0 and not self.connected)

    # -- rest ------------------------------------------------------------------------------------

    def rest(self, because: Answer) -> float:
        """Let the site rest, longer each time and never in step with other processes; return the seconds."""
        seconds = min(MAX_REST_S, REST_S * 2.0**self._rests) * random.uniform(0.8, 1.2)
        self._rests += 1
        self.rest_until = clock.monotonic() + seconds
        self.rest_because = because
        self.greeted = False
        if self.standing is not None:
            self.standing.not_reached()
        return seconds

    def rest_with_host(self, because: Answer, seconds: float) -> None:
        """Let the site rest while all its addresses rest, because of what another name of theirs has shown."""
        self.rest_until = clock.monotonic() + seconds
        self.rest_because = because
        self.pacer.unreachable(classify(because).diagnostic, seconds)

    def reached(self) -> None:
        """Record that the site takes mail again."""
        self._rests = 0
        self.rest_because = None

    def put(self, delivery: ActiveDelivery, *, first: bool = False) -> None:
        """Add a delivery and wake an idle worker."""
        now = clock.monotonic()
        delivery.wait.line_up(self.group.waits.mark(delivery.row.account_id, self.first, now), now)
        if first:
            self.waiting.put_first(delivery)
        else:
            self.waiting.put(delivery)
        self.wake(work=True)

    def wake(self, *, work: bool) -> bool:
        """Wake one idle worker: to go on, or without `work` to close its connection. Return False if there was none."""
        while self.sleepers:
            sleeper = self.sleepers.pop()
            if not sleeper.done():
                sleeper.set_result(work)
                return True
        self.group.idle.pop(self, None)
        return False

    def close_idle(self) -> None:
        """Let the idle workers close their connections."""
        for sleeper in self.sleepers:
            if not sleeper.done():
                sleeper.set_result(False)

    def lasted(self, seconds: float) -> None:
        """Record the duration of a transaction."""
        self.done += 1
        self.lasts_s += 0.2 * (seconds - self.lasts_s)

    def compute_rate(self, elapsed_s: float) -> None:
        """Bring the rate up to date with the transactions of the last seconds."""
        self.rate += 0.3 * (self.done / elapsed_s - self.rate)
        self.done = 0

    def stale_soon(self, now: float) -> list[ActiveDelivery]:
        """Return the deliveries that get their turn soon and whose suppressions were checked too long ago for that."""
        if not self.connected:
            return []
        checked_before = now - STALE_S + AHEAD_S
        heads = self.waiting.heads(MIN_WAITING + int(2 * AHEAD_S * self.rate))  # the rate may double meanwhile
        return [one for one in heads if one.loaded_at < checked_before]

    def surplus(self) -> int:
        """Return how many deliveries wait beyond what keeps the connections busy."""
        return max(0, len(self.waiting) - max(MIN_WAITING, 2 * int(self.pacer.window)))

    def wishes(self, now: float, turn_s: float = 0.0) -> int:
        """Return how many more connections would help, ignoring limits.

        The first is wanted at once, and no other until a server has greeted. Then the number doubles whenever all of
        them wait for the server, or the waiting mail would take long although the server answers in time. Mail that
        connections being opened will take needs none. Paused servers are probed by one. `turn_s` is how long a turn of
        our own event loop takes.
        """
        if not self.waiting or self.sleepers or now < self.rest_until:
            return 0
        if self.workers == 0:
            return 1
        coming = self.workers - self.connected
        left = len(self.waiting) - coming
        if left <= 0 or not self.greeted or self._rests or self.pacer.probing:
            return 0
        # A transaction that ends before another connection is open needs none; a hanging one does, even an opening.
        patience_s = PATIENCE_S if left < WORTH * coming else min(PATIENCE_S, self.opens_s)
        slow_s = max(SLOW_S, TURNS * turn_s, patience_s)
        slow = len(self.busy) == self.workers and all(now - began > slow_s for began in self.busy.values())
        theirs = self.lasts_s > max(QUICK_S, TURNS * turn_s)  # the server is what we wait for
        behind = theirs and len(self.waiting) * self.lasts_s > BACKLOG_S * self.workers
        return min(self.workers, left) if slow or behind else 0

    async def work(self, sleep_s: float) -> bool:
        """Wait for a delivery; return False if none came, or the connection's place is needed."""
        if self.waiting:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.sleepers.append(future)
        self.group.idle[self] = None
        try:
            with within(sleep_s):
                return await future
        except TimeoutError:
            return False
        finally:
            if future in self.sleepers:
                self.sleepers.remove(future)
            if not self.sleepers:
                self.group.idle.pop(self, None)


class WorkerSeat:
    """The place of one worker at its site, and whether the worker is to end."""

    __slots__ = ("_site", "stopped")

    def __init__(self, site: Site) -> None:
        self._site = site
        self.stopped = False

    def stop(self) -> None:
        """Let the worker end after its present delivery."""
        self.stopped = True
        self._site.close_idle()

    def leave(self) -> None:
        """Let this worker end, and no other one with it."""
        self.stopped = True


def worn_out(connection: SmtpConnection, opened_at: float, most_messages: int) -> bool:
    """Return True if a connection has reached its age or its number of messages."""
    return (
        not connection.usable
        or connection.messages_sent >= most_messages
        or time.monotonic() - opened_at > CONNECTION_AGE_S
    )


def blames_site(outcome: Reply | Break) -> bool:
    """Return False for breaks that this process caused itself."""
    return not (isinstance(outcome, Break) and outcome.kind is BreakKind.LOCAL)


def state_of(group: SiteGroup) -> str:
    """Return the state of the servers behind a pacer, as JSON for the operator."""
    pacer, now = group.pacer, clock.monotonic()
    resting = max((site.rest_until for site in group.sites), default=0.0)
    probe = pacer.next_probe
    rest = None if group.standing is None else group.standing.rest
    if resting > now:
        probe = clock.now() + timedelta(seconds=resting - now)
    state = {
        "window": round(pacer.window, 1),
        "share": pacer.share,
        "open": pacer.open,
        "opening": sum(site.opening for site in group.sites),
        "asking": sum(site.asking for site in group.sites),
        "waiting": sum(len(site.waiting) for site in group.sites),
        "phase": _phase(pacer, now, resting=resting > now),
        "nextProbe": clock.iso_or_none(probe),
        "movedBy": None if pacer.moved is None else _noted(pacer.moved),
        "recent": [_noted(one) for one in reversed(pacer.recent)],
        "source": None if group.standing is None else group.standing.source.ip,
        "refused": None if rest is None else {"said": rest.said, "until": clock.iso(rest.until)},
    }
    return msgspec.json.encode(state).decode()


def _noted(noted: PacerNote) -> dict[str, str]:
    return {"at": clock.iso(noted.at), "said": noted.said, "effect": noted.effect}


def _phase(pacer: Pacer, now: float, *, resting: bool) -> str:
    if pacer.paused(now):
        return "paused"
    return "not reached" if resting else "probing" if pacer.probing else "open"


def hosts_of(group: SiteGroup) -> str:
    """Return site and hosts by name, joined by commas: what the operator may look for."""
    names = dict.fromkeys(name for site in group.sites for name in (site.name, *(one.name for one in site.route.hosts)))
    return ",".join(list(names)[:_MAX_HOSTS])
