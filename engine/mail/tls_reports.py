"""Read SMTP TLS reports (RFC 8460): sessions and failures by policy. The content is JSON, unpacked by `unpack.py`."""

from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

MAX_OCTETS: Final = 50 * 1024 * 1024
MAX_POLICIES: Final = 10_000
MAX_FAILURES: Final = 100_000  # rows of all policies together
MAX_SESSIONS: Final = 1_000_000_000_000  # of one row
MAX_TEXT: Final = 512  # characters of one value; longer ones are cut
_MAX_COMMAS: Final = 2_000_000  # bounds the values, and so the memory, of a document

Text = str | int | float | bool | None
T = TypeVar("T")


class BadTlsReport(ValueError):  # noqa: N818 - named for what was given
    """The content is no TLS report, or exceeds a limit; the message says why."""


class ReportedTlsFailure(Struct, frozen=True):
    """Failed sessions of one kind; `result_type` is a word of RFC 8460 4.3 or the reporter's own, in lower case."""

    result_type: str
    sessions: int
    sending_mta_ip: str
    receiving_mx: str
    receiving_ip: str
    reason: str


class TlsPolicyReport(Struct, frozen=True):
    """The sessions to one domain under one policy; `policy_type` is `tlsa`, `sts` or `no-policy-found`."""

    policy_type: str
    policy_domain: str
    mx_hosts: tuple[str, ...]
    successful: int
    failed: int
    failures: tuple[ReportedTlsFailure, ...]


class TlsReport(Struct, frozen=True):
    """A TLS report. `begin` and `end` are None if the report has no valid date; `skipped` counts unreadable entries."""

    reporter: str
    contact: str
    report_id: str
    begin: datetime | None
    end: datetime | None
    policies: tuple[TlsPolicyReport, ...]
    skipped: int


class _DateRange(Struct, rename="kebab"):
    start_datetime: Text = None
    end_datetime: Text = None


class _TlsReportDocument(Struct, rename="kebab"):
    organization_name: Text = None
    contact_info: Text = None
    report_id: Text = None
    date_range: _DateRange | None = None
    policies: list[msgspec.Raw] | None = None


class _TlsPolicyFields(Struct, rename="kebab"):
    policy_type: Text = None
    policy_domain: Text = None
    mx_host: list[Text] | str | None = None


class _TlsSummaryFields(Struct, rename="kebab"):
    total_successful_session_count: Text = None
    total_failure_session_count: Text = None


class _TlsPolicyEntry(Struct, rename="kebab"):
    policy: _TlsPolicyFields | None = None
    summary: _TlsSummaryFields | None = None
    failure_details: list[msgspec.Raw] | None = None


class _TlsFailureFields(Struct, rename="kebab"):
    result_type: Text = None
    sending_mta_ip: Text = None
    receiving_mx_hostname: Text = None
    receiving_ip: Text = None
    failed_session_count: Text = None
    additional_information: Text = None
    additional_info_uri: Text = None
    failure_reason_code: Text = None


_report = msgspec.json.Decoder(_TlsReportDocument)
_entry = msgspec.json.Decoder(_TlsPolicyEntry)
_failure = msgspec.json.Decoder(_TlsFailureFields)


def read_tls_report(content: bytes) -> TlsReport:
    """Read a report; entries of a wrong shape are counted in `skipped`. Raises BadTlsReport."""
    if len(content) > MAX_OCTETS or content.count(b",") > _MAX_COMMAS:
        raise BadTlsReport("The TLS report is too large: at most 50 MiB and 2,000,000 values are allowed.")
    found = _decoded(_report, content.removeprefix(b"\xef\xbb\xbf"))
    if found is None or found.policies is None:
        raise BadTlsReport(
            'The content isn\'t a TLS report: a JSON object with "policies" was expected (RFC 8460 4.4).'
        )
    if len(found.policies) > MAX_POLICIES:
        raise BadTlsReport(f"The TLS report has more than {MAX_POLICIES} policies.")
    dates = found.date_range or _DateRange()
    policies, skipped = _policies(found.policies)
    return TlsReport(
        reporter=_text(found.organization_name), contact=_text(found.contact_info), report_id=_text(found.report_id),
        begin=_time(dates.start_datetime), end=_time(dates.end_datetime), policies=policies, skipped=skipped,
    )  # fmt: skip


def _policies(entries: list[msgspec.Raw]) -> tuple[tuple[TlsPolicyReport, ...], int]:
    policies: list[TlsPolicyReport] = []
    rows = skipped = 0
    for raw in entries:
        entry = _decoded(_entry, raw)
        if entry is None or entry.policy is None:
            skipped += 1
            continue
        details = entry.failure_details or []
        rows += len(details)
        if rows > MAX_FAILURES:
            raise BadTlsReport(f"The TLS report has more than {MAX_FAILURES} rows of failures.")
        failures = [_row(failure) for failure in (_decoded(_failure, detail) for detail in details) if failure]
        skipped += len(details) - len(failures)
        policies.append(_policy_report(entry.policy, entry.summary or _TlsSummaryFields(), failures))
    return tuple(policies), skipped


def _policy_report(
    policy: _TlsPolicyFields, summary: _TlsSummaryFields, failures: list[ReportedTlsFailure]
) -> TlsPolicyReport:
    mx_host = policy.mx_host or []
    hosts = mx_host if isinstance(mx_host, list) else [mx_host]
    return TlsPolicyReport(
        policy_type=_text(policy.policy_type).lower(),
        policy_domain=_text(policy.policy_domain).lower().strip(" ."),
        mx_hosts=tuple(_text(host).lower() for host in hosts[:100]),
        successful=_number(summary.total_successful_session_count),
        failed=_number(summary.total_failure_session_count),
        failures=tuple(failures),
    )


def _row(failure: _TlsFailureFields) -> ReportedTlsFailure:
    return ReportedTlsFailure(
        result_type=_text(failure.result_type).lower(),
        sessions=_number(failure.failed_session_count),
        sending_mta_ip=_text(failure.sending_mta_ip),
        receiving_mx=_text(failure.receiving_mx_hostname).lower().strip(" ."),
        receiving_ip=_text(failure.receiving_ip),
        reason=_text(failure.failure_reason_code or failure.additional_information or failure.additional_info_uri),
    )


def _decoded(decoder: "msgspec.json.Decoder[T]", content: Any) -> T | None:
    try:
        return decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return None


def _text(value: Text) -> str:
    """Return a value as text that can be stored: cut, without NUL and lone surrogates."""
    text = "" if value is None else str(value)[:MAX_TEXT].replace("\0", " ")
    return text.encode("utf-8", "replace").decode().strip()


def _number(value: Text) -> int:
    """Return a count of sessions, also one written as text; 0 if it is missing or out of range."""
    if isinstance(value, str):
        text = value.strip()
        value = int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else 0
    return int(value) if isinstance(value, int | float) and 0 <= value <= MAX_SESSIONS else 0


def _time(value: Text) -> datetime | None:
    try:
        found = datetime.fromisoformat(_text(value))
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
