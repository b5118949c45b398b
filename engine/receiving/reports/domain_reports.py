"""Count DMARC and TLS reports that arrived at the report address of a domain."""

import asyncpg

from engine.mail.tls_reports import TlsReport
from engine.receiving.analytics import dmarc, rules, tls
from engine.receiving.analytics.types import Added, ReportedDomain
from engine.receiving.reports import store as reports
from engine.receiving.reports.report_reading import DomainNotice
from engine.receiving.reports.types import ReportResult, ReportState
from engine.store.queries import Conn


async def apply(pool: asyncpg.Pool, notice: DomainNotice) -> None:
    """Count one report and store its result, in one transaction."""
    async with pool.acquire() as connection, connection.transaction():
        if not await reports.lock_waiting(connection, [notice.report]):
            return
        domain = await dmarc.domain_of(connection, notice.domain_id)
        if domain is None:
            result = _result(notice, None, ReportState.IGNORED, "no_domain", "The domain was removed.")
        elif isinstance(notice.said, TlsReport):
            result = await _tls(connection, domain, notice, notice.said)
        else:
            result = await _dmarc(connection, domain, notice)
        await reports.finish(connection, [result])


async def _dmarc(connection: Conn, domain: ReportedDomain, notice: DomainNotice) -> ReportResult:
    said = notice.said
    assert not isinstance(said, TlsReport)
    if not rules.concerns(said.policy_domain, domain.name):
        return _wrong_domain(notice, domain, said.policy_domain)
    added = await dmarc.add(connection, domain, said, notice.report, notice.received_at)
    if added is not Added.COUNTED:
        return _not_counted(notice, domain, added)
    messages = sum(said.counts.values())
    reason = f"{said.reporter}: {messages} messages in {said.rows} rows, {said.skipped} of them unreadable."
    return _result(notice, domain, ReportState.APPLIED, "counted", reason)


async def _tls(connection: Conn, domain: ReportedDomain, notice: DomainNotice, said: TlsReport) -> ReportResult:
    """Count the policies about the domain; a report may hold those of several domains."""
    own = [one for one in said.policies if rules.concerns(one.policy_domain, domain.name)]
    if said.policies and not own:
        return _wrong_domain(notice, domain, said.policies[0].policy_domain)
    added = await tls.add(connection, domain, said, own, notice.report, notice.received_at)
    if added is not Added.COUNTED:
        return _not_counted(notice, domain, added)
    sessions = sum(one.successful + one.failed for one in own)
    return _result(notice, domain, ReportState.APPLIED, "counted", f"{said.reporter}: {sessions} sessions.")


def _wrong_domain(notice: DomainNotice, domain: ReportedDomain, about: str) -> ReportResult:
    reason = f"The report is about {about or 'no domain'}; the address belongs to {domain.name}."
    return _result(notice, domain, ReportState.IGNORED, "wrong_domain", reason)


def _not_counted(notice: DomainNotice, domain: ReportedDomain, added: Added) -> ReportResult:
    reason = "A report with this reporter, id and begin was counted."
    if added is Added.TOO_MANY:
        reason = f"{rules.MAX_REPORTS_DAILY} reports about {domain.name} arrived on this day already."
    return _result(notice, domain, ReportState.IGNORED, added.value, reason)


def _result(
    notice: DomainNotice, domain: ReportedDomain | None, state: ReportState, result: str, reason: str
) -> ReportResult:
    account = None if domain is None else domain.account_id
    return ReportResult(id=notice.report, state=state, result=result, reason=reason, account_id=account)
