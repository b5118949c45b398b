"""Store DMARC aggregate reports once each, and read the sums of their rows."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from uuid import UUID

from engine.areas.analytics import rules
from engine.areas.analytics.types import DmarcSource, DmarcTotals, FailedStreams, Period, ReportedDomain
from engine.mail.dmarc_reports import DmarcReport
from engine.store.queries import Conn, Queries, Source, columns

MAX_SOURCES = 100
CHUNK = 5_000  # rows per statement

_SQL = Queries.beside(__file__, "dmarc.sql")
_DOMAIN = _SQL.rows("reported_domain", ReportedDomain)
_NAMED = _SQL.rows("domain_named", ReportedDomain)
_ADD_REPORT = _SQL.command("add_report")
_ADD_ROWS = _SQL.command("add_rows")
_SOURCES = _SQL.rows("sources", DmarcSource)
_STREAMS = _SQL.rows("failed_streams", FailedStreams)
_TOTALS = _SQL.rows("totals", DmarcTotals)
FORGET = (_SQL.command("forget_rows"), _SQL.command("forget_reports"))
_NO_DATE = datetime(1970, 1, 1, tzinfo=UTC)  # of reports without a date: the report id alone tells them apart


async def domain_of(source: Source, domain_id: UUID) -> ReportedDomain | None:
    """Return the domain of a report address; None if it was removed or its account is being closed."""
    return await _DOMAIN.first(source, domain_id)


async def domain_named(source: Source, account: UUID, name: str) -> ReportedDomain | None:
    """Return a domain of the account by its name in A-labels."""
    return await _NAMED.first(source, account, name)


async def add(connection: Conn, domain: ReportedDomain, report: DmarcReport, mail: UUID, received_at: datetime) -> bool:
    """Count a report in the caller's transaction; return False if it was counted before or the domain is removed.

    `mail` stands in for the id of a report that has none.
    """
    day = rules.day_of(report.begin, received_at)
    begin, end = report.begin or _NO_DATE, report.end or report.begin or _NO_DATE
    reporter, report_id = report.reporter or report.email, report.report_id or str(mail)
    new = await _ADD_REPORT.records(connection, domain.id, reporter, report_id, begin, end, day, received_at)
    if not new:
        return False
    # Sorted, so that two reports about one domain take their row locks in the same order.
    rows = iter(sorted((*key, count) for key, count in report.counts.items() if count))
    while chunk := list(islice(rows, CHUNK)):
        ips, froms, dispositions, dkim, spf, counts = columns(chunk, 6)
        await _ADD_ROWS.execute(
            connection, domain.account_id, domain.id, day, ips, froms, dkim, spf, dispositions, counts
        )
    return True


async def sources(
    source: Source, account: UUID, wanted: Period, *, domain: UUID | None, names: Sequence[str] | None
) -> list[DmarcSource]:
    """Return the MAX_SOURCES largest sources; `names`: the domains that the caller may see (None: all)."""
    return await _SOURCES.fetch(source, account, wanted.since, wanted.until, domain, names, MAX_SOURCES)


async def failed_streams(
    source: Source,
    account: UUID,
    wanted: Period,
    *,
    ips: Sequence[str],
    domain: UUID | None,
    names: Sequence[str] | None,
) -> dict[str, list[str]]:
    """Return the streams by source on which its From domains sent on the days of failures; `ips`: our own sources."""
    if not ips:
        return {}
    found = await _STREAMS.fetch(source, account, wanted.since, wanted.until, domain, names, list(ips))
    return {one.source_ip: one.streams for one in found}


async def totals(
    source: Source, account: UUID, wanted: Period, *, domain: UUID | None, names: Sequence[str] | None
) -> DmarcTotals:
    """Return the sums over all sources."""
    found = await _TOTALS.first(source, account, wanted.since, wanted.until, domain, names)
    assert found is not None
    return found
