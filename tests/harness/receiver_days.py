"""Days of a receiving server, simulated: messages come and are tried as the service does it, and each gets the forecast
of its moment. What is counted goes through the counter of the mta, and the figures through the rules of the worker."""

import heapq
import math
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec import Struct, structs

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.delivery.outcome import Category, Outcome, Scope, Verdict
from engine.delivery.queue import Row
from engine.delivery.retry_schedule import next_attempt_at
from engine.delivery.routes import MailHost, Route
from engine.receiving.analytics.mailbox_providers import MailboxProvider
from engine.receiving.receivers import rules
from engine.receiving.receivers.types import Cohort, ReceiverKey, ReceiverRow, ReceiverState
from engine.sending.settle import DeliveryAttempt, Result
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.sites.receiver_counts import ReceiverCounts

BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
JUDGED_S = 120.0  # the worker judges more often; fewer judgements keep the test short
KEPT_S = 26 * 3600.0
GOOGLE = ReceiverKey(MailboxProvider.GOOGLE)
ROUTE = Route("gmail.test", (MailHost("mx.google.com", ("192.0.2.1",)),), 25)
ACCOUNTS = [UUID(int=number) for number in range(1, 6)]


class Weather(Struct, frozen=True):
    """How a receiver is at a moment: messages per hour, the median seconds of a transaction, and the shares of attempts
    that it defers and refuses."""

    per_hour: float = 120.0
    median_s: float = 1.2
    deferred: float = 0.01
    refused: float = 0.0


class Told(Struct):
    """A message with the forecast of its moment; `took_s` is None until it arrives, and infinite if it never does."""

    at_s: float
    p90_s: float | None
    state: ReceiverState
    took_s: float | None = None


class ReceiverDay:
    """A simulated receiver of mail."""

    def __init__(self, weather: Callable[[float], Weather], seed: int, hours: float = 24.0) -> None:
        self._weather = weather
        self._random = random.Random(seed)
        self._ends_s = hours * 3600
        self._settings = Settings()
        self._counts = ReceiverCounts()
        self._counts.routed("gmail.com", ROUTE)
        self._cohorts: dict[datetime, Cohort] = {}
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = 0
        self.row: ReceiverRow | None = None
        self.states: list[tuple[float, ReceiverState]] = []
        self.told: list[Told] = []

    def run(self) -> "ReceiverDay":
        """Let the day pass, and two more for what waits."""
        self._plan(0.0, self._judge)
        self._plan(0.0, self._accept)
        while self._events:
            at_s, _, event = heapq.heappop(self._events)
            if at_s > self._ends_s + 2 * 86_400:
                break
            event(at_s)
        return self

    def coverage(self, since_h: float = 0.0, until_h: float = 1e9) -> tuple[float, int]:
        """Return the share of messages of some hours that came within the p90 they were told, and their number."""
        held = [
            one.took_s is not None and one.took_s <= one.p90_s
            for one in self.told
            if one.p90_s is not None and one.took_s != math.inf and since_h <= one.at_s / 3600 < until_h
        ]
        return (sum(held) / len(held) if held else math.nan), len(held)

    def _plan(self, at_s: float, event: Callable[[float], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (at_s, self._number, event))

    def _judge(self, at_s: float) -> None:
        for one, accounts in self._counts.take():
            known = self._cohorts.get(one.bucket)
            self._cohorts[one.bucket] = _sum(known, one, [f"day:{account}" for account in accounts])
        at = BEGIN + timedelta(seconds=at_s)
        recent = [one for one in self._cohorts.values() if (at - one.bucket).total_seconds() < KEPT_S]
        self.row = rules.judged(GOOGLE, recent, None, self.row, at)
        self.states.append((at_s, ReceiverState(self.row.state)))
        if at_s < self._ends_s:
            self._plan(at_s + JUDGED_S, self._judge)

    def _accept(self, at_s: float) -> None:
        if at_s >= self._ends_s:
            return
        assert self.row is not None
        told = Told(at_s, rules.quantile_s(self.row.survival, 0.9), ReceiverState(self.row.state))
        self.told.append(told)
        row = _row(at_s, self._random.choice(ACCOUNTS))
        self._counts.entered([ActiveDelivery(row, 0.0)])
        self._try(at_s, row, told)
        self._plan(at_s + self._random.expovariate(self._weather(at_s).per_hour / 3600), self._accept)

    def _try(self, at_s: float, row: Row, told: Told) -> None:
        weather, chance = self._weather(at_s), self._random.random()
        took_s = self._random.lognormvariate(math.log(weather.median_s), 0.6)
        outcome = _DELIVERED
        if chance < weather.refused:
            outcome = _REFUSED
        elif chance < weather.refused + weather.deferred:
            outcome = _DEFERRED
        self._plan(at_s + took_s, lambda at_s: self._settle(at_s, row, outcome, told))

    def _settle(self, at_s: float, row: Row, outcome: Outcome, told: Told) -> None:
        at, next_at = BEGIN + timedelta(seconds=at_s), None
        if outcome is _DEFERRED:
            next_at = next_attempt_at(
                row.attempts + 1, row.accepted_at, at, ladder_s=self._settings.retry_ladder_s,
                give_up_s=self._settings.give_up_s, jitter=self._random.random(),
            )  # fmt: skip
        self._counts.settled(
            DeliveryAttempt(
                row=row,
                started_at=at,
                ended_at=at,
                results=(Result(0, "ann@gmail.com", outcome),),
                conversation={},
                signature=None,
                next_at=next_at,
            )
        )
        if next_at is None:
            told.took_s = at_s - told.at_s if outcome is _DELIVERED else math.inf
            return
        again = structs.replace(row, attempts=row.attempts + 1)
        self._plan((next_at - BEGIN).total_seconds(), lambda at_s: self._try(at_s, again, told))


def _outcome(verdict: Verdict) -> Outcome:
    return Outcome(
        verdict, Scope.SITE, Category.POLICY, suppress=False, smtp_code=None, enhanced_code=None, diagnostic=""
    )


_DELIVERED, _DEFERRED, _REFUSED = _outcome(Verdict.DELIVERED), _outcome(Verdict.DEFERRED), _outcome(Verdict.BOUNCED)


def _row(at_s: float, account: UUID) -> Row:
    at_ms = clock.milliseconds(BEGIN + timedelta(seconds=at_s))
    return Row(
        message_id=ids.uuid7(at_ms), domain="gmail.com", shard=0, account_id=account, from_domain="a.test",
        recipients='[[0, "ann@gmail.com"]]', total=1, due_at=BEGIN, attempts=0, signature=None, waiting=None, mime=None,
        smtputf8=False,
    )  # fmt: skip


def _sum(known: Cohort | None, more: Cohort, accounts: list[str]) -> Cohort:
    """Add as the statement `add_cohorts` does."""
    if known is None:
        return structs.replace(more, accounts=accounts)
    size = max(len(known.times), len(more.times))
    padded = [times + [0] * (size - len(times)) for times in (known.times, more.times)]
    names = ("entered", "ended", "first_delivered", "first_deferred", "first_refused")
    return structs.replace(
        known,
        times=[one + other for one, other in zip(*padded, strict=True)],
        accounts=sorted({*known.accounts, *accounts})[:3],
        **{name: getattr(known, name) + getattr(more, name) for name in names},
    )
