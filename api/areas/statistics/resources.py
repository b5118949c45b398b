"""`GET /v1/stats/messages` and `GET /v1/usage`."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from msgspec import structs

from api.areas.statistics.schemas import (
    DayFigures,
    DayUsage,
    Figures,
    MessageStats,
    StatsQuery,
    Usage,
    UsageQuery,
)
from api.http.operation import Area, Call, LimitedKeys, Operation
from engine.base import clock
from engine.base.errors import invalid
from engine.base.list_filters import narrowed
from engine.mail.address import BadAddress, domain_name
from engine.people.account import allowance
from engine.sending.statistics import rules, store
from engine.sending.statistics.types import Counts, UsedOn


async def read_message_stats(call: Call, query: StatsQuery) -> MessageStats:
    """Return the number of messages by local day or hour, and status."""
    wanted = rules.period(
        rules.zone_of(query.tz),
        clock.now(),
        query.bucket,
        days=query.days,
        since=None if query.from_ is None else rules.quarter_hour("from", query.from_),
        until=None if query.until is None else rules.quarter_hour("until", query.until),
    )
    domain = None if query.domain is None else _domain(query.domain)
    if query.tag is not None and "\0" in query.tag:
        raise invalid("tag", "`tag` contains NUL (U+0000). Remove it.")
    counts = await store.by_day(
        call.services.pool,
        call.account_id,
        wanted,
        domains=narrowed(domain, call.domains),
        streams=narrowed(query.stream, call.streams),
        tag=query.tag,
    )
    totals = Counts()
    for one in counts:
        totals = totals.plus(one)
    return MessageStats(
        tz=query.tz,
        domain=domain,
        stream=query.stream,
        tag=query.tag,
        bucket=query.bucket,
        days=len({day.date for day in wanted.days}),
        from_=clock.iso(wanted.days[0].starts_at),
        until=clock.iso(wanted.ends_at),
        data=[
            DayFigures(date=day.date.isoformat(), starts_at=clock.iso(day.starts_at), **_figures(one))
            for day, one in zip(wanted.days, counts, strict=True)
        ],
        totals=Figures(**_figures(totals)),
    )


async def read_usage(call: Call, query: UsageQuery) -> Usage:
    """Return the usage of one month by day."""
    at = clock.now()
    month = rules.month_of(query.month, at)
    present = month == clock.first_of_month(at.date())
    # Both reads use one snapshot, so that the sum of the days equals the count of the allowance.
    async with (
        call.services.pool.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        used = await store.used(connection, call.account_id, rules.days_of(month, at))
        left = await allowance.read(connection, call.account_id, at)
    return Usage(
        month=f"{month:%Y-%m}",
        from_=_midnight(month),
        until=_midnight(clock.first_of_month(month + timedelta(days=32))),
        **{name: sum(getattr(day, name) for day in used) for name in UsedOn.__struct_fields__[1:]},
        limit=left.monthly_limit if present else None,
        remaining=left.remaining_this_month if present else None,
        data=[_day_usage(day) for day in used],
    )


def _day_usage(used: UsedOn) -> DayUsage:
    return DayUsage(
        date=used.day.isoformat(),
        accepted=used.accepted,
        delivered=used.delivered,
        bounced=used.bounced,
        complained=used.complained,
        failed=used.failed,
    )


def _figures(counts: Counts) -> dict[str, Any]:
    return {
        **structs.asdict(counts),
        "total": counts.total,
        "settled": counts.settled,
        # A complained message was delivered before.
        "delivery_rate": rules.rate(counts.delivered + counts.complained, counts),
        "bounce_rate": rules.rate(counts.bounced, counts),
        "complaint_rate": rules.rate(counts.complained, counts),
    }


def _domain(text: str) -> str:
    try:
        return domain_name(text)
    except BadAddress as error:
        raise invalid("domain", f"`domain` is not a domain name: {error}") from None


def _midnight(day: date) -> str:
    return clock.iso(datetime.combine(day, time(), UTC))


_KEYS = Area("Messages", reads=("messages:read",), limited_keys=LimitedKeys.OWN)
_KEYS_ACCOUNT = Area("Account", reads=("account:read",), limited_keys=LimitedKeys.WHOLE_ACCOUNT)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/stats/messages",
        read_message_stats,
        "Count messages by day or hour, and status",
        _KEYS,
        lagging=True,
    ),
    Operation("GET", "/v1/usage", read_usage, "Read the usage of a month, by day", _KEYS_ACCOUNT, lagging=True),
)
