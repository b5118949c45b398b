"""The deliver stage: a worker opens one connection to a site and delivers over it, one message after the other.

What a server does comes back as values; the worker decides what they mean for the delivery (`engine.delivery.outcome`),
for its connection and for the site.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import cycle

from msgspec import Struct

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery.outcome import Outcome, Scope, Verdict, classify
from engine.mail.replies import Answer, Break, BreakKind, Reply
from engine.sending.settle import DeliveryAttempt
from engine.store import exemplars, metrics
from engine.store.database_errors import DatabaseUnavailable
from engine.store.traces import TRACES
from mta.outbound.active_queue import ActiveQueue
from mta.outbound.attempts import SHARED_ATTEMPT, attempt_of, refused_by_route, without_recipients
from mta.outbound.back_off import BackOff
from mta.outbound.complete import CompleteStage
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.envelopes import EnvelopeBuilder
from mta.outbound.send_permission import SendPermission
from mta.outbound.sites.connection_attempt import FailedConnection, OpenedConnection
from mta.outbound.sites.connections import SiteConnections
from mta.outbound.sites.proven_domains import ProvenDomains
from mta.outbound.sites.remote_hosts import HostRest
from mta.outbound.sites.site import IDLE_S, STALE_S, TURN, Site, WorkerSeat, blames_site, worn_out
from mta.outbound.sites.slots import SlotClaim
from mta.outbound.sites.transactions import is_undecided, joined, not_reached
from mta.outbound.sites.windows import SiteWindows
from mta.outbound.suppression_check import SuppressionCheck
from mta.outbound.tls.report_counts import TlsSession
from mta.outbound.tls.security import TransportSecurity
from mta.smtp.client.connection import Envelope, SmtpConnection, Transaction

MAX_TRIES = 3  # connections that may break during a delivery before that counts as an attempt
POLL_S = 0.05  # until a delivery may begin
_sixteenth = cycle(range(16))


class WorkerTools(Struct, frozen=True):
    """The state that all workers of a process share, and the next stage."""

    settings: Settings
    connections: SiteConnections
    proven: ProvenDomains
    envelopes: EnvelopeBuilder
    active: ActiveQueue
    suppression: SuppressionCheck
    permission: SendPermission
    windows: SiteWindows
    back_off: BackOff
    security: TransportSecurity
    completer: CompleteStage


class DeliveryWorker:
    """Delivers the waiting messages of a site over one connection, from its opening to its end."""

    def __init__(self, site: Site, tools: WorkerTools) -> None:
        self._site = site
        self._pacer = site.pacer
        self._seat = WorkerSeat(site)
        self._settings = tools.settings
        self._connections = tools.connections
        self._proven = tools.proven
        self._envelopes = tools.envelopes
        self._active = tools.active
        self._suppression = tools.suppression
        self._permission = tools.permission
        self._windows = tools.windows
        self._back_off = tools.back_off
        self._security = tools.security
        self._completer = tools.completer
        self._begun: ActiveDelivery | None = None
        self._current: ActiveDelivery | None = None
        self._claimed: SlotClaim
        self._mx = ""
        self._shown: dict[str, object] = {}  # the security of the connection, for waybills
        self._sessions: tuple[TlsSession, ...] = ()  # counted once for each domain that uses the connection
        self._counted: set[str] = set()

    def stop(self) -> None:
        """End after the present delivery."""
        self._seat.stop()

    async def run(self) -> None:
        """Open a connection, deliver until nothing is left to do, close it."""
        claim = await self._claim()
        if claim is None:
            return
        opened: OpenedConnection | FailedConnection | None = None
        try:
            opened = await self._run(claim)
        except Exception as error:
            if self._current is None:
                raise
            self._completer.fault(self._current, error)
        finally:
            self._site.busy.pop(id(self), None)
            self._connections.free(claim, failed=isinstance(opened, FailedConnection))

    async def _claim(self) -> SlotClaim | None:
        """Wait for a slot. Return None where nothing waits any more, and where the servers rest: then the waiting mail
        shares the outcome that they rest for."""
        site, first = self._site, self._site.waiting.peek()
        if first is None:
            return None
        site.count_asking(1)
        try:
            claim = await self._connections.claim(
                first.row.account_id, site.route, site.policy, self._pacer.limits.family, site.source
            )
        finally:
            site.count_asking(-1)
        if not isinstance(claim, HostRest):
            return claim
        if not site.connected:  # else the open connections deliver what waits
            site.rest_with_host(claim.because, claim.seconds)
            self._share(claim.because, {"mx": site.mx, "tls": None, "conversation": [], "note": SHARED_ATTEMPT})
        return None

    async def _run(self, claim: SlotClaim) -> OpenedConnection | FailedConnection | None:
        if not self._site.waiting or self._seat.stopped:
            return None
        self._claimed = claim
        self._site.busy[id(self)] = clock.monotonic()
        opened = await self._open(claim)
        self._site.busy.pop(id(self))
        if isinstance(opened, FailedConnection):
            metrics.TALLY.add(metrics.CONNECTIONS, "failed")
            self._unreachable(opened)
            return opened
        connection, self._mx, self._shown, self._sessions = (
            opened.connection, opened.mx, opened.shown, opened.sessions
        )  # fmt: skip
        metrics.TALLY.add(metrics.CONNECTIONS, "opened")
        metrics.CONNECTIONS_OPEN.inc()
        self._site.connection_ready()
        try:
            await self._use(connection)
        finally:
            self._site.connection_closed()
            metrics.CONNECTIONS_OPEN.dec()
            self._give_back_begun()
            await connection.close()
        return opened

    async def _open(self, claim: SlotClaim) -> OpenedConnection | FailedConnection:
        site, began = self._site, time.monotonic()
        site.count_opening(1)
        try:
            opened = await self._connections.open(
                claim, site.route, site.policy, self._pacer.limits.family, site.source
            )
        finally:
            site.count_opening(-1)
        site.opened_within(time.monotonic() - began)
        return opened

    async def _use(self, connection: SmtpConnection) -> None:
        opened_at = time.monotonic()
        while not self._seat.stopped and not self._must_leave(connection):
            most = self._pacer.limits.messages_per_connection
            delivery = self._begun or await self._next()
            if delivery is None:
                if worn_out(connection, opened_at, most) or not await self._wait():
                    return
                continue
            self._begun, self._current = None, delivery
            if delivery.envelope is None and clock.monotonic() - delivery.loaded_at > STALE_S:
                await self._suppression.repeat(delivery)
            if not delivery.addresses:
                self._completer.settle(delivery, without_recipients(delivery))
                continue
            last = worn_out(connection, opened_at, most - 1)
            upcoming = None if last else self._upcoming
            if delivery.row.mime is None:
                await self._deliver_large(connection, delivery)
            else:
                await self._deliver(connection, delivery, upcoming)
            if worn_out(connection, opened_at, most):
                return

    async def _wait(self) -> bool:
        self._connections.idle(self._seat)
        try:
            return not self._seat.stopped and await self._site.work(IDLE_S)
        finally:
            self._connections.busy(self._seat)

    def _must_leave(self, connection: SmtpConnection) -> bool:
        """Return True if another site needs this connection's place, or the servers are paused."""
        if self._begun is not None:
            return False
        pacer = self._pacer
        if pacer.excess or pacer.paused(clock.monotonic()):
            return True
        return connection.messages_sent >= TURN and self._site.crowded

    async def _next(self) -> ActiveDelivery | None:
        """Return the next delivery once the site's rate allows it; a connection does not stay open long for that."""
        first = self._site.waiting.peek()
        if first is None:
            return None
        # Without the lease, mail that waits in the queue needs no second signature and connection later.
        if not self._permission.lease_holds or self._completer.is_behind(first):
            await asyncio.sleep(POLL_S)
            return None
        if self._pacer.limits.rates and not await self._token():
            self._seat.leave()
            return None
        delivery = self._site.waiting.take()
        if delivery is None:
            self._pacer.give_back()
        return delivery

    async def _token(self) -> bool:
        self._site.count_pacing(1)
        try:
            return await self._windows.token(self._pacer, IDLE_S)
        finally:
            self._site.count_pacing(-1)

    def _upcoming(self) -> Envelope | None:
        """Return the next envelope to pipeline behind the final dot, if one is ready to go."""
        waiting, pacer = self._site.waiting, self._pacer
        delivery = waiting.peek()
        if delivery is None or self._seat.stopped or pacer.excess or not self._permission.granted(delivery):
            return None
        if clock.monotonic() - delivery.loaded_at > STALE_S or delivery.row.mime is None:
            return None
        if self._completer.is_behind(delivery):
            return None
        if not 0 < len(delivery.addresses) <= pacer.limits.recipients or not pacer.may_begin():
            return None
        waiting.take()
        try:
            envelope = self._envelopes.envelope(delivery)
        except Exception as error:  # noqa: BLE001 - as in `run`: a fault must not break the delivery on the wire
            pacer.give_back()
            self._completer.fault(delivery, error)
            return None
        self._begun = delivery
        return envelope

    def _give_back_begun(self) -> None:
        if self._begun is not None:
            self._begun.envelope = None
            self._site.put(self._begun, first=True)
            self._begun = None

    async def _deliver_large(self, connection: SmtpConnection, delivery: ActiveDelivery) -> None:
        """Load a large body and deliver it; only a few are in memory at once. The connection may be lost meanwhile."""
        light = delivery.row
        async with self._envelopes.large:
            try:
                await self._envelopes.fetch_body(delivery)
            except DatabaseUnavailable:
                self._active.drop(delivery)
                return
            await self._deliver(connection, delivery, None)
            delivery.envelope = None
            delivery.row = light

    async def _deliver(
        self, connection: SmtpConnection, delivery: ActiveDelivery, upcoming: Callable[[], Envelope | None] | None
    ) -> None:
        reused = connection.messages_sent > 0
        if self._sessions and delivery.row.domain not in self._counted:
            self._counted.add(delivery.row.domain)
            self._security.count(delivery.row.domain, self._sessions)
        started = clock.now()
        began = self._site.busy[id(self)] = clock.monotonic()
        delivery.wait.begin(began)
        share = self._site.group.waits.begin(delivery.row.account_id, began)
        try:
            transaction = await self._send(connection, delivery, upcoming)
        finally:
            ended = clock.monotonic()
            self._site.group.waits.end(share, ended)
        self._site.busy.pop(id(self))
        lasted = ended - began
        if reused:
            metrics.TALLY.add(metrics.CONNECTIONS, "reused")
        if self._connections.pipelining.wants_again(self._site.name, transaction):
            delivery.envelope = None
            self._site.put(delivery, first=True)
            return
        if is_undecided(transaction):
            delivery.envelope = None
            delivery.tries += 1
            if not all(blames_site(answer.outcome) for answer in transaction.answers):
                self._active.drop(delivery)
                return
            if reused and delivery.tries < MAX_TRIES:
                self._site.put(delivery, first=True)  # a reused connection had died: nothing was tried yet
                return
        self._site.lasted(lasted)
        delivery.taken = None  # its warm-up quota is used
        attempt = self._attempt(delivery, transaction, started)
        self._learn_of_host(delivery, transaction)
        self._learn(attempt, began)
        self._completer.settle(delivery, attempt)

    def _learn_of_host(self, delivery: ActiveDelivery, transaction: Transaction) -> None:
        """Learn about the host: one that answers is proven, and so is the domain; one that times out is not."""
        answers = [answer.outcome for answer in transaction.answers]
        if any(isinstance(outcome, Reply) for outcome in answers):
            self._connections.answered(self._claimed)
            self._proven.answered(delivery.row.domain)
        elif any(outcome.kind is BreakKind.TIMEOUT for outcome in answers if isinstance(outcome, Break)):
            self._connections.stalled(self._claimed)
            self._proven.failed(delivery.row.domain)

    async def _send(
        self, connection: SmtpConnection, delivery: ActiveDelivery, upcoming: Callable[[], Envelope | None] | None
    ) -> Transaction:
        """Make one transaction, or several in a row where the site limits the recipients of each."""
        may_send = functools.partial(self._permission.granted, delivery)
        addresses, most = delivery.addresses, self._pacer.limits.recipients
        if delivery.envelope is not None or len(addresses) <= most:
            envelope = delivery.envelope or self._envelopes.envelope(delivery)
            return await connection.send(envelope, upcoming, may_send)
        done: list[Transaction] = []
        for start in range(0, len(addresses), most):
            part = addresses[start : start + most]
            envelope = self._envelopes.part(delivery, part)
            done.append(await connection.send(envelope, None, may_send) if connection.usable else not_reached(part))
        return joined(done)

    def _attempt(self, delivery: ActiveDelivery, transaction: Transaction, started: datetime) -> DeliveryAttempt:
        alone = len(transaction.answers) == 1
        outcomes = {
            address: classify(answer, alone=alone)
            for address, answer in zip(transaction.recipients, transaction.answers, strict=True)
        }
        if next(_sixteenth) == 0:
            traceparent = delivery.row.traceparent
            for step in transaction.steps:
                metrics.STAGE_SECONDS.labels(step.phase.value).observe(step.seconds)
                if traceparent is not None and TRACES.sampling(traceparent) is not None:
                    exemplars.STAGES.offer(step.phase.value, step.seconds, traceparent)
        conversation: dict[str, object] = {
            "mx": self._mx,
            "attempt": delivery.row.attempts + 1,
            **self._shown,
            "conversation": transaction.transcript,
        }
        return attempt_of(delivery, outcomes, conversation, started, self._settings, self._pacer.limits.ladder_s)

    def _learn(self, attempt: DeliveryAttempt, began: float) -> None:
        """Learn about the site from an attempt: one push-back among its outcomes counts for all, and once."""
        pacer = self._pacer
        outcomes = [result.outcome for result in attempt.results if result.outcome is not None]
        self._site.reached()
        self._learn_of_source(outcomes)
        for outcome in outcomes:
            deferred = outcome.verdict is Verdict.DEFERRED and outcome.scope in (Scope.SITE, Scope.SESSION)
            if deferred or (
                outcome.verdict is not Verdict.DELIVERED and pacer.limits.asks_to_slow_down(outcome.diagnostic)
            ):
                if pacer.pushed_back(clock.monotonic(), began, outcome.diagnostic):
                    self._back_off.pause(self._site.group, pacer.paused_until - clock.monotonic())
                return
        if any(outcome.verdict is Verdict.DELIVERED for outcome in outcomes):
            pacer.succeeded()
        else:
            pacer.answered()

    def _learn_of_source(self, outcomes: Iterable[Outcome]) -> None:
        """Record the effect of an attempt on its source address, if one is configured."""
        standing = self._site.standing
        if standing is not None and standing.learn(outcomes):
            self._back_off.leave_source(self._site.group)

    def _unreachable(self, tried: FailedConnection) -> None:
        """Handle a failed opening: where other connections stand, the site wants fewer; else all waiting mail shares
        the outcome, and the site rests."""
        site = self._site
        for domain in {delivery.row.domain for delivery in site.waiting} if tried.sessions else ():
            self._security.count(domain, tried.sessions)
        self._learn_of_source((classify(tried.answer),))
        if not blames_site(tried.answer.outcome):
            for delivery in site.waiting.clear():
                self._active.drop(delivery)
            return
        said = classify(tried.answer).diagnostic
        if site.connected:
            self._pacer.out_of_reach(said)
            return
        self._pacer.unreachable(said, site.rest(tried.answer))
        self._share(tried.answer, {"mx": tried.mx, **tried.shown, "conversation": list(tried.steps)})

    def _share(self, answer: Answer, conversation: dict[str, object]) -> None:
        """Settle all waiting mail with one answer; the conversation is stored with the first message only."""
        ladder_s = self._pacer.limits.ladder_s
        for delivery in self._site.waiting.clear():
            self._proven.failed(delivery.row.domain)
            self._completer.settle(delivery, refused_by_route(delivery, answer, conversation, self._settings, ladder_s))
            conversation = conversation | {"conversation": [], "note": SHARED_ATTEMPT}
