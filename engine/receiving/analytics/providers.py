"""Read how mail arrives at each provider of mailboxes: outcomes of today and of the days before, and what is deferred.

The outcomes are counted with those of domains (`delivery.count_rest` brings them up to date).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from uuid import UUID

import orjson
from msgspec import Struct

from engine.base import clock, ids
from engine.receiving.analytics import histogram
from engine.receiving.analytics.delivery import first_event_id
from engine.receiving.analytics.histogram import merged_times
from engine.receiving.analytics.mailbox_providers import MailboxProvider, provider_of
from engine.receiving.analytics.types import Period
from engine.store.queries import Queries, Source

DAYS_BEFORE = 7  # that today is compared with, unless the plan's window is shorter
MAX_DOMAINS = 20  # whose deferrals are read; the rest is counted as of other providers


class ProviderSums(Struct, frozen=True):
    """Outcomes at one provider, of the last day of a period or of the days before it."""

    provider: str
    is_last: bool
    delivered: int
    bounced: int
    failed: int
    complained: int
    times: bytes


class _DeferredDomain(Struct, frozen=True):
    domain: str
    messages: int
    oldest: UUID
    total: int


class _LastDeferral(Struct, frozen=True):
    domain: str
    since: datetime
    payload: str


class OutcomeFigures(Struct, frozen=True, kw_only=True):
    """Outcomes of deliveries, their rate, and the median time from `accepted` to `delivered`."""

    settled: int = 0
    delivered: int = 0
    bounced: int = 0
    failed: int = 0
    complained: int = 0
    delivery_rate: float | None = None
    p50_ms: int | None = None
    samples: int = 0


class DeferredDeliveries(Struct, frozen=True, kw_only=True):
    """Deliveries that wait after a deferred attempt, since the first, with the newest refusal at `domain`."""

    messages: int
    since: datetime
    domain: str | None = None
    category: str | None = None
    smtp_code: int | None = None
    enhanced_code: str | None = None


class ProviderHealth(Struct, frozen=True):
    """How mail arrives at one provider."""

    provider: MailboxProvider
    today: OutcomeFigures
    before: OutcomeFigures
    deferred: DeferredDeliveries | None


_SQL = Queries.beside(__file__, "providers.sql")
_SUMS = _SQL.rows("provider_sums", ProviderSums)
_DEFERRED = _SQL.rows("deferred_domains", _DeferredDomain)
_DEFERRALS = _SQL.rows("last_deferrals", _LastDeferral)


async def health(
    source: Source, account: UUID, period: Period, *, streams: list[str] | None, from_domains: list[str] | None
) -> list[ProviderHealth]:
    """Return the providers that mail went to in the period, or is deferred at; today is the last day of the period."""
    sums = await _SUMS.fetch(source, account, period.since, period.until, streams, from_domains)
    merged = await merged_times([one.times for one in sums])
    figures = {(one.provider, one.is_last): _figures(one, times) for one, times in zip(sums, merged, strict=True)}
    deferred = await _deferred(source, account, streams, from_domains)
    nothing = OutcomeFigures()
    return [
        ProviderHealth(
            provider,
            figures.get((provider, True), nothing),
            figures.get((provider, False), nothing),
            deferred.get(provider),
        )
        for provider in MailboxProvider
        if provider in deferred or any((provider, is_last) in figures for is_last in (True, False))
    ]


def period_of(today: date, days: int) -> Period:
    """Return the period that ends today: with DAYS_BEFORE days before it, or as many as a window of `days` has."""
    return Period(date.fromordinal(today.toordinal() - min(DAYS_BEFORE, days - 1)), today)


def _figures(sums: ProviderSums, samples: Mapping[int, int]) -> OutcomeFigures:
    settled = sums.delivered + sums.complained + sums.bounced + sums.failed
    return OutcomeFigures(
        settled=settled,
        delivered=sums.delivered,
        bounced=sums.bounced,
        failed=sums.failed,
        complained=sums.complained,
        delivery_rate=round((sums.delivered + sums.complained) / settled, 6) if settled else None,
        p50_ms=histogram.percentile(samples, 0.5),
        samples=sum(samples.values()),
    )


async def _deferred(
    source: Source, account: UUID, streams: list[str] | None, from_domains: list[str] | None
) -> dict[MailboxProvider, DeferredDeliveries]:
    """Return what is deferred by provider."""
    domains = await _DEFERRED.fetch(source, account, streams, from_domains, MAX_DOMAINS)
    if not domains:
        return {}
    oldest = [one.oldest for one in domains]
    since = first_event_id(sorted(oldest))
    found = await _DEFERRALS.fetch(source, account, oldest, [one.domain for one in domains], since)
    rest = domains[0].total - sum(one.messages for one in domains)
    return _by_provider(domains, {one.domain: one for one in found}, rest)


def _by_provider(
    domains: Sequence[_DeferredDomain], deferrals: Mapping[str, _LastDeferral], rest: int
) -> dict[MailboxProvider, DeferredDeliveries]:
    """Return the sums by provider with the refusal of its first domain; `rest` counts messages to further domains."""
    messages: Counter[MailboxProvider] = Counter()
    since: dict[MailboxProvider, datetime] = {}
    first: dict[MailboxProvider, tuple[str, dict[str, object]]] = {}
    for one in domains:
        told = deferrals.get(one.domain)
        detail = orjson.loads(told.payload)["detail"] if told else {}
        provider = provider_of(detail.get("mx"), one.domain)
        at = told.since if told else clock.at_milliseconds(ids.milliseconds_of(one.oldest))
        messages[provider] += one.messages
        since[provider] = min(at, since.get(provider, at))
        first.setdefault(provider, (one.domain, detail))
    if rest:
        other = MailboxProvider.OTHER
        messages[other] += rest
        since.setdefault(other, min(since.values()))
        first.setdefault(other, ("", {}))
    return {provider: _told(count, since[provider], *first[provider]) for provider, count in messages.items()}


def _told(messages: int, since: datetime, domain: str, detail: dict[str, object]) -> DeferredDeliveries:
    code = detail.get("smtp_code")
    words = {name: detail.get(name) for name in ("class", "enhanced_code")}
    return DeferredDeliveries(
        messages=messages,
        since=since,
        domain=domain or None,
        category=str(words["class"]) if words["class"] else None,
        smtp_code=code if isinstance(code, int) else None,
        enhanced_code=str(words["enhanced_code"]) if words["enhanced_code"] else None,
    )
