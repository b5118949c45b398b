"""Sends the TLS reports of past days (RFC 8460): mails through the service's own acceptance, and HTTPS posts.

Several processes may do this at the same time: a report has one idempotency key per mailbox and one row per URL.
"""

from datetime import UTC, date, datetime, time, timedelta

import asyncpg
import structlog
from msgspec import structs

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.mail.address import BadAddress, Mailbox, domain_name, parse_mailbox
from engine.sending.accept import Acceptor
from engine.sending.emails import submitted
from engine.sending.emails.submitted import Submitted
from engine.sending.job_acceptor import JobAcceptor
from engine.sending.preparation import Origin
from engine.store.jobs import Job
from engine.store.queries import Queries
from engine.store.resolver import NoData, NxDomain, Records, Resolver
from mta.outbound.tls.daily_reports import DailyTlsReports
from mta.outbound.tls.report_counts import KEEP
from mta.outbound.tls.report_mail import DailyTlsReport, ReportDestinations, compose, destinations, due_at
from mta.outbound.tls.report_posting import LASTS, post_due

DAYS_BACK = 2  # so that a worker that was down over night catches up
MAX_AT_ONCE = 200  # domains per round

_SQL = Queries.beside(__file__, "reporting.sql")
_UNREPORTED = _SQL.command("unreported_domains")
_REPORTED = _SQL.command("reported")
_ACCOUNT = _SQL.command("account_of_domain")
_FORGET = _SQL.command("forget_reports")

_log = structlog.get_logger("tls reports")


async def send_due(pool: asyncpg.Pool, settings: Settings, now: datetime) -> int:
    """Make the reports that are due at `now`, and post what is due; returns how many mails were accepted and how many
    posts taken.

    Without `WAYBILL_TLS_REPORT_FROM` nothing is sent. A domain that asks for no report is noted as reported; one whose
    record can't be looked up is asked again the next time.
    """
    if settings.tls_report_from is None or settings.redis_url is None:
        return 0
    sender = parse_mailbox(settings.tls_report_from)

    reports = DailyTlsReports(pool, submitter=settings.mail_host, contact=sender.address)
    sent = await _mail_due(pool, settings, now, sender, reports)
    return sent + await post_due(pool, settings, now, reports)


JOB = Job("tls reports", every_s=600, run=lambda pool, settings: send_due(pool, settings, clock.now()))


async def _mail_due(
    pool: asyncpg.Pool,
    settings: Settings,
    now: datetime,
    sender: Mailbox,
    reports: DailyTlsReports,
) -> int:
    due = await _due(pool, now)
    if not due:
        return 0
    accounts = await _ACCOUNT.records(pool, domain_name(sender.domain))
    if not accounts:
        _log.warning("no TLS reports: the domain of WAYBILL_TLS_REPORT_FROM is not verified", domain=sender.domain)
        return 0
    mail = JobAcceptor(pool, settings, "TLS reports")
    resolver = Resolver.from_settings(settings)
    door = Origin(accounts[0]["account_id"], "api")
    sent = 0
    try:
        for day, domain in due:
            sent += await _send(pool, mail.acceptor, resolver, door, await reports.of(day, domain), now)
    finally:
        await mail.close()
        await resolver.close()
    await _FORGET.execute(pool, now.date() - KEEP)
    return sent


async def _due(pool: asyncpg.Pool, now: datetime) -> list[tuple[date, str]]:
    found = []
    for back in range(1, DAYS_BACK + 1):
        day = now.date() - timedelta(days=back)
        midnight = datetime.combine(day + timedelta(days=1), time(), UTC)
        rows = await _UNREPORTED.records(pool, day, MAX_AT_ONCE)
        found += [(day, row["domain"]) for row in rows if due_at(day, row["domain"], midnight) <= now]
    return found


async def _send(
    pool: asyncpg.Pool, acceptor: Acceptor, resolver: Resolver, door: Origin, report: DailyTlsReport, now: datetime
) -> int:
    found = await resolver.txt(f"_smtp._tls.{report.domain}")
    if not isinstance(found, Records | NoData | NxDomain):
        return 0  # asked again the next time
    wanted = destinations(found.values) if isinstance(found, Records) else ReportDestinations()
    reached: list[str] = []
    message = None
    for mailbox in wanted.mailboxes:
        try:
            mail = _submitted(report, mailbox, now)
            accepted = await acceptor.accept(await acceptor.preparer.check(mail, door))
        except (BadAddress, Refusal) as error:
            if isinstance(error, Refusal) and error.kind not in (ErrorType.SUPPRESSED, ErrorType.INVALID_ADDRESS):
                _log.warning("TLS report postponed", domain=report.domain, error=str(error))
                return len(reached)
            continue
        reached.append(mailbox)
        message = ids.parse_id(ids.Kind.MESSAGE, accepted.id)
    await _REPORTED.execute(pool, report.day, report.domain, reached, message, wanted.urls, now, now + LASTS)
    return len(reached)


def _submitted(report: DailyTlsReport, to: str, now: datetime) -> Submitted:
    """Return the mail for one mailbox. It asks for no TLS: a report about broken TLS must not wait for TLS (RFC 8460
    5.3)."""
    recipient: Mailbox = parse_mailbox(to)
    mail = submitted.read(compose(report, recipient.address, now), [recipient], smtputf8=False, host=report.submitter)
    assert isinstance(mail, Submitted)
    key = f"tls-report {report.day.isoformat()} {report.domain} {recipient.address}"[:255]
    return structs.replace(mail, idempotency_key=key, request_digest=bytes(16), min_tls="none")
