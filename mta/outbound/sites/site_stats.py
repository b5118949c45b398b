"""Counts the answers of sites by account, and shows conversations to an operator who watches a domain.

Counts go out with each deferral ("is it me or them?"). Kept in memory and bounded; lost with the process, since it is
about the last minutes only. The counts by receiver, for forecasts, are written every few seconds.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import orjson
import structlog
from msgspec import Struct

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.delivery.holds import a_labels
from engine.delivery.outcome import Outcome, Verdict
from engine.delivery.routes import Route
from engine.receiving.receivers import store as receivers
from engine.sending.settle import DeliveryAttempt
from engine.store.caches import Cache
from engine.store.database_errors import DatabaseUnavailable
from engine.store.own_schema import CHANNEL_SCHEMA
from engine.store.queries import Queries
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.sites.receiver_counts import ReceiverCounts
from mta.smtp.client.trace import SmtpTrace, masked

MINUTES = 10  # for which answers are kept
MIN_OTHERS = 2  # accounts: the counts of a single other account would disclose its mail
MAX_SITES = 2_000
MAX_ENTRIES = 50_000  # accounts by site and minute, some 10 MB; beyond it, answers count without account
MAX_DOMAINS = 50_000
MAX_TOLD = 100  # conversations kept for operators who watch; further ones are only counted
EACH_TELLING = 25
MAX_OCTETS = 7_000  # of a notification; Postgres allows 8,000
FLUSH_S = 15.0  # between two writes of the counts by receiver

_log = structlog.get_logger("mta")
_SQL = Queries.beside(__file__, "site_stats.sql", channel_schema=CHANNEL_SCHEMA)
_TELL = _SQL.command("tell_traces")
_INDEX = {Verdict.DELIVERED: 0, Verdict.DEFERRED: 1, Verdict.BOUNCED: 2}


class TracedDomain(Struct, frozen=True):
    """A domain that an operator watches."""

    domain: str
    expires_at: datetime


_TRACED = _SQL.rows("traced_domains", TracedDomain)

_Minute = dict[UUID | None, list[int]]  # account (None: those beyond the bound) -> delivered, deferred, bounced


class AnswerCounts:
    """The answers of sites in the last minutes, by account: enough to compare each account with all others."""

    def __init__(self, now: Callable[[], float] = clock.monotonic) -> None:
        self._now = now
        self._sites: OrderedDict[str, deque[tuple[int, _Minute]]] = OrderedDict()
        self._entries = 0

    def count(self, site: str, account: UUID, verdict: Verdict) -> None:
        """Add a mail server's answer about one recipient to the statistics of its site."""
        minute = int(self._now() // 60)
        minutes = self._minutes(site, minute)
        if not minutes or minutes[-1][0] != minute:
            minutes.append((minute, {}))
        counts = minutes[-1][1]
        key = account if account in counts or self._entries < MAX_ENTRIES else None
        if key not in counts:
            counts[key] = [0, 0, 0]
            self._entries += 1
        counts[key][_INDEX[verdict]] += 1

    def others(self, site: str, account: UUID) -> dict[str, int] | None:
        """Return the answers that all other accounts got; None if too few others sent."""
        if site not in self._sites:
            return None
        totals, seen = [0, 0, 0], set()
        for _, counts in self._minutes(site, int(self._now() // 60)):
            for key, numbers in counts.items():
                if key != account:
                    seen.add(key)
                    totals = [total + number for total, number in zip(totals, numbers, strict=True)]
        if len(seen) < MIN_OTHERS:
            return None
        return {"minutes": MINUTES, "delivered": totals[0], "deferred": totals[1], "bounced": totals[2]}

    def _minutes(self, site: str, minute: int) -> deque[tuple[int, _Minute]]:
        minutes = self._sites.get(site)
        if minutes is None:
            if len(self._sites) >= MAX_SITES:
                _, gone = self._sites.popitem(last=False)
                self._entries -= sum(len(counts) for _, counts in gone)
            minutes = self._sites[site] = deque()
        else:
            self._sites.move_to_end(site)
        while minutes and minutes[0][0] <= minute - MINUTES:
            self._entries -= len(minutes.popleft()[1])
        return minutes


class SiteStats:
    """The counts and conversations of one process: `routed`, `entered` and `saw` as mail goes, `tell` and `flush_due`
    several times per second."""

    def __init__(self, settings: Settings, pool: asyncpg.Pool) -> None:
        self._settings = settings
        self._pool = pool
        self._receivers = ReceiverCounts()
        self._flush_at: float | None = None  # None: the sites with figures are not read yet
        self.answers = AnswerCounts()
        self.cache: Cache[str, dict[str, datetime]] = Cache("traces", self._load)
        self.watch = SmtpTrace()  # for the connections
        self._site_of: OrderedDict[str, str] = OrderedDict()
        self._told: deque[str] = deque()
        self._left_out = 0

    def routed(self, domain: str, route: Route) -> None:
        """Note the route of a domain's mail."""
        if self._site_of.get(domain) != route.site:
            if len(self._site_of) >= MAX_DOMAINS:
                self._site_of.popitem(last=False)
            self._site_of[domain] = route.site
        if not route.built_in:
            self._receivers.routed(domain, route)
        if self.watch.domains:
            self.watch.add_hosts(domain, tuple(host.name for host in route.hosts))

    def entered(self, deliveries: Iterable[ActiveDelivery]) -> None:
        """Count deliveries that are routed and will be tried."""
        self._receivers.entered(deliveries)

    def saw(self, attempt: DeliveryAttempt) -> DeliveryAttempt:
        """Count an attempt and keep it for operators who watch; return it with the counts of other accounts if it
        failed."""
        self._receivers.settled(attempt)
        if self.watch.domains:
            self._keep(attempt)
        site = self._site_of.get(attempt.row.domain)
        talk = attempt.conversation
        # No server was asked, another message's attempt counted for this one, or it was the simulator.
        if site is None or talk is None or "note" in talk or attempt.simulated:
            return attempt
        account, failed = attempt.row.account_id, False
        for result in attempt.results:
            if result.outcome is not None:
                self.answers.count(site, account, result.outcome.verdict)
                failed = failed or result.outcome.verdict is not Verdict.DELIVERED
        others = self.answers.others(site, account) if failed else None
        return attempt if others is None else msgspec.structs.replace(attempt, others=others)

    async def tell(self) -> None:
        """Read which domains are watched, and notify of replies since the last call. Raises DatabaseUnavailable."""
        traced = await self.cache.get("traces")
        if not traced and not self.watch.domains:
            return
        lines, left_out = self.watch.drain()
        self.watch.set_domains(traced)
        texts = packed(lines)
        texts += [self._told.popleft() for _ in range(min(EACH_TELLING, len(self._told)))]
        left_out += self._left_out
        self._left_out = 0
        if left_out:
            texts.append(orjson.dumps({"leftOut": left_out}).decode())
        if texts:
            await _TELL.records(self._pool, texts)

    async def flush_due(self) -> None:
        """Write the counts by receiver every `FLUSH_S`."""
        if self._flush_at is None or time.monotonic() >= self._flush_at:
            await self.flush()

    async def flush(self) -> None:
        """Write the counts by receiver; while Postgres is away they wait in memory."""
        taken = self._receivers.take()
        try:
            if self._flush_at is None:
                known = await receivers.LIST.fetch(self._pool)
                self._receivers.busy.add(one.site for one in known if one.site and one.has_figures)
            if taken:
                await receivers.add_cohorts(self._pool, self._settings.pepper, taken)
        except DatabaseUnavailable as error:
            self._receivers.put_back(taken)
            _log.warning("counts of receivers not written yet", error=repr(error))
        self._flush_at = time.monotonic() + FLUSH_S

    def _keep(self, attempt: DeliveryAttempt) -> None:
        if a_labels(attempt.row.domain) not in self.watch.domains:
            return
        if len(self._told) >= MAX_TOLD:
            self._left_out += 1
            return
        self._told.append(shown(attempt))

    async def _load(self, _: str) -> dict[str, datetime]:
        return {one.domain: one.expires_at for one in await _TRACED.fetch(self._pool)}


def shown(attempt: DeliveryAttempt) -> str:
    """Return an attempt as JSON for operators who watch: the conversation with addresses masked, and the outcomes."""
    talk = attempt.conversation or {}
    said: dict[str, Any] = {
        "at": clock.iso(attempt.started_at),
        "messageId": ids.format_id(ids.Kind.MESSAGE, attempt.row.message_id),
        "domain": attempt.row.domain,
        "mx": talk.get("mx"),
        "tls": talk.get("tls"),
        "note": talk.get("note"),
        "outcomes": [_ended(result.outcome) for result in attempt.results[:10]],
        "conversation": talk.get("conversation", []),
    }
    text = masked(orjson.dumps(said).decode())
    if len(text.encode()) > MAX_OCTETS:
        text = masked(orjson.dumps(said | {"conversation": [], "note": "too long to show"}).decode())
    return text if len(text.encode()) <= MAX_OCTETS else orjson.dumps({"messageId": said["messageId"]}).decode()


def packed(lines: list[dict[str, Any]]) -> list[str]:
    """Return lines as JSON texts, each with as many in a row as a notification takes."""
    texts: list[str] = []
    parts: list[bytes] = []
    for part in map(orjson.dumps, lines):
        if parts and sum(map(len, parts)) + len(parts) + len(part) > MAX_OCTETS:
            texts.append(_joined(parts))
            parts = []
        parts.append(part)
    return [*texts, _joined(parts)] if parts else texts


def _joined(parts: list[bytes]) -> str:
    return (b'{"lines":[' + b",".join(parts) + b"]}").decode()


def _ended(outcome: Outcome | None) -> str:
    if outcome is None:
        return "suppressed"
    return f"{outcome.verdict.value} ({outcome.category.value}): {outcome.diagnostic[:200]}"
