"""Counts how receivers treat mail, by the five minutes in which it was accepted, for forecasts of its arrival.

Kept in memory for some seconds and then added to the table of cohorts. What a process has not written when it dies is
lost: a forecast is statistics. Broadcasts are left out, because they give way to other mail and wait by intention; so
is mail to the simulator. Of accounts, only digests leave the memory.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from uuid import UUID

from msgspec import Struct, field

from engine.base import clock, ids
from engine.delivery.outcome import Category, Outcome, Scope, Verdict
from engine.delivery.queue import BROADCAST_PRIORITY, Row
from engine.delivery.routes import Route
from engine.receiving.analytics.mailbox_providers import MailboxProvider, provider_of
from engine.receiving.receivers.time_classes import class_of
from engine.receiving.receivers.types import BUCKET, MAX_ACCOUNTS, Cohort
from engine.sending.settle import DeliveryAttempt
from mta.outbound.delivery import ActiveDelivery

MAX_DOMAINS = 50_000
MAX_COHORTS = 5_000  # while Postgres is away; further ones are not counted
MAX_UNTRIED = 50_000  # messages known to be counted that have had no attempt
MAX_SITES = 100  # of `other` with figures of their own, in one process
BUSY = 20  # messages in one to two hours from which on a site has figures of its own
MAX_COUNTED_SITES = 20_000
_HOUR_S = 3600.0
_BUCKET_MS = int(BUCKET.total_seconds() * 1000)
_REFUSED = frozenset({Scope.SITE, Scope.SESSION})  # scopes of a bounce that concern all mail
_UNASKED = frozenset({Category.LOCAL, Category.DNS})  # no mail server answered: it says nothing about the receiver


class CohortCounts(Struct):
    """The addition to a cohort that is not written yet."""

    entered: int = 0
    ended: int = 0
    first_delivered: int = 0
    first_deferred: int = 0
    first_refused: int = 0
    times: list[int] = field(default_factory=list)
    accounts: set[UUID] = field(default_factory=set)

    def enter(self, recipients: int) -> None:
        """Count recipients whose delivery begins."""
        self.entered += recipients

    def note(self, account: UUID) -> None:
        """Keep an account whose mail is counted, unless there are enough."""
        if len(self.accounts) < MAX_ACCOUNTS:
            self.accounts.add(account)

    def settle(self, outcome: Outcome | None, waited_s: float, *, first: bool, again: bool) -> None:
        """Count the outcome of one recipient; None: it was suppressed. `again`: a deferred one is tried again."""
        if outcome is None:
            self.ended += 1
            return
        if outcome.verdict is Verdict.DELIVERED:
            self.arrive(class_of(waited_s), 1)
            self.first_delivered += first
            return
        is_deferred = outcome.verdict is Verdict.DEFERRED
        if not (is_deferred and again):
            self.ended += 1
        if not first or outcome.category in _UNASKED:
            return
        if is_deferred:
            self.first_deferred += 1
        elif outcome.scope in _REFUSED:
            self.first_refused += 1

    def arrive(self, place: int, recipients: int) -> None:
        """Count recipients who got the message in a class of time."""
        if place >= len(self.times):
            self.times += [0] * (place + 1 - len(self.times))
        self.times[place] += recipients

    def add(self, more: Cohort, accounts: Iterable[UUID]) -> None:
        """Add counts that were taken before."""
        self.entered += more.entered
        self.ended += more.ended
        self.first_delivered += more.first_delivered
        self.first_deferred += more.first_deferred
        self.first_refused += more.first_refused
        for place, recipients in enumerate(more.times):
            self.arrive(place, recipients)
        self.accounts.update(accounts)


_Key = tuple[int, str, str]  # the number of the bucket since 1970, provider, site; hashing an enum costs 1 µs


class _Receiver(Struct, frozen=True):
    """The receiver of a domain's mail: provider and site, as plain texts."""

    provider: str
    site: str
    is_other: bool


class BusySites:
    """The sites that have figures of their own: those with much mail. Others would need a row for each message."""

    def __init__(self) -> None:
        self._chosen: OrderedDict[str, None] = OrderedDict()  # the longest unused first
        self._counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())  # this hour, the hour before
        self._turn_at = 0.0

    def add(self, sites: Iterable[str]) -> None:
        """Choose sites that had figures before this process began."""
        for site in sites:
            if len(self._chosen) < MAX_SITES:
                self._chosen[site] = None

    def note(self, site: str, messages: int, now: float) -> None:
        """Count messages to a site; choose it once they are many."""
        if now >= self._turn_at:
            self._counts, self._turn_at = (Counter(), self._counts[0]), now + _HOUR_S
        present, last = self._counts
        if site in present or len(present) < MAX_COUNTED_SITES:
            present[site] += messages
        if site in self._chosen:
            self._chosen.move_to_end(site)
        elif present[site] + last[site] >= BUSY:
            if len(self._chosen) >= MAX_SITES:
                self._chosen.popitem(last=False)
            self._chosen[site] = None

    def __contains__(self, site: str) -> bool:
        return site in self._chosen


