"""TLS reports (RFC 8460): what they say, to whom they go, and that each goes out once."""

import email
import gzip
import json
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, time, timedelta
from email.message import Message
from typing import Any

import pytest
from msgspec import structs

from engine.base import clock
from engine.base.settings import BadSetting, Settings, load
from mta.outbound.tls.report_mail import SPREAD_S, DailyTlsReport, SessionCount, compose, destinations, document, due_at
from mta.outbound.tls.reporting import send_due
from tests.conftest import NewDatabase
from tests.harness.outbound import World, world

DAY = date(2026, 11, 19)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
COUNTS = [
    SessionCount("sts", "success", "mx.b.test", "192.0.2.1", "", 5_326),
    SessionCount("sts", "certificate-expired", "mx1.b.test", "192.0.2.2", "it expired on 2026-11-01", 100),
    SessionCount("sts", "sts-policy-fetch-error", "", "", "no answer within 20 s", 3),
    SessionCount("tlsa", "success", "mx.b.test", "192.0.2.1", "", 7),
]
POLICY = "version: STSv1\r\nmode: enforce\r\nmx: *.b.test\r\nmax_age: 86400\r\n"
REPORT = DailyTlsReport(
    day=DAY, domain="b.test", counts=COUNTS, policy_text=POLICY, submitter="mail.a.test", contact="tls@a.test"
)


def parts(raw: bytes) -> tuple[Message, dict[str, Any]]:
    mail = email.message_from_bytes(raw)
    payload = mail.get_payload()
    assert isinstance(payload, list)
    packed = payload[1]
    assert isinstance(packed, Message)
    octets = packed.get_payload(decode=True)
    assert isinstance(octets, bytes)
    return mail, json.loads(gzip.decompress(octets))


def test_the_document_counts_by_policy_and_tells_each_failure() -> None:
    found = document(REPORT)

    assert found["date-range"] == {"start-datetime": "2026-11-19T00:00:00Z", "end-datetime": "2026-11-19T23:59:59Z"}
    assert (found["organization-name"], found["contact-info"]) == ("mail.a.test", "tls@a.test")
    sts, tlsa = found["policies"]
    assert sts["policy"] == {
        "policy-type": "sts", "policy-domain": "b.test", "mx-host": ["*.b.test"],
        "policy-string": ["version: STSv1", "mode: enforce", "mx: *.b.test", "max_age: 86400"],
    }  # fmt: skip
    assert sts["summary"] == {"total-successful-session-count": 5_326, "total-failure-session-count": 103}
    assert sts["failure-details"] == [
        {"result-type": "certificate-expired", "failed-session-count": 100, "receiving-mx-hostname": "mx1.b.test",
         "receiving-ip": "192.0.2.2", "failure-reason-code": "it expired on 2026-11-01"},
        {"result-type": "sts-policy-fetch-error", "failed-session-count": 3,
         "failure-reason-code": "no answer within 20 s"},
    ]  # fmt: skip
    assert tlsa["policy"] == {"policy-type": "tlsa", "policy-domain": "b.test"}
    assert "failure-details" not in tlsa


def test_the_mail_is_a_report_with_the_compressed_document() -> None:
    raw = compose(REPORT, "rua@b.test", NOON)
    mail, found = parts(raw)

    assert found == document(REPORT)
    assert mail.get_content_type() == "multipart/report"
    assert mail.get_param("report-type") == "tlsrpt"
    assert (mail["TLS-Report-Domain"], mail["TLS-Report-Submitter"]) == ("b.test", "mail.a.test")
    subject = " ".join(str(mail["Subject"]).split())
    assert subject == f"Report Domain: b.test Submitter: mail.a.test Report-ID: <{REPORT.id}>"
    attached = mail.get_payload()
    assert isinstance(attached, list)
    packed = attached[1]
    assert isinstance(packed, Message)
    assert packed.get_content_type() == "application/tlsrpt+gzip"
    assert packed.get_filename() == "mail.a.test!b.test!1795046400!1795132799.json.gz"
    assert b"\n" not in raw.replace(b"\r\n", b"")
    assert max(map(len, raw.split(b"\r\n"))) <= 998


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([b"v=TLSRPTv1; rua=mailto:r@b.test"], ["r@b.test"]),
        ([b"v=TLSRPTv1;rua=https://b.test/r,mailto:r@b.test , mailto:s%2Bt@b.test"],
         ["r@b.test", "s+t@b.test", "https://b.test/r"]),
        ([b"v=spf1 -all", b"v=TLSRPTv1; rua=mailto:r@b.test;"], ["r@b.test"]),
        ([b"v=TLSRPTv1; rua=mailto:a@b.test", b"v=TLSRPTv1; rua=mailto:c@b.test"], []),
        ([b"v=TLSRPTv1; rua=https://b.test/only"], ["https://b.test/only"]),
        ([b"v=TLSRPTv1; rua=HTTPS://b.test:8443/r?x=a%2Cb#part,https://b.test:8443/r?x=a%2Cb"],
         ["https://b.test:8443/r?x=a%2Cb"]),
        ([b"v=TLSRPTv1; rua=https://b.test/1,https://b.test/2,https://b.test/1"],
         ["https://b.test/1", "https://b.test/2"]),
        ([b"v=TLSRPTv1; rua=http://b.test/r,ftp://b.test/r,https://,https://u:p@b.test/r,https://[/r"], []),
        ([b"v=TLSRPTv2; rua=mailto:r@b.test"], []),
        ([b"v=TLSRPTv1"], []),
        ([b"v=TLSRPTv1; rua=mailto:\xff@b.test"], []),
        ([b"v=TLSRPTv1; rua=" + b",".join(b"mailto:%d@b.test" % n for n in range(9))],
         [f"{n}@b.test" for n in range(4)]),
        ([b"v=TLSRPTv1; rua=mailto:r@b.test" + b" " * 3_000], []),
        ([], []),
    ],
)  # fmt: skip
def test_who_wants_reports(records: list[bytes], expected: list[str]) -> None:
    found = destinations(records)
    assert [*found.mailboxes, *found.urls] == expected


