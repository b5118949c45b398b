"""Store DMARC aggregate reports once each, and read the sums of their rows."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

from engine.mail.dmarc_reports import DmarcReport, DmarcRow
from engine.receiving.analytics import rules
from engine.receiving.analytics.types import (
    Added,
    Arrived,
    DmarcSource,
    DmarcTotals,
    FailedStreams,
    Period,
    ReportedDomain,
)
from engine.store.queries import Conn, Queries, Source, columns

MAX_SOURCES = 100
# The source of messages that are stored as sums only. No report has it: the addresses in reports have no prefix length.
_ALL_SOURCES = "0.0.0.0/0"

_SQL = Queries.beside(__file__, "dmarc.sql")
_DOMAIN = _SQL.rows("reported_domain", ReportedDomain)
_NAMED = _SQL.rows("domain_named", ReportedDomain)
_ARRIVED = _SQL.rows("arrived", Arrived)
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


async def add(
    connection: Conn, domain: ReportedDomain, report: DmarcReport, mail: UUID, received_at: datetime
) -> Added:
    """Count a report in the caller's transaction, unless it was counted before or too many arrived on its day.

    `mail` stands in for the id of a report that has none.
    """
    arrived = await _ARRIVED.first(connection, domain.id, rules.start_of_arrivals(received_at), received_at)
    limit = rules.rows_left(arrived or Arrived(0, 0))
    if limit is None:
        return Added.TOO_MANY
    day = rules.day_of(report.begin, received_at)
    begin, end = report.begin or _NO_DATE, report.end or report.begin or _NO_DATE
    reporter = rules.stored_text(report.reporter or report.email)
    report_id = rules.stored_text(report.report_id or str(mail))
    # Sorting 100,000 rows takes a good part of a second.
    rows = await asyncio.to_thread(_stored_rows, report.counts, limit)
    new = await _ADD_REPORT.records(
        connection, domain.id, reporter, report_id, begin, end, day, received_at, min(len(rows), limit)
    )
    if not new:
        return Added.KNOWN
    if rows:
        ips, froms, dispositions, dkim, spf, counts = columns(rows, 6)
        await _ADD_ROWS.execute(
            connection, domain.account_id, domain.id, day, ips, froms, dkim, spf, dispositions, counts
        )
    return Added.COUNTED


def _stored_rows(counts: Mapping[DmarcRow, int], limit: int) -> list[tuple[str, str, str, bool, bool, int]]:
    """Return the `limit` largest rows and the sums of the others, by alignment and disposition.

    Sorted, so that two reports about one domain take their row locks in the same order.
    """
    largest = sorted(((count, key) for key, count in counts.items() if count), reverse=True)
    sums: Counter[DmarcRow] = Counter()
    for count, key in largest[limit:]:
        sums[key._replace(source_ip=_ALL_SOURCES, header_from="")] += count
    return sorted((*key, count) for key, count in [*((key, count) for count, key in largest[:limit]), *sums.items()])


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
