"""Store TLS reports once each, and read the sums of their sessions."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from engine.mail.tls_reports import TlsPolicyReport, TlsReport
from engine.receiving.analytics import rules
from engine.receiving.analytics.types import Added, Arrived, Period, ReportedDomain, TlsSums, TlsTotals
from engine.store.queries import Conn, Queries, Source, columns

MAX_ROWS = 1_000
MAX_RESULT_TYPES = 100  # of one policy in one report; RFC 8460 4.3 names eleven

_SQL = Queries.beside(__file__, "tls.sql")
_ARRIVED = _SQL.rows("arrived", Arrived)
_ADD_REPORT = _SQL.command("add_report")
_ADD_ROWS = _SQL.command("add_rows")
_SUMS = _SQL.rows("sums", TlsSums)
_TOTALS = _SQL.rows("totals", TlsTotals)
FORGET = (_SQL.command("forget_rows"), _SQL.command("forget_reports"))
_NO_DATE = datetime(1970, 1, 1, tzinfo=UTC)

_Key = tuple[str, str, str]  # policy type, policy domain, result type; "" in the row of all sessions


async def add(
    connection: Conn,
    domain: ReportedDomain,
    report: TlsReport,
    policies: Sequence[TlsPolicyReport],
    mail: UUID,
    received_at: datetime,
) -> Added:
    """Count a report's `policies` in the caller's transaction, unless it was counted before or too many arrived on its
    day. Rows beyond the limits are left out: an honest report has a few.

    `mail` stands in for the id of a report that has none.
    """
    arrived = await _ARRIVED.first(connection, domain.id, rules.start_of_arrivals(received_at), received_at)
    limit = rules.rows_left(arrived or Arrived(0, 0))
    if limit is None:
        return Added.TOO_MANY
    day = rules.day_of(report.begin, received_at)
    reporter = rules.stored_text(report.reporter or report.contact)
    report_id = rules.stored_text(report.report_id or str(mail))
    sessions, failures = _sums(policies)
    largest = sorted(sessions.keys() | failures.keys(), key=lambda key: (sessions[key] + failures[key], key))[::-1]
    rows = [(*key, sessions[key], failures[key]) for key in sorted(largest[:limit])]
    begin = report.begin or _NO_DATE
    if not await _ADD_REPORT.records(connection, domain.id, reporter, report_id, begin, day, received_at, len(rows)):
        return Added.KNOWN
    if rows:
        await _ADD_ROWS.execute(connection, domain.account_id, domain.id, day, *columns(rows, 5))
    return Added.COUNTED


def _sums(policies: Sequence[TlsPolicyReport]) -> tuple[Counter[_Key], Counter[_Key]]:
    """Return all sessions of each policy, and its failures: in all, and by result type."""
    sessions: Counter[_Key] = Counter()
    failures: Counter[_Key] = Counter()
    for one in policies:
        policy = rules.stored_text(one.policy_type), rules.stored_text(one.policy_domain)
        whole = (*policy, "")
        sessions[whole] += one.successful + one.failed
        failures[whole] += one.failed
        for row in one.failures[:MAX_RESULT_TYPES]:
            failures[*policy, rules.stored_text(row.result_type) or "unknown"] += row.sessions
    return sessions, failures


async def sums(
    source: Source, account: UUID, wanted: Period, *, domain: UUID | None, names: Sequence[str] | None
) -> list[TlsSums]:
    """Return the sums by domain, policy and result type; `names`: the domains that the caller may see (None: all)."""
    return await _SUMS.fetch(source, account, wanted.since, wanted.until, domain, names, MAX_ROWS)


async def totals(
    source: Source, account: UUID, wanted: Period, *, domain: UUID | None, names: Sequence[str] | None
) -> TlsTotals:
    """Return the sums over all domains and policies."""
    found = await _TOTALS.first(source, account, wanted.since, wanted.until, domain, names)
    assert found is not None
    return found
