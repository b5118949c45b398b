"""`GET /v1/analytics/delivery`, `/providers`, `/waits`, `/dmarc` and `/tls`."""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any
from uuid import UUID

from msgspec import UNSET

from api.areas.analytics.plan_window import check_days
from api.areas.analytics.providers import read_providers
from api.areas.analytics.schemas import (
    DeliveryFigures,
    DeliveryQuery,
    DeliveryReply,
    DmarcOthers,
    DmarcSourceRow,
    DmarcSummary,
    ReportsQuery,
    TlsFailureRow,
    TlsPolicyRow,
    TlsSummary,
)
from api.areas.analytics.waits import read_waits
from api.http.operation import Area, Call, LimitedKeys, Operation
from engine.base import clock
from engine.base.errors import ErrorType, invalid, not_found
from engine.base.list_filters import narrowed
from engine.mail.address import BadAddress, domain_name
from engine.receiving.analytics import delivery, delivery_page, dmarc, rules, tls
from engine.receiving.analytics.types import (
    DeliveryFiguresRow,
    DeliveryWanted,
    DmarcSource,
    DmarcTotals,
    GroupBy,
    Period,
    TlsSums,
)


async def read_delivery(call: Call, query: DeliveryQuery) -> DeliveryReply:
    """Return rates and times of delivery by recipients' domain or by tag."""
    pool, account = call.services.pool, call.account_id
    await check_days(call, query.days)
    pepper = call.settings.pepper
    wanted, offset = delivery_page.start(pepper, account, query.days, query.cursor, clock.now())
    if offset == 0:
        await delivery.count_rest(pool, account)
    found, more = await delivery.rows(
        pool,
        account,
        DeliveryWanted(
            by=GroupBy(query.group_by),
            period=wanted,
            streams=narrowed(query.stream, call.streams),
            tag=query.tag,
            from_domains=narrowed(None, call.domains),
        ),
        limit=query.limit,
        offset=offset,
    )
    since, until = bounds(wanted)
    return DeliveryReply(
        group_by=query.group_by,
        days=query.days,
        from_=since,
        until=until,
        data=[_figures(one, GroupBy(query.group_by)) for one in found],
        next_cursor=delivery_page.cursor(pepper, account, wanted.until, offset + len(found)) if more else None,
    )


def _figures(one: DeliveryFiguresRow, by: GroupBy) -> DeliveryFigures:
    return DeliveryFigures(
        domain=one.sums.name if by is GroupBy.DOMAIN else UNSET,
        tag=one.sums.name if by is GroupBy.TAG else UNSET,
        deliveries=one.sums.deliveries,
        settled=one.settled,
        delivered=one.sums.delivered,
        bounced=one.sums.bounced,
        failed=one.sums.failed,
        complained=one.sums.complained,
        delivery_rate=one.delivery_rate,
        p50_ms=one.p50_ms,
        p95_ms=one.p95_ms,
        samples=one.samples,
    )


async def read_dmarc(call: Call, query: ReportsQuery) -> DmarcSummary:
    """Return the sums of the account's DMARC aggregate reports by source."""
    wanted = rules.period(query.days, clock.now())
    name, domain = await _domain(call, query.domain)
    names = narrowed(None, call.domains)
    pool = call.services.pool
    sources = await dmarc.sources(pool, call.account_id, wanted, domain=domain, names=names)
    totals = await dmarc.totals(pool, call.account_id, wanted, domain=domain, names=names)
    ours = {ip_address(one.ip) for one in call.settings.source_ips}
    own = [one.source_ip for one in sources if ip_address(one.source_ip) in ours]
    streams = await dmarc.failed_streams(pool, call.account_id, wanted, ips=own, domain=domain, names=names)
    since, until = bounds(wanted)
    return DmarcSummary(
        days=query.days,
        from_=since,
        until=until,
        domain=name,
        messages=totals.messages,
        aligned=totals.aligned,
        alignment_rate=_share(totals.aligned, totals.messages),
        reports=totals.reports,
        data=[
            DmarcSourceRow(
                source_ip=one.source_ip,
                header_from=one.header_from,
                ours=one.source_ip in own,
                failed_streams=streams.get(one.source_ip, []),
                **_counts(one),
            )
            for one in sources
        ],
        others=_others(sources, totals),
    )


