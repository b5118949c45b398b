"""Tracks sites that refuse a source address itself: it rests there, longer each time, before the next attempt.

A server that blocks an address, or says that its reputation is bad, says so of that address: other addresses of the
pool carry the mail meanwhile, and one message tries it again later. What one process learns is written down, read by
the others within seconds, and outlives them all. Where there is no other address it is used all the same, at the pace
that the servers allow.
"""

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import asyncpg
import structlog

from engine.base import clock
from engine.delivery import sources_store
from engine.delivery.outcome import Category, Outcome, Scope, Verdict
from engine.delivery.sources_store import Rest
from mta.outbound.source_ips.addresses import SourceAddress

REST_S, MAX_REST_S = 900.0, 6 * 3600.0  # automatic blocklist entries end after hours; mistaken ones sooner
PROBE_S = 300.0  # how long the one message may take that probes an address
SETTLED_S = 60.0  # mail accepted so long after a refusal was not begun before it
NOT_REACHED_S = 600.0  # for which an address family goes behind the other
UNFIT_S = 60.0  # for which an address that this host has lost is not tried
OVERLAP_S = 30.0  # of two reads of what others wrote: clocks differ, and commits come late
REMEMBER = timedelta(days=2)  # a refusal after so long counts as the first
MAX_SAID = 200  # characters of an answer that are kept
_MAX_RESTS = 50_000
_ABOUT_US = frozenset({Category.REPUTATION, Category.POLICY})
_NOT_ABOUT_US = frozenset({Scope.RECIPIENT, Scope.MESSAGE})  # a server that judges these accepts the address

_log = structlog.get_logger("mta")


def blocks(outcome: Outcome) -> bool:
    """Return True for an answer that refuses all mail of the sending address."""
    return (
        outcome.verdict is not Verdict.DELIVERED
        and outcome.scope in (Scope.SITE, Scope.SESSION)
        and outcome.category in _ABOUT_US
    )


class SourceHealth:
    """The addresses that one process spares, by site, and the refusals to publish to other processes."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._rests: dict[tuple[str, str], Rest] = {}
        self._probes: dict[tuple[str, str], float] = {}  # address and site -> until when its one message is awaited
        self._unfit: dict[str, float] = {}
        self._not_reached: dict[tuple[str, str], float] = {}  # site and family -> until when that counts
        self._news: dict[tuple[str, str], Rest] = {}
        self._seen: datetime | None = None

    def rest_of(self, ip: str, site: str) -> Rest | None:
        """Return why and until when the address is spared there, or None."""
        rest = self._rests.get((ip, site))
        return rest if rest is not None and rest.until > clock.now() else None

    def spared(self, ip: str, site: str) -> bool:
        """Return True while the address is not to be used there, also while its one message is under way."""
        now = clock.monotonic()
        if self._unfit.get(ip, 0.0) > now or self._probes.get((ip, site), 0.0) > now:
            return True
        return self.rest_of(ip, site) is not None

    def room(self, ip: str, site: str, wanted: int) -> int:
        """Return how many of these messages may go: all, none, or the one that shows whether the address is accepted
        again."""
        if self.spared(ip, site):
            return 0
        if (ip, site) not in self._rests:
            return wanted
        self._probes[ip, site] = clock.monotonic() + PROBE_S
        return 1

    def refused(self, ip: str, site: str, said: str) -> bool:
        """Record that the servers refuse the address; return True if that is news."""
        known = self._rests.get((ip, site))
        now = clock.now()
        if known is not None and known.until > now:
            return False
        rests = 1 if known is None or known.until < now - REMEMBER else known.rests + 1
        seconds = min(MAX_REST_S, REST_S * 2.0 ** (min(rests, 20) - 1)) * random.uniform(0.9, 1.1)
        if len(self._rests) >= _MAX_RESTS:
            self._rests.pop(next(iter(self._rests)))
        self._put(Rest(ip, site, now + timedelta(seconds=seconds), rests, said[:MAX_SAID], now))
        _log.warning("source refused", source=ip, site=site, said=said[:MAX_SAID], spared_s=round(seconds))
        return True

    def well(self, ip: str, site: str) -> None:
        """Record that the servers accept the address."""
        known = self._rests.get((ip, site))
        if known is None or (clock.now() - known.changed_at).total_seconds() < SETTLED_S:
            return
        now = clock.now()
        self._put(Rest(ip, site, now, 0, known.said, now))

    def lost(self, ip: str, why: str) -> None:
        """Record that no connection can be made from the address at all: for reasons of this host, so for all sites."""
        self._unfit[ip] = clock.monotonic() + UNFIT_S
        _log.error("no connection from a source address", source=ip, why=why)

    def not_reached(self, site: str, family: str) -> None:
        """Record that no connection could be opened over a family of addresses."""
        if len(self._not_reached) >= _MAX_RESTS:
            self._not_reached.clear()
        self._not_reached[site, family] = clock.monotonic() + NOT_REACHED_S

    def out_of_reach(self, site: str) -> set[str]:
        """Return the families over which the servers were not reached lately: the other goes first."""
        now = clock.monotonic()
        return {family for family in "46" if self._not_reached.get((site, family), 0.0) > now}

    @property
    def has_news(self) -> bool:
        """Return True if something was learnt that other processes do not know."""
        return bool(self._news)

    async def exchange(self) -> None:
        """Write what is new here and read what is new elsewhere. Raises DatabaseUnavailable."""
        if self._news:
            told, self._news = self._news, {}
            try:
                await sources_store.write_rests(self._pool, list(told.values()))
            except BaseException:
                self._news = told | self._news
                raise
        now = clock.now()
        since = datetime.min.replace(tzinfo=UTC) if self._seen is None else self._seen
        for rest in await sources_store.rests_since(self._pool, since):
            known = self._rests.get((rest.ip, rest.site))
            if known is None or known.changed_at < rest.changed_at:
                self._keep(rest)
        self._seen = now - timedelta(seconds=OVERLAP_S)

    def _put(self, rest: Rest) -> None:
        self._keep(rest)
        self._news[rest.ip, rest.site] = rest

    def _keep(self, rest: Rest) -> None:
        self._probes.pop((rest.ip, rest.site), None)
        if rest.rests:
            self._rests[rest.ip, rest.site] = rest
        else:
            self._rests.pop((rest.ip, rest.site), None)


class SourceStanding:
    """The standing of one source address with one set of servers."""

    def __init__(self, source: SourceAddress, site: str, health: SourceHealth) -> None:
        self.source = source
        self.site = site
        self._health = health

    @property
    def rest(self) -> Rest | None:
        """Return why the address is spared now, or None."""
        return self._health.rest_of(self.source.ip, self.site)

    def not_reached(self) -> None:
        """Record that no connection could be opened."""
        self._health.not_reached(self.site, self.source.family)

    def learn(self, outcomes: Iterable[Outcome]) -> bool:
        """Learn from an attempt over the address; return True if the servers now begin to refuse it."""
        begins = False
        for outcome in outcomes:
            if outcome.category is Category.LOCAL:
                self._health.lost(self.source.ip, outcome.diagnostic)
            elif outcome.scope in _NOT_ABOUT_US:
                self._health.well(self.source.ip, self.site)
            elif blocks(outcome) and self._health.refused(self.source.ip, self.site, outcome.diagnostic):
                begins = True
        return begins
