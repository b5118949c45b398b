"""Store TLS reports once each, and read the sums of their sessions."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from engine.areas.analytics import rules
from engine.areas.analytics.types import Period, ReportedDomain, TlsSums, TlsTotals
from engine.mail.tls_reports import TlsPolicyReport, TlsReport
from engine.store.queries import Conn, Queries, Source, columns

MAX_ROWS = 1_000
MAX_RESULT_TYPES = 100  # of one policy in one report; RFC 8460 4.3 names eleven

_SQL = Queries.beside(__file__, "tls.sql")
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
) -> bool:
    """Count a report's `policies` in the caller's transaction; return False if it was counted before.

    `mail` stands in for the id of a report that has none.
    """
    day = rules.day_of(report.begin, received_at)
    reporter, report_id = report.reporter or report.contact, report.report_id or str(mail)
    begin = report.begin or _NO_DATE
    if not await _ADD_REPORT.records(connection, domain.id, reporter, report_id, begin, day, received_at):
        return False
    sessions, failures = _sums(policies)
    rows = [(*key, sessions[key], failures[key]) for key in sorted(sessions.keys() | failures.keys())]
    if rows:
        await _ADD_ROWS.execute(connection, domain.account_id, domain.id, day, *columns(rows, 5))
    return True


def _sums(policies: Sequence[TlsPolicyReport]) -> tuple[Counter[_Key], Counter[_Key]]:
    """Return all sessions of each policy, and its failures: in all, and by result type."""
    sessions: Counter[_Key] = Counter()
    failures: Counter[_Key] = Counter()
    for one in policies:
        whole = (one.policy_type, one.policy_domain, "")
        sessions[whole] += one.successful + one.failed
        failures[whole] += one.failed
        for row in one.failures[:MAX_RESULT_TYPES]:
            failures[one.policy_type, one.policy_domain, row.result_type or "unknown"] += row.sessions
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
