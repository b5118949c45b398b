"""Read one stored report mail: verify its token and parse its content. Pure; the caller runs it in a thread."""

from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from engine.delivery.late_notices import LateNotice
from engine.mail import read, return_path, unsubscribe_token
from engine.mail.delivery_reports import ReportKind, read_delivery_report
from engine.mail.dmarc_reports import BadReport, DmarcReport, read_dmarc_report
from engine.mail.feedback_reports import FeedbackReport, read_feedback_report
from engine.mail.report_parts import report_parts
from engine.mail.return_path import ReturnPathOrigin
from engine.mail.tls_reports import BadTlsReport, TlsReport, read_tls_report
from engine.mail.unpack import UnpackBudget, UnpackError, unpacked
from engine.mail.unsubscribe_links import LOCAL_PREFIX
from engine.receiving.reports import report_tokens
from engine.receiving.reports.report_tokens import ReportKeys
from engine.receiving.reports.store import MAX_RAW_BYTES
from engine.receiving.reports.types import DueReport, Reporter, ReportPurpose, ReportResult, ReportState
from engine.sending.domains import reports as domain_reports
from engine.sending.domains.reports import ReportKind as DomainReportKind

_NO_EFFECT = {
    ReportKind.AUTO_REPLY: (ReportState.IGNORED, "An automatic reply, such as a vacation note."),
    ReportKind.CHALLENGE: (
        ReportState.IGNORED, "A challenge that asks the sender to confirm the mail; the service never does.",
    ),
    ReportKind.UNREADABLE: (
        ReportState.UNREADABLE, "Neither a bounce nor a complaint, or a bounce that names no recipient.",
    ),
}  # fmt: skip


class ComplaintNotice(Struct, frozen=True):
    """A complaint.

    `origin` is that of the return path to which it was sent, None at `fbl@`. `reporter` is its authenticated author.
    """

    report: UUID
    origin: ReturnPathOrigin | None
    said: FeedbackReport
    received_at: datetime
    reporter: Reporter | None = None


class DomainNotice(Struct, frozen=True):
    """A DMARC or TLS report that arrived at the genuine report address of a domain."""

    report: UUID
    domain_id: UUID
    said: DmarcReport | TlsReport
    received_at: datetime


class UnsubscribeNotice(Struct, frozen=True):
    """Mail to the address of a genuine unsubscribe link."""

    report: UUID
    link: UUID


ReadReport = LateNotice | ComplaintNotice | DomainNotice | UnsubscribeNotice | ReportResult


def read_report(report: DueReport, keys: ReportKeys) -> ReadReport:
    """Return the content of a report with a genuine token, or the result of one that has no effect."""
    address = f"{report.local}@{report.host}"
    purpose = ReportPurpose(report.purpose)
    if purpose is ReportPurpose.UNSUBSCRIBE:
        link = unsubscribe_token.link_of(keys.unsubscribe, report.local.removeprefix(LOCAL_PREFIX))
        return _no_token(report) if link is None else UnsubscribeNotice(report.id, link)
    if purpose is ReportPurpose.OPERATOR:
        reason = "Mail to the operator; after `ops platform set` the platform account receives it."
        return _without_effect(report, ReportState.IGNORED, "no_platform", reason)
    if report.raw is None:
        if not report_tokens.is_genuine(purpose, report.local, report.host, keys):
            return _no_token(report)
        return _without_effect(
            report, ReportState.UNREADABLE, "too_large", f"Larger than {MAX_RAW_BYTES} bytes; no bytes were kept."
        )
    if purpose is ReportPurpose.BOUNCE:
        origin = return_path.origin(keys.return_path, address)
        return _no_token(report) if origin is None else _at_return_path(report, report.raw, origin)
    if purpose is ReportPurpose.FEEDBACK:
        complaint = read_feedback_report(report.raw)
        if complaint is None:
            return _without_effect(report, ReportState.UNREADABLE, "no_complaint", "Not a complaint that can be read.")
        return ComplaintNotice(report.id, None, complaint, report.received_at, report.reporter)
    named = domain_reports.reported_domain(keys.domain_reports, address)
    if named is None or named[0] != purpose.value:
        return _no_token(report)
    return _about_domain(report, report.raw, *named)


def _at_return_path(report: DueReport, raw: bytes, origin: ReturnPathOrigin) -> ReadReport:
    if origin.is_outdated(report.received_at):
        return _no_token(report)
    parts = report_parts(raw)
    complaint = read_feedback_report(raw, parts)
    if complaint is not None:
        return ComplaintNotice(report.id, origin, complaint, report.received_at, report.reporter)
    said = read_delivery_report(raw, parts)
    if said.kind in _NO_EFFECT:
        state, reason = _NO_EFFECT[said.kind]
        return _without_effect(report, state, said.kind.value, reason, origin)
    author = None if report.reporter is None else report.reporter.domain
    return LateNotice(report.id, origin, said, report.received_at, author)


def _about_domain(report: DueReport, raw: bytes, kind: DomainReportKind, domain: UUID) -> ReadReport:
    """Return the first attachment that is such a report; some reporters attach a text for people before it.

    The address is public in DNS, so the attachments share one budget: many that unpack to much cost no more than one.
    """
    reason, budget = "The mail has no attachment and no text.", UnpackBudget()
    for content in _contents(raw):
        try:
            said: DmarcReport | TlsReport
            if kind == "dmarc":
                said = read_dmarc_report(unpacked(content, budget))
            else:
                said = read_tls_report(b"".join(unpacked(content, budget)))
        except (BadReport, BadTlsReport, UnpackError) as error:
            reason = str(error)
            continue
        return DomainNotice(report.id, domain, said, report.received_at)
    return _without_effect(report, ReportState.UNREADABLE, "no_report", reason)


def _contents(raw: bytes) -> Iterator[bytes]:
    """Yield what may be the report: the attachments, then the text of the mail."""
    try:
        for file in read.files(raw):
            yield file.content
        text = read.bodies(raw).text
    except read.UnreadableMail:
        return
    if text:
        yield text.strip().encode()


def _no_token(report: DueReport) -> ReportResult:
    return _without_effect(
        report,
        ReportState.IGNORED,
        "no_token",
        f"{report.local}@{report.host} isn't an address that Waybill gave out.",
    )


def _without_effect(
    report: DueReport, state: ReportState, result: str, reason: str, origin: ReturnPathOrigin | None = None
) -> ReportResult:
    """Return the result of a report that changes nothing; `origin` names the message that its address belongs to."""
    message = None if origin is None else origin.message_id
    return ReportResult(id=report.id, state=state, result=result, reason=reason, message_id=message)
