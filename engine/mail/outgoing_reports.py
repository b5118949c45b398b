"""Compose reports as other servers send them: a bounce (RFC 3464), a complaint (RFC 5965), a TLS report (RFC 8460).

The local sink and the simulator send them to the service's own MX, so that reports can be tried on one machine.
"""

import json
import re
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from msgspec import Struct

from engine.mail.headers import date_field

MAX_HEADER: Final = 16_384  # octets of the returned header
_header_end = re.compile(rb"\r?\n\r?\n").search
_enhanced_status = re.compile(r"\d{3}[ -]([45]\.\d{1,3}\.\d{1,3})\b").match
_folded_address = re.compile(r"[\r\n\x00]").search


class ReportedMail(Struct, frozen=True):
    """The mail that a report is about, as its receiving server knows it.

    `reporter`: name of the server. `return_path`: the envelope sender, to which the report goes.
    """

    reporter: str
    return_path: str
    recipient: str
    content: bytes


def bounce_report(mail: ReportedMail, at: datetime, reply: str | None = None) -> bytes:
    """Return a notification that the mail was refused with an SMTP reply; None: the recipient does not exist."""
    said = reply or f"550 5.1.1 <{mail.recipient}>: no such user here"
    enhanced = _enhanced_status(said)
    status = enhanced[1] if enhanced else f"{said[0]}.0.0"
    fields = (
        f"Reporting-MTA: dns; {mail.reporter}\r\n\r\n"
        f"Final-Recipient: rfc822; {mail.recipient}\r\nAction: failed\r\nStatus: {status}\r\n"
        f"Diagnostic-Code: smtp; {said}\r\n"
    )
    text = f"Your message was accepted, but can't be delivered to {mail.recipient}: {said}.\r\n"
    return _report(mail, at, "Undelivered Mail Returned to Sender", "delivery-status", text, fields)


def complaint_report(mail: ReportedMail, at: datetime) -> bytes:
    """Return a report that the recipient marked the mail as spam."""
    fields = (
        "Feedback-Type: abuse\r\nUser-Agent: Waybill-Simulator/1.0\r\nVersion: 1\r\n"
        f"Original-Mail-From: <{mail.return_path}>\r\nOriginal-Rcpt-To: <{mail.recipient}>\r\n"
    )
    text = f"{mail.recipient} reported this message as spam.\r\n"
    return _report(mail, at, "Complaint about a message", "feedback-report", text, fields)


def tls_report(reporter: str, recipient: str, domain: str, at: datetime) -> bytes:
    """Return the report of a server about its TLS sessions to `domain` on the day before `at`: all succeeded."""
    day = (at - timedelta(days=1)).date().isoformat()
    report_id = f"{day}-{domain}@{reporter}"
    policy = {"policy-type": "no-policy-found", "policy-domain": domain}
    summary = {"total-successful-session-count": 1, "total-failure-session-count": 0}
    document = {
        "organization-name": reporter, "contact-info": f"postmaster@{reporter}", "report-id": report_id,
        "date-range": {"start-datetime": f"{day}T00:00:00Z", "end-datetime": f"{day}T23:59:59Z"},
        "policies": [{"policy": policy, "summary": summary}],
    }  # fmt: skip
    text = json.dumps(document, indent=1).replace("\n", "\r\n")
    boundary = "report." + sha256(report_id.encode()).hexdigest()[:24]
    return (
        f"From: <tls-reports@{reporter}>\r\nTo: <{recipient}>\r\n{date_field(at)}"
        f"Subject: Report Domain: {domain} Submitter: {reporter} Report-ID: <{report_id}>\r\n"
        f"TLS-Report-Domain: {domain}\r\nTLS-Report-Submitter: {reporter}\r\nMIME-Version: 1.0\r\n"
        f'Content-Type: multipart/report; report-type=tlsrpt;\r\n boundary="{boundary}"\r\n\r\n'
        f"--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nTLS sessions to {domain} on {day}.\r\n"
        f"--{boundary}\r\nContent-Type: application/tlsrpt+json\r\n\r\n{text}\r\n--{boundary}--\r\n"
    ).encode()


def _report(mail: ReportedMail, at: datetime, subject: str, kind: str, text: str, fields: str) -> bytes:
    """Join the parts of a multipart/report (RFC 6522). Raises ValueError for an address with a line break."""
    if _folded_address(f"{mail.return_path}{mail.recipient}"):
        raise ValueError("An address in a report has no line breaks.")
    header = _header(mail.content)
    boundary = "report." + sha256(mail.return_path.encode() + mail.recipient.encode() + header).hexdigest()[:24]
    head = (
        f"From: <MAILER-DAEMON@{mail.reporter}>\r\nTo: <{mail.return_path}>\r\nSubject: {subject}\r\n{date_field(at)}"
        "Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n"
        f'Content-Type: multipart/report; report-type={kind};\r\n boundary="{boundary}"\r\n\r\n'
        f"--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{text}\r\n"
        f"--{boundary}\r\nContent-Type: message/{kind}\r\n\r\n{fields}\r\n"
        f"--{boundary}\r\nContent-Type: text/rfc822-headers\r\n\r\n"
    )
    return head.encode() + header + f"\r\n--{boundary}--\r\n".encode()


def _header(content: bytes) -> bytes:
    """Return the header of a message with CRLF line ends, at most MAX_HEADER octets of whole lines."""
    end = _header_end(content)
    header = content[: end.start()] if end else content
    lines = header[:MAX_HEADER].replace(b"\r\n", b"\n").split(b"\n")
    if len(header) > MAX_HEADER:
        lines.pop()
    return b"".join(line + b"\r\n" for line in lines if line)