def test_reports_go_out_spread_over_the_hours_after_midnight() -> None:
    midnight = datetime(2026, 11, 20, tzinfo=UTC)
    moments = {due_at(DAY, f"d{n}.test", midnight) for n in range(200)}
    assert all(midnight <= moment < midnight + timedelta(seconds=SPREAD_S) for moment in moments)
    assert len(moments) > 190


def test_the_setting_must_be_an_address() -> None:
    assert load({"WAYBILL_TLS_REPORT_FROM": "tls@a.test"}).settings.tls_report_from == "tls@a.test"
    for wrong in ("a.test", "@a.test", "a b@a.test"):
        with pytest.raises(BadSetting):
            load({"WAYBILL_TLS_REPORT_FROM": wrong})


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> AsyncIterator[World]:
    """A world with a queue of its own, in which yesterday's sessions with peer.test have been counted."""
    async with world(settings, await new_database()) as made:
        for one in COUNTS:
            await made.pool.execute(
                "INSERT INTO tls_days (day, domain, policy, result, mx, ip, reason, sessions) "
                "VALUES ($1, 'peer.test', $2, $3, $4, $5, $6, $7)",
                yesterday(), one.policy, one.result, one.mx, one.ip, one.reason, one.sessions,
            )  # fmt: skip
        yield made


def yesterday() -> date:
    return clock.now().date() - timedelta(days=1)


def evening() -> datetime:
    return datetime.combine(clock.now().date(), time(23), UTC)


async def test_a_report_goes_through_acceptance_signed_and_only_once(here: World) -> None:
    here.dns.set("_smtp._tls.peer.test", "TXT", ["v=TLSRPTv1; rua=mailto:rua@peer.test"])
    own = structs.replace(here.settings, tls_report_from=f"tls@{here.account.domain}")
    assert await send_due(here.pool, own, evening()) == 1
    assert await send_due(here.pool, own, evening()) == 0
    await here.pool.execute("DELETE FROM tls_reports")  # as if it had died right after the acceptance
    assert await send_due(here.pool, own, evening()) == 1
    assert await here.pool.fetchval("SELECT count(*) FROM messages") == 1
    assert await here.pool.fetchval("SELECT min_tls FROM queue") == "none"
    await here.mta()
    await here.sink.until(1)

    received = here.sink.messages[0]
    mail, found = parts(received.content)
    assert mail["From"] == f"tls@{here.account.domain}"
    assert mail["To"] == "rua@peer.test"
    assert "DKIM-Signature" in mail
    assert found["policies"][0]["summary"]["total-failure-session-count"] == 103
    row = await here.pool.fetchrow("SELECT day, domain, sent_to FROM tls_reports")
    assert row is not None
    assert tuple(row) == (yesterday(), "peer.test", ["rua@peer.test"])


async def test_nothing_is_sent_without_a_sender_or_before_its_time(here: World) -> None:
    here.dns.set("_smtp._tls.peer.test", "TXT", ["v=TLSRPTv1; rua=mailto:rua@peer.test"])
    assert await send_due(here.pool, here.settings, evening()) == 0
    own = structs.replace(here.settings, tls_report_from="tls@stranger.test")
    assert await send_due(here.pool, own, evening()) == 0
    mine = structs.replace(here.settings, tls_report_from=f"tls@{here.account.domain}")
    before = due_at(yesterday(), "peer.test", datetime.combine(clock.now().date(), time(), UTC))
    assert await send_due(here.pool, mine, before - timedelta(seconds=1)) == 0
    assert await here.pool.fetchval("SELECT count(*) FROM messages") == 0
    assert await here.pool.fetchval("SELECT count(*) FROM tls_reports") == 0


async def test_a_domain_that_asks_for_none_is_not_asked_again(here: World) -> None:
    here.dns.set("_smtp._tls.peer.test", "TXT", ["v=TLSRPTv1; rua=ftp://peer.test/r"])
    own = structs.replace(here.settings, tls_report_from=f"tls@{here.account.domain}")
    assert await send_due(here.pool, own, evening()) == 0
    assert await here.pool.fetchval("SELECT sent_to FROM tls_reports") == []
    assert await here.pool.fetchval("SELECT count(*) FROM tls_report_posts") == 0


async def test_an_exhausted_allowance_puts_the_report_off(here: World) -> None:
    here.dns.set("_smtp._tls.peer.test", "TXT", ["v=TLSRPTv1; rua=mailto:rua@peer.test"])
    own = structs.replace(here.settings, tls_report_from=f"tls@{here.account.domain}")
    await here.pool.execute("UPDATE accounts SET daily_cap = 0 WHERE id = $1", here.account.id)
    assert await send_due(here.pool, own, evening()) == 0
    await here.pool.execute("UPDATE accounts SET daily_cap = 10 WHERE id = $1", here.account.id)
    assert await send_due(here.pool, own, evening()) == 1
