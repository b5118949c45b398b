"""The worker of a site: one connection, one delivery after the other, each turned into an Attempt.

What a server does comes back as values; the worker decides what they mean for the delivery (engine.delivery
.outcome), for its connection and for the site.
"""

import functools
import random
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from itertools import cycle

import msgspec

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery.ladder import next_attempt_at
from engine.delivery.outcome import Category, Outcome, Scope, Verdict, classify
from engine.flows.settle import Attempt, Result
from engine.mail.replies import Answer, Break, BreakKind, Phase
from engine.store import metrics
from engine.store.postgres import AWAY
from mta.outbound.prepare import Delivery, Preparer
from mta.outbound.site import IDLE_S, Site, blames_site, worn_out
from mta.outbound.sockets import Sockets, Tried
from mta.outbound.tls_report import TlsSession
from mta.smtp.connection import Connection, Envelope, Transaction

SHARED_ATTEMPT = "the attempt of another message to the same servers, just before, spoke for this one"
MOST_FAULTS = 3  # attempts that may end in a fault of ours before the message fails
MOST_TRIES = 3  # connections that may die under a delivery before that counts as an attempt
STALE_S = 5.0  # a delivery that waited longer is looked up in the suppressions again
_sixteenth = cycle(range(16))
NO_KEY = Outcome(
    Verdict.DEFERRED,
    Scope.MESSAGE,
    Category.AUTH,
    suppress=False,
    smtp_code=None,
    enhanced_code=None,
    diagnostic="the sending domain has no signing key any more: it was removed after the message was accepted",
)


class Report:
    """What a worker tells the loop: finished attempts, and deliveries it could not make."""

    def __init__(
        self,
        *,
        settle: Callable[[Delivery, Attempt], None],
        hand_back: Callable[[Delivery], None],
        fault: Callable[[Delivery, Exception], None],
        recheck: Callable[[Delivery], Awaitable[None]],
        may_send: Callable[[Delivery], bool],
        tls: Callable[[str, tuple[TlsSession, ...]], None],
    ) -> None:
        self.settle = settle
        self.fault = fault
        self.hand_back = hand_back
        self.recheck = recheck
        self.may_send = may_send
        self.tls = tls


