"""SMTP TLS reports (RFC 8460): sessions and failures, lenient shapes, limits."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.tls_reports import MAX_POLICIES, BadTlsReport, ReportedTlsFailure, read_tls_report

FAILURE: dict[str, Any] = {
    "result-type": "certificate-expired",
    "sending-mta-ip": "2001:db8::1",
    "receiving-mx-hostname": "MX.example.com.",
    "receiving-ip": "192.0.2.1",
    "failed-session-count": 3,
    "additional-information": "https://reporter.example/1",
    "failure-reason-code": "expired on 1 Nov",
}
POLICY: dict[str, Any] = {
    "policy": {
        "policy-type": "sts",
        "policy-string": ["version: STSv1", "mode: testing"],
        "policy-domain": "Example.com",
        "mx-host": ["*.mail.example.com"],
    },
    "summary": {"total-successful-session-count": 5_326, "total-failure-session-count": 3},
    "failure-details": [FAILURE],
}
REPORT: dict[str, Any] = {
    "organization-name": "Reporter",
    "date-range": {"start-datetime": "2026-11-01T00:00:00Z", "end-datetime": "2026-11-01T23:59:59Z"},
    "contact-info": "tls@reporter.example",
    "report-id": "r-1",
    "policies": [POLICY],
}


def with_policy(**fields: Any) -> bytes:
    return orjson.dumps(REPORT | {"policies": [POLICY | fields]})


def test_a_report_is_read() -> None:
    found = read_tls_report(orjson.dumps(REPORT))

    assert (found.reporter, found.contact, found.report_id) == ("Reporter", "tls@reporter.example", "r-1")
    assert (found.begin, found.end) == (
        datetime(2026, 11, 1, tzinfo=UTC),
        datetime(2026, 11, 1, 23, 59, 59, tzinfo=UTC),
    )
    [policy] = found.policies
    assert (policy.policy_type, policy.policy_domain, policy.mx_hosts) == (
        "sts",
        "example.com",
        ("*.mail.example.com",),
    )
    assert (policy.successful, policy.failed) == (5_326, 3)
    assert policy.failures == (
        ReportedTlsFailure("certificate-expired", 3, "2001:db8::1", "mx.example.com", "192.0.2.1", "expired on 1 Nov"),
    )


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + orjson.dumps(REPORT), orjson.dumps(REPORT | {"x": [[[{}]]]}),
        with_policy(summary={"total-successful-session-count": "5326", "total-failure-session-count": "3"}),
        with_policy(policy=POLICY["policy"] | {"mx-host": "*.mail.example.com", "policy-string": "version: STSv1"}),
        with_policy(policy=POLICY["policy"] | {"policy-string": None}, extra=1),
        with_policy(**{"failure-details": [FAILURE, 5, None, "x"]}),
        orjson.dumps(REPORT | {"policies": [POLICY, 7, {}, {"policy": 3}, None]}),
    ],
    ids=["bom", "unknown fields", "numbers as text", "strings for lists", "null", "odd failures", "odd policies"],
)  # fmt: skip
def test_lenient_shapes_give_the_same_sums(content: bytes) -> None:
    [policy] = read_tls_report(content).policies
    assert (policy.successful, policy.failed, policy.mx_hosts) == (5_326, 3, ("*.mail.example.com",))
    assert [failure.sessions for failure in policy.failures] == [3]


def test_what_is_skipped_is_counted() -> None:
    content = orjson.dumps(REPORT | {"policies": [POLICY | {"failure-details": [FAILURE, 5]}, 7]})
    assert read_tls_report(content).skipped == 2


@pytest.mark.parametrize("count", [-1, 1e300, "many", True, None, 10**15])
def test_counts_that_are_none_are_zero_or_one(count: object) -> None:
    [policy] = read_tls_report(with_policy(summary={"total-successful-session-count": count})).policies
    assert policy.successful in {0, 1}


@pytest.mark.parametrize("date", ["", "yesterday", None, 5, "2026-13-01T00:00:00Z"])
def test_a_wrong_date_is_none(date: object) -> None:
    found = read_tls_report(orjson.dumps(REPORT | {"date-range": {"start-datetime": date}}))
    assert found.begin is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"null", b"<feedback/>", b'{"policies": 5}', b'{"policies": [' * 50_000, b"\xff\xfe",
     b'{"policies": [' + b"," * 2_000_001, orjson.dumps({"policies": [1] * (MAX_POLICIES + 1)})],
)  # fmt: skip
def test_other_content_is_refused(content: bytes) -> None:
    with pytest.raises(BadTlsReport):
        read_tls_report(content)


@given(st.binary(max_size=200), st.integers(0, 700))
def test_arbitrary_octets_raise_nothing_else(octets: bytes, at: int) -> None:
    whole = orjson.dumps(REPORT)
    for content in (octets, whole[:at] + octets + whole[at:]):
        try:
            read_tls_report(content)
        except BadTlsReport:
            continue


_names = st.sampled_from([*REPORT, *POLICY, *FAILURE])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@given(_json, _json)
def test_any_json_raises_nothing_else(policies: object, dates: object) -> None:
    try:
        read_tls_report(orjson.dumps(REPORT | {"policies": [policies, POLICY], "date-range": dates}, default=str))
    except (BadTlsReport, TypeError):
        return