class ReceiverCounts:
    """The counts of one process since they were last taken."""

    def __init__(self) -> None:
        self.busy = BusySites()
        self._receivers: OrderedDict[str, _Receiver] = OrderedDict()  # by domain
        self._cohorts: dict[_Key, CohortCounts] = {}
        self._untried: OrderedDict[tuple[UUID, str], None] = OrderedDict()

    def routed(self, domain: str, route: Route) -> None:
        """Note who receives a domain's mail."""
        known = self._receivers.get(domain)
        if known is None or known.site != route.site:
            if len(self._receivers) >= MAX_DOMAINS:
                self._receivers.popitem(last=False)
            provider = provider_of(route.hosts[0].name if route.hosts else None, domain)
            self._receivers[domain] = _Receiver(provider.value, route.site, provider is MailboxProvider.OTHER)

    def entered(self, deliveries: Iterable[ActiveDelivery]) -> None:
        """Count deliveries that will be tried, each when it comes for the first time."""
        for one in deliveries:
            row = one.row
            receiver = self._receivers.get(row.domain)
            if receiver is None or row.attempts or row.priority >= BROADCAST_PRIORITY or one.key in self._untried:
                continue
            if len(self._untried) >= MAX_UNTRIED:
                self._untried.popitem(last=False)
            self._untried[one.key] = None
            if receiver.is_other:
                self.busy.note(receiver.site, 1, clock.monotonic())
            for counts in self._counts(receiver, _accepted_ms(row)):
                counts.enter(len(one.pairs))
                counts.note(row.account_id)

    def settled(self, attempt: DeliveryAttempt) -> None:
        """Count the outcomes of an attempt, whatever ended it."""
        row = attempt.row
        self._untried.pop(row.key, None)
        receiver = self._receivers.get(row.domain)
        if receiver is None or attempt.simulated or row.priority >= BROADCAST_PRIORITY:
            return
        accepted_ms = _accepted_ms(row)
        waited_s = (clock.milliseconds(attempt.ended_at) - accepted_ms) / 1000
        for counts in self._counts(receiver, accepted_ms):
            counts.note(row.account_id)  # though it entered: a process that was killed may have lost that
            for result in attempt.results:
                counts.settle(result.outcome, waited_s, first=not row.attempts, again=attempt.next_at is not None)

    def take(self) -> list[tuple[Cohort, frozenset[UUID]]]:
        """Return what has been counted, with accounts, and begin anew."""
        taken, self._cohorts = self._cohorts, {}
        return [(_cohort(key, counts), frozenset(counts.accounts)) for key, counts in sorted(taken.items())]

    def put_back(self, taken: Iterable[tuple[Cohort, frozenset[UUID]]]) -> None:
        """Add counts again that could not be written."""
        for cohort, accounts in taken:
            number = clock.milliseconds(cohort.bucket) // _BUCKET_MS
            counts = self._of((number, cohort.provider, cohort.site))
            if counts is not None:
                counts.add(cohort, accounts)

    def _counts(self, receiver: _Receiver, accepted_ms: int) -> Iterator[CohortCounts]:
        """Yield the cohorts of a message: that of the provider, and that of a busy site."""
        number = accepted_ms // _BUCKET_MS
        if (counts := self._of((number, receiver.provider, ""))) is not None:
            yield counts
        if receiver.is_other and receiver.site in self.busy:
            counts = self._of((number, receiver.provider, receiver.site))
            if counts is not None:
                yield counts

    def _of(self, key: _Key) -> CohortCounts | None:
        counts = self._cohorts.get(key)
        if counts is None and len(self._cohorts) < MAX_COHORTS:
            counts = self._cohorts[key] = CohortCounts()
        return counts


def _accepted_ms(row: Row) -> int:
    return ids.milliseconds_of(row.message_id) if row.released_at is None else clock.milliseconds(row.released_at)


def _cohort(key: _Key, counts: CohortCounts) -> Cohort:
    number, provider, site = key
    return Cohort(
        bucket=clock.at_milliseconds(number * _BUCKET_MS),
        provider=provider,
        site=site,
        entered=counts.entered,
        ended=counts.ended,
        first_delivered=counts.first_delivered,
        first_deferred=counts.first_deferred,
        first_refused=counts.first_refused,
        times=counts.times,
        accounts=[],
    )