class Worker:
    """One connection's worth of work on a site."""

    def __init__(self, site: Site, sockets: Sockets, preparer: Preparer, report: Report, settings: Settings) -> None:
        self._site = site
        self._sockets = sockets
        self._preparer = preparer
        self._report = report
        self._settings = settings
        self._begun: Delivery | None = None
        self._current: Delivery | None = None
        self._stop = False
        self._mx = ""
        self._shown: dict[str, object] = {}  # of the connection's security
        self._sessions: tuple[TlsSession, ...] = ()  # to be counted, once for each domain that uses the connection
        self._counted: set[str] = set()

    def stop(self) -> None:
        """End after the present delivery."""
        self._stop = True
        for sleeper in self._site.sleepers:
            if not sleeper.done():
                sleeper.set_result(False)

    async def run(self) -> None:
        """Open a connection, deliver until there is nothing left to do, close it."""
        await self._sockets.slot()
        try:
            await self._run()
        except Exception as error:
            if self._current is None:
                raise
            self._report.fault(self._current, error)
        finally:
            self._site.busy.pop(id(self), None)
            self._sockets.free()

    async def _run(self) -> None:
        if not self._site.waiting:
            return
        self._site.busy[id(self)] = time.monotonic()
        opened = await self._sockets.open(self._site.route, self._site.policy)
        self._site.busy.pop(id(self))
        if isinstance(opened, Tried):
            self._unreachable(opened)
            return
        connection, self._mx, self._shown, self._sessions = (
            opened.connection, opened.mx, opened.shown, opened.sessions
        )  # fmt: skip
        metrics.TALLY.add(metrics.CONNECTIONS, "opened")
        metrics.CONNECTIONS_OPEN.inc()
        self._site.connected += 1
        try:
            await self._use(connection)
        finally:
            self._site.connected -= 1
            metrics.CONNECTIONS_OPEN.dec()
            self._give_back_begun()
            await connection.close()

    async def _use(self, connection: Connection) -> None:
        opened_at = time.monotonic()
        while not self._stop:
            delivery = self._begun or self._next()
            if delivery is None:
                if worn_out(connection, opened_at, self._settings.messages_per_connection) or not await self._wait():
                    return
                continue
            self._begun, self._current = None, delivery
            if delivery.envelope is None and time.monotonic() - delivery.loaded_at > STALE_S:
                await self._report.recheck(delivery)
            if not delivery.addresses:
                self._report.settle(delivery, without_recipients(delivery))
                continue
            last = worn_out(connection, opened_at, self._settings.messages_per_connection - 1)
            upcoming = None if last else self._upcoming
            if delivery.row.mime is None:
                await self._deliver_large(connection, delivery)
            else:
                await self._deliver(connection, delivery, upcoming)
            if worn_out(connection, opened_at, self._settings.messages_per_connection):
                return

    async def _wait(self) -> bool:
        self._sockets.idle(id(self), self.stop)
        try:
            return await self._site.work(IDLE_S)
        finally:
            self._sockets.busy(id(self))

    def _next(self) -> Delivery | None:
        return self._site.waiting.popleft() if self._site.waiting else None

    def _upcoming(self) -> Envelope | None:
        """The next envelope to pipeline behind the final dot, when one is ready to go."""
        waiting = self._site.waiting
        if self._stop or not waiting or not self._report.may_send(waiting[0]):
            return None
        delivery = waiting[0]
        if time.monotonic() - delivery.loaded_at > STALE_S or not delivery.addresses or delivery.row.mime is None:
            return None
        try:
            envelope = self._preparer.envelope(delivery)
        except Exception as error:  # noqa: BLE001 - as in `run`: the delivery on the wire must not suffer
            self._report.fault(waiting.popleft(), error)
            return None
        self._begun = waiting.popleft()
        return envelope

    def _give_back_begun(self) -> None:
        if self._begun is not None:
            self._begun.envelope = None
            self._site.put(self._begun, first=True)
            self._begun = None

    async def _deliver_large(self, connection: Connection, delivery: Delivery) -> None:
        """One of the few large bodies at a time; the connection may have gone while this one waited for its turn."""
        light = delivery.row
        async with self._preparer.large:
            try:
                await self._preparer.fetch_body(delivery)
            except AWAY:
                self._report.hand_back(delivery)
                return
            await self._deliver(connection, delivery, None)
            delivery.envelope = None
            delivery.row = light

    async def _deliver(
        self, connection: Connection, delivery: Delivery, upcoming: Callable[[], Envelope | None] | None
    ) -> None:
        reused = connection.messages_sent > 0
        envelope = delivery.envelope or self._preparer.envelope(delivery)
        if self._sessions and delivery.row.domain not in self._counted:
            self._counted.add(delivery.row.domain)
            self._report.tls(delivery.row.domain, self._sessions)
        started = clock.now()
        self._site.busy[id(self)] = time.monotonic()
        transaction = await connection.send(envelope, upcoming, functools.partial(self._report.may_send, delivery))
        self._site.busy.pop(id(self))
        if reused:
            metrics.TALLY.add(metrics.CONNECTIONS, "reused")
        if _undecided(transaction):
            delivery.envelope = None
            delivery.tries += 1
            if not all(blames_site(answer.outcome) for answer in transaction.answers):
                self._report.hand_back(delivery)
                return
            if reused and delivery.tries < MOST_TRIES:
                self._site.put(delivery, first=True)  # a kept connection had died: nothing was tried yet
                return
        self._site.done += 1
        attempt = self._attempt(delivery, transaction, started)
        self._learn(attempt)
        self._report.settle(delivery, attempt)

    def _attempt(self, delivery: Delivery, transaction: Transaction, started: datetime) -> Attempt:
        alone = len(transaction.answers) == 1
        outcomes = {
            address: classify(answer, alone=alone)
            for address, answer in zip(transaction.recipients, transaction.answers, strict=True)
        }
        if next(_sixteenth) == 0:
            for step in transaction.steps:
                metrics.STAGE_SECONDS.labels(step.phase.value).observe(step.seconds)
        conversation: dict[str, object] = {
            "mx": self._mx,
            "attempt": delivery.row.attempts + 1,
            **self._shown,
            "conversation": transaction.transcript,
        }
        return attempt_of(delivery, outcomes, conversation, started, self._settings)

    def _learn(self, attempt: Attempt) -> None:
        """What the outcome says about the site."""
        for result in attempt.results:
            if result.outcome is None:
                continue
            if result.outcome.verdict is Verdict.DELIVERED:
                self._site.succeeded()
            elif result.outcome.verdict is Verdict.DEFERRED and result.outcome.scope in (Scope.SITE, Scope.SESSION):
                self._site.pushed_back()

    def _unreachable(self, tried: Tried) -> None:
        """No connection came about. Where others stand, the site only wants fewer; else everything waiting for it
        shares the outcome, and the site rests."""
        site = self._site
        for domain in {delivery.row.domain for delivery in site.waiting} if tried.sessions else ():
            self._report.tls(domain, tried.sessions)
        if not blames_site(tried.answer.outcome):
            while site.waiting:
                self._report.hand_back(site.waiting.popleft())
            return
        if site.connected:
            site.window = max(1.0, float(site.connected))
            return
        site.rest(tried.answer)
        conversation: dict[str, object] = {"mx": tried.mx, "tls": None, "conversation": list(tried.steps)}
        while site.waiting:
            delivery = site.waiting.popleft()
            self._report.settle(delivery, refused_by_route(delivery, tried.answer, conversation, self._settings))
            conversation = {"mx": tried.mx, "tls": None, "conversation": [], "note": SHARED_ATTEMPT}


