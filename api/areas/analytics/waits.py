"""`GET /v1/analytics/waits`: why deliveries waited, by provider or over time."""

from msgspec import UNSET

from api.areas.analytics.plan_window import check_days
from api.areas.analytics.schemas import WaitsQuery, WaitsReply, WaitsRow, WaitsTotal
from api.http.operation import Call
from api.http.waits import WaitCauses
from engine.base import clock
from engine.base.errors import invalid
from engine.base.list_filters import narrowed
from engine.receiving.analytics import delivery, rules, waits
from engine.receiving.analytics.mailbox_providers import NAMES, MailboxProvider
from engine.receiving.analytics.waits import MAX_HOURS_DAYS, WaitFigures, WaitGroup, WaitsWanted


async def read_waits(call: Call, query: WaitsQuery) -> WaitsReply:
    """Return the waiting times of attempts by cause."""
    pool, account = call.services.pool, call.account_id
    by = WaitGroup(query.group_by)
    if by is WaitGroup.HOUR and query.days > MAX_HOURS_DAYS:
        raise invalid("days", f"`days` is {query.days}; `groupBy=hour` allows {MAX_HOURS_DAYS} at most. Use `day`.")
    await check_days(call, query.days)
    await delivery.count_rest(pool, account)
    period = rules.period(query.days, clock.now())
    total, rows = await waits.read(
        pool,
        account,
        WaitsWanted(
            by=by,
            period=period,
            provider=query.provider,
            streams=narrowed(query.stream, call.streams),
            from_domains=narrowed(None, call.domains),
        ),
    )
    since, until = rules.bounds(period)
    return WaitsReply(
        group_by=query.group_by,
        days=query.days,
        from_=clock.iso(since),
        until=clock.iso(until),
        total=WaitsTotal(
            attempts=total.attempts,
            causes=WaitCauses(**total.ms),
            fair_share=total.fair_share,
            other_accounts_p95_ms=total.other_accounts_p95_ms,
        ),
        data=[_row(one, by) for one in rows],
    )


def _row(one: WaitFigures, by: WaitGroup) -> WaitsRow:
    is_provider = by is WaitGroup.PROVIDER
    return WaitsRow(
        provider=MailboxProvider(one.name).value if is_provider else UNSET,
        name=NAMES[MailboxProvider(one.name)] if is_provider else UNSET,
        begin=UNSET if is_provider else one.name,
        attempts=one.attempts,
        causes=WaitCauses(**one.ms),
        fair_share=one.fair_share,
        other_accounts_p95_ms=one.other_accounts_p95_ms,
    )