async def read_tls(call: Call, query: ReportsQuery) -> TlsSummary:
    """Return the sums of the TLS reports about the account's domains."""
    wanted = rules.period(query.days, clock.now())
    name, domain = await _domain(call, query.domain)
    names = narrowed(None, call.domains)
    pool = call.services.pool
    sums = await tls.sums(pool, call.account_id, wanted, domain=domain, names=names)
    totals = await tls.totals(pool, call.account_id, wanted, domain=domain, names=names)
    since, until = bounds(wanted)
    return TlsSummary(
        days=query.days,
        from_=since,
        until=until,
        domain=name,
        sessions=totals.sessions,
        failures=totals.failures,
        success_rate=_share(totals.sessions - totals.failures, totals.sessions),
        reports=totals.reports,
        last_report_at=clock.iso_or_none(totals.last_report_at),
        data=_policies(sums),
    )


def bounds(wanted: Period) -> tuple[str, str]:
    """Return the beginning and the end of a period, as other statistics show them."""
    since, until = rules.bounds(wanted)
    return clock.iso(since), clock.iso(until)


async def _domain(call: Call, text: str | None) -> tuple[str | None, UUID | None]:
    """Return name and id of the domain asked for; raises 404 unless it is the account's and the key may see it."""
    if text is None:
        return None, None
    try:
        name = domain_name(text)
    except BadAddress as error:
        raise invalid("domain", f"`domain` is not a domain name: {error}") from None
    found = await dmarc.domain_named(call.services.pool, call.account_id, name)
    if found is None or (call.domains is not None and name not in call.domains):
        raise not_found("domain")
    return name, found.id


def _counts(one: DmarcSource | DmarcTotals) -> dict[str, Any]:
    return {
        "messages": one.messages,
        "aligned": one.aligned,
        "alignment_rate": _share(one.aligned, one.messages),
        "spf_aligned": one.spf_aligned,
        "dkim_aligned": one.dkim_aligned,
        "none": one.none,
        "quarantine": one.quarantine,
        "reject": one.reject,
    }


def _others(listed: Sequence[DmarcSource], totals: DmarcTotals) -> DmarcOthers | None:
    """Return what is left of the totals beyond the listed sources; None if all are listed."""
    if totals.sources <= len(listed):
        return None
    rest = {
        name: getattr(totals, name) - sum(getattr(one, name) for one in listed)
        for name in ("messages", "aligned", "spf_aligned", "dkim_aligned", "none", "quarantine", "reject")
    }
    rate = _share(rest["aligned"], rest["messages"])
    return DmarcOthers(sources=totals.sources - len(listed), alignment_rate=rate, **rest)


def _policies(sums: Sequence[TlsSums]) -> list[TlsPolicyRow]:
    """Return one row for each policy of each domain; the sums come ordered, each policy's totals first."""
    rows: list[TlsPolicyRow] = []
    for one in sums:
        last = rows[-1] if rows else None
        if last is None or (last.domain, last.policy_type, last.policy_domain) != (
            one.domain, one.policy_type, one.policy_domain,
        ):  # fmt: skip
            last = TlsPolicyRow(
                domain=one.domain,
                policy_type=one.policy_type,
                policy_domain=one.policy_domain,
                sessions=0,
                failures=0,
                failure_types=[],
            )
            rows.append(last)
        if one.result_type:
            last.failure_types.append(TlsFailureRow(result_type=one.result_type, failures=one.failures))
        else:
            last.sessions, last.failures = one.sessions, one.failures
    return rows


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


_KEYS = Area("Deliverability", reads=("analytics:read",), limited_keys=LimitedKeys.OWN)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/analytics/delivery",
        read_delivery,
        "Read delivery rates and times by domain or tag",
        _KEYS,
        refusals=(ErrorType.PLAN_LIMIT_REACHED,),
        lagging=True,
    ),
    Operation(
        "GET",
        "/v1/analytics/providers",
        read_providers,
        "Read how mail arrives at each mailbox provider",
        _KEYS,
        lagging=True,
    ),
    Operation(
        "GET",
        "/v1/analytics/waits",
        read_waits,
        "Read why deliveries waited",
        _KEYS,
        refusals=(ErrorType.PLAN_LIMIT_REACHED,),
        lagging=True,
    ),
    Operation(
        "GET",
        "/v1/analytics/dmarc",
        read_dmarc,
        "Summarise DMARC reports by sending IP address",
        _KEYS,
        limited_keys=LimitedKeys.OWN_DOMAINS,
        refusals=(ErrorType.NOT_FOUND,),
        lagging=True,
    ),
    Operation(
        "GET",
        "/v1/analytics/tls",
        read_tls,
        "Summarise TLS reports by policy",
        _KEYS,
        refusals=(ErrorType.NOT_FOUND,),
        lagging=True,
    ),
)