def attempt_of(
    delivery: Delivery,
    outcomes: dict[str, Outcome],
    conversation: dict[str, object] | None,
    started: datetime,
    settings: Settings,
) -> Attempt:
    """An attempt with its outcomes by address, suppressed recipients among its results."""
    now = clock.now()
    results = []
    for place, address in delivery.pairs:
        reason = delivery.suppressed.get(address)
        results.append(Result(place, address, None if reason else outcomes[address], reason))
    deferred = any(one.outcome is not None and one.outcome.verdict is Verdict.DEFERRED for one in results)
    next_at = None
    if deferred:
        next_at = next_attempt_at(
            delivery.row.attempts + 1,
            delivery.row.accepted_at,
            now,
            ladder_s=settings.retry_ladder_s,
            give_up_s=settings.give_up_s,
            jitter=random.random(),
            deliver_by=delivery.row.deliver_by,
        )
    return Attempt(
        row=delivery.row,
        started_at=started,
        ended_at=now,
        results=tuple(results),
        conversation=conversation,
        signature=delivery.signature if deferred else None,
        next_at=next_at,
    )


def refused_by_route(
    delivery: Delivery, answer: Answer, conversation: dict[str, object] | None, settings: Settings
) -> Attempt:
    """One answer for all recipients: there was no server to ask, or none that could be reached."""
    outcome = classify(answer)
    return attempt_of(delivery, dict.fromkeys(delivery.addresses, outcome), conversation, clock.now(), settings)


def without_key(delivery: Delivery, settings: Settings) -> Attempt:
    """The domain was removed while the message waited: it fails, since it can't be signed."""
    attempt = attempt_of(delivery, dict.fromkeys(delivery.addresses, NO_KEY), None, clock.now(), settings)
    return msgspec.structs.replace(attempt, next_at=None)


def without_recipients(delivery: Delivery) -> Attempt:
    """Everybody was suppressed meanwhile."""
    now = clock.now()
    results = tuple(Result(place, address, None, delivery.suppressed[address]) for place, address in delivery.pairs)
    return Attempt(
        row=delivery.row, started_at=now, ended_at=now, results=results, conversation=None, signature=None, next_at=None
    )


def at_fault(delivery: Delivery, error: Exception, settings: Settings) -> Attempt:
    """Something of ours broke on this message: tried again on the ladder, and failed after a few times."""
    outcome = Outcome(
        Verdict.DEFERRED,
        Scope.MESSAGE,
        Category.PROTOCOL,
        suppress=False,
        smtp_code=None,
        enhanced_code=None,
        diagnostic=f"an internal fault ({type(error).__name__}); the operator's log has the details",
    )
    attempt = attempt_of(delivery, dict.fromkeys(delivery.addresses, outcome), None, clock.now(), settings)
    if delivery.row.attempts + 1 < MOST_FAULTS:
        return attempt
    return msgspec.structs.replace(attempt, next_at=None)


def _undecided(transaction: Transaction) -> bool:
    """True when the session broke before the server decided about anything: no content was sent."""
    return all(
        isinstance(answer.outcome, Break)
        and answer.phase is not Phase.BODY
        and answer.outcome.kind in (BreakKind.CLOSED, BreakKind.LOCAL)
        for answer in transaction.answers
    )
