"""Composes the TLS report of a day for one policy domain, and the mail that carries it (RFC 8460 3 to 5). Pure."""

import gzip
import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from email.mime.application import MIMEApplication
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from email.policy import SMTP
from email.utils import format_datetime
from hashlib import blake2b
from typing import Any
from urllib.parse import unquote

import orjson
import yarl
from msgspec import Struct

MAX_DETAILS = 1_000  # failures of one policy that a report lists; the summary counts them all
MAX_DESTINATIONS = 4  # of each kind
MAX_URL = 1_000  # characters
MAX_RECORD = 2_048  # characters of a TXT record
SPREAD_S = 4 * 3600  # RFC 8460 4.1: not all reporters at midnight
_MAILTO = re.compile(r"mailto:([^\s,;!?]{3,320})", re.IGNORECASE)


class SessionCount(Struct, frozen=True):
    """Sessions of one day with one result, as `tls_days` has them: `success`, or a type of RFC 8460 4.3."""

    policy: str
    result: str
    mx: str
    ip: str
    reason: str
    sessions: int


class DailyTlsReport(Struct, frozen=True, kw_only=True):
    """The content of a report, and who sends it. `policy_text` is the MTA-STS policy as served, where there is one."""

    day: date
    domain: str
    counts: Sequence[SessionCount]
    policy_text: str | None
    submitter: str  # our host name
    contact: str  # the address that it comes from

    @property
    def id(self) -> str:
        """Return the report's id: the same for the same day and domain, however often it is composed."""
        digest = blake2b(f"{self.day} {self.domain} {self.submitter}".encode(), digest_size=8).hexdigest()
        return f"{self.day.isoformat()}.{digest}@{self.submitter}"


class ReportDestinations(Struct, frozen=True):
    """The mailboxes and URLs to which a domain wants its reports sent."""

    mailboxes: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()  # https


def destinations(records: Iterable[bytes]) -> ReportDestinations:
    """Return the destinations in a domain's `_smtp._tls` TXT records (RFC 8460 3), each once; none unless there is
    exactly one record of the kind."""
    texts = [one.decode("ascii", "replace").strip() for one in records if len(one) <= MAX_RECORD]
    found = [text for text in texts if re.match(r"v=TLSRPTv1\s*;", text)]
    if len(found) != 1:
        return ReportDestinations()
    fields = (field.strip().partition("=") for field in found[0].split(";")[1:])
    uris = next((value for name, _, value in fields if name.strip().lower() == "rua"), "")
    named = [uri.strip() for uri in uris.split(",")]
    matches = [_MAILTO.fullmatch(uri) for uri in named]
    mailboxes = [unquote(match[1]) for match in matches if match is not None]
    usable = dict.fromkeys(one for one in mailboxes if one.isascii() and one.isprintable())
    urls = dict.fromkeys(url for url in map(_https, named) if url is not None)
    return ReportDestinations(tuple(usable)[:MAX_DESTINATIONS], tuple(urls)[:MAX_DESTINATIONS])


def _https(uri: str) -> str | None:
    """Return an https URL as it was given, without its fragment; None if it is not one."""
    if len(uri) > MAX_URL or not uri.isascii() or uri[:8].lower() != "https://":
        return None
    try:
        url = yarl.URL(uri)
    except ValueError:
        return None
    named = f"https://{uri[8:].partition('#')[0]}"
    return named if url.host and url.user is None and url.password is None else None


def due_at(day: date, domain: str, midnight: datetime) -> datetime:
    """Return when the report of `day` goes out: spread by domain over the hours after `midnight`, its end."""
    digest = blake2b(f"{day} {domain}".encode(), digest_size=4).digest()
    return midnight + timedelta(seconds=int.from_bytes(digest, "big") % SPREAD_S)


def document(report: DailyTlsReport) -> dict[str, Any]:
    """The report as JSON has it (RFC 8460 4.4)."""
    begin = f"{report.day.isoformat()}T00:00:00Z"
    end = f"{report.day.isoformat()}T23:59:59Z"
    kinds = sorted({one.policy for one in report.counts})
    return {
        "organization-name": report.submitter,
        "date-range": {"start-datetime": begin, "end-datetime": end},
        "contact-info": report.contact,
        "report-id": report.id,
        "policies": [_policy(report, kind) for kind in kinds],
    }


def _policy(report: DailyTlsReport, kind: str) -> dict[str, Any]:
    counts = [one for one in report.counts if one.policy == kind]
    failures = [one for one in counts if one.result != "success"]
    policy: dict[str, Any] = {"policy-type": kind, "policy-domain": report.domain}
    if kind == "sts" and report.policy_text is not None:
        lines = [line.strip() for line in report.policy_text.splitlines() if line.strip()]
        policy["policy-string"] = lines
        patterns = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("mx:")]
        if patterns:
            policy["mx-host"] = patterns
    shown: dict[str, Any] = {
        "policy": policy,
        "summary": {
            "total-successful-session-count": sum(one.sessions for one in counts if one.result == "success"),
            "total-failure-session-count": sum(one.sessions for one in failures),
        },
    }
    if failures:
        most = sorted(failures, key=lambda one: -one.sessions)[:MAX_DETAILS]
        shown["failure-details"] = [_detail(one) for one in most]
    return shown


def _detail(one: SessionCount) -> dict[str, Any]:
    known = {"receiving-mx-hostname": one.mx, "receiving-ip": one.ip, "failure-reason-code": one.reason}
    return {
        "result-type": one.result,
        "failed-session-count": one.sessions,
        **{name: value for name, value in known.items() if value},
    }


def packed(report: DailyTlsReport) -> bytes:
    """The document, compressed: what is attached to a mail, and what is posted."""
    return gzip.compress(orjson.dumps(document(report)), mtime=0)


def compose(report: DailyTlsReport, to: str, at: datetime) -> bytes:
    """The mail to one mailbox, CRLF throughout: `multipart/report` of RFC 8460 5.3, the JSON compressed."""
    begin = int(datetime(report.day.year, report.day.month, report.day.day, tzinfo=at.tzinfo).timestamp())
    name = f"{report.submitter}!{report.domain}!{begin}!{begin + 86_399}.json.gz"
    mail = MIMEMultipart("report", report_type="tlsrpt")
    mail["From"] = report.contact
    mail["To"] = to
    mail["Date"] = format_datetime(at)
    mail["Subject"] = f"Report Domain: {report.domain} Submitter: {report.submitter} Report-ID: <{report.id}>"
    mail["TLS-Report-Domain"] = report.domain
    mail["TLS-Report-Submitter"] = report.submitter
    mail["Auto-Submitted"] = "auto-generated"
    mail.attach(MIMEText(_words(report), "plain", "us-ascii"))
    attached = MIMEApplication(packed(report), "tlsrpt+gzip")
    attached.add_header("Content-Disposition", "attachment", filename=name)
    mail.attach(attached)
    return mail.as_bytes(policy=SMTP)


def _words(report: DailyTlsReport) -> str:
    failed = sum(one.sessions for one in report.counts if one.result != "success")
    total = sum(one.sessions for one in report.counts)
    return (
        f"This is a TLS report (RFC 8460) from {report.submitter} about mail to {report.domain}.\n"
        f"On {report.day.isoformat()} (UTC) {total} TLS sessions were counted; {failed} of them failed.\n"
        "The attached file tells which and why.\n"
    )
