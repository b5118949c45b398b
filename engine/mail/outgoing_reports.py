"""Compose reports as receiving servers send them: a bounce (RFC 3464) and a complaint (RFC 5965).

The local sink and the simulator send them to the service's own MX, so that reports can be tried on one machine.
"""

import re
from datetime import datetime
from hashlib import sha256
from typing import Final

from msgspec import Struct

from engine.mail.headers import date_field

MAX_HEADER: Final = 16_384  # octets of the returned header
_header_end = re.compile(rb"\r?\n\r?\n").search
_folded_address = re.compile(r"[\r\n\x00]").search


class ReportedMail(Struct, frozen=True):
    """The mail that a report is about, as its receiving server knows it.

    `reporter`: name of the server. `return_path`: the envelope sender, to which the report goes.
    """

    reporter: str
    return_path: str
    recipient: str
    content: bytes


def bounce_report(mail: ReportedMail, at: datetime) -> bytes:
    """Return a notification that the recipient does not exist."""
    said = f"550 5.1.1 <{mail.recipient}>: no such user here"
    fields = (
        f"Reporting-MTA: dns; {mail.reporter}\r\n\r\n"
        f"Final-Recipient: rfc822; {mail.recipient}\r\nAction: failed\r\nStatus: 5.1.1\r\n"
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
