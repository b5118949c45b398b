"""`GET /v1/analytics/providers`: how mail arrives at Gmail, Microsoft and the others."""

from api.areas.analytics.schemas import DeferredNow, ProviderFigures, ProviderRow, ProviderSummary
from api.http.operation import Call
from engine.base import clock
from engine.base.errors import existing
from engine.base.list_filters import narrowed
from engine.ledger import heads
from engine.receiving.analytics import delivery, providers, rules
from engine.receiving.analytics.mailbox_providers import NAMES
from engine.receiving.analytics.providers import DeferredDeliveries, OutcomeFigures
from engine.receiving.analytics.types import Period


async def read_providers(call: Call) -> ProviderSummary:
    """Return outcomes of today and of the days before by provider, and what is deferred now."""
    pool, account = call.services.pool, call.account_id
    head = existing(await heads.READ.first(pool, account), "account")
    period = providers.period_of(clock.now().date(), head.caps.analytics_days)
    await delivery.count_rest(pool, account)
    found = await providers.health(
        pool,
        account,
        period,
        streams=narrowed(None, call.streams),
        from_domains=narrowed(None, call.domains),
    )
    since, until = rules.bounds(Period(period.until, period.until))
    return ProviderSummary(
        from_=clock.iso(since),
        until=clock.iso(until),
        days=(period.until - period.since).days,
        data=[
            ProviderRow(
                provider=one.provider.value,
                name=NAMES[one.provider],
                today=_figures(one.today),
                before=_figures(one.before),
                deferred=_deferred(one.deferred),
            )
            for one in found
        ],
    )


def _figures(one: OutcomeFigures) -> ProviderFigures:
    return ProviderFigures(
        settled=one.settled,
        delivered=one.delivered,
        bounced=one.bounced,
        failed=one.failed,
        complained=one.complained,
        delivery_rate=one.delivery_rate,
        p50_ms=one.p50_ms,
        samples=one.samples,
    )


def _deferred(one: DeferredDeliveries | None) -> DeferredNow | None:
    if one is None:
        return None
    return DeferredNow(
        messages=one.messages,
        since=clock.iso(one.since),
        domain=one.domain,
        class_=one.category,
        smtp_code=one.smtp_code,
        enhanced_code=one.enhanced_code,
    )
