"""Complaints: ARF in the forms of its senders, redacted and malformed ones, and Microsoft's."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base.secrets import DerivedKey
from engine.mail.feedback_reports import FeedbackReport, FeedbackType, read_feedback_report
from engine.mail.return_path import return_path

KEY = DerivedKey(b"k" * 32)
PATH = return_path(KEY, UUID("01900000-0000-7000-8000-000000000002"), 1, "bounces.mail.example")
TOKEN = PATH.partition("@")[0].removeprefix("b+")
MESSAGE = f"""Return-Path: <{PATH}>
Received: from out1.mail.example by mx.provider.example; Mon, 2 Nov 2026 09:12:01 +0000
From: Shop <orders@shop.example>
To: ann@provider.example
Subject: Offer
Message-ID: <abc123@shop.example>
Feedback-ID: offers:announcements:shop.example:sender1
CFBL-Feedback-ID: {TOKEN}

Buy now.
"""
FIELDS = f"""Feedback-Type: abuse
User-Agent: SomeGenerator/1.0
Version: 1
Original-Mail-From: <{PATH}>
Original-Rcpt-To: <ann@provider.example>
Arrival-Date: Mon, 2 Nov 2026 10:12:01 +0100
Source-IP: 192.0.2.10
Reported-Domain: shop.example
Reported-Domain: mail.example
Incidents: 3
"""


def arf(
    fields: str = FIELDS,
    third: str | None = MESSAGE,
    *,
    kind: str = "message/rfc822",
    report: str = "multipart/report; report-type=feedback-report",
    fields_kind: str = "message/feedback-report",
) -> bytes:
    parts = [
        ("text/plain", "This is an email abuse report for an email message received from IP 192.0.2.10.\n"),
        (fields_kind, fields),
    ]
    if third is not None:
        parts.append((kind, third))
    body = "".join(f"--B\nContent-Type: {one}\n\n{text}\n" for one, text in parts)
    head = f'From: fbl@provider.example\nTo: fbl@mail.example\nContent-Type: {report}; boundary="B"\n\n'
    return f"{head}{body}--B--\n".replace("\n", "\r\n").encode()


def read(raw: bytes) -> FeedbackReport:
    found = read_feedback_report(raw)
    assert found is not None
    return found


def test_a_complete_report_leads_back_by_every_way() -> None:
    found = read(arf())

    assert found.type is FeedbackType.ABUSE
    assert found.return_path == PATH
    assert found.tokens == (TOKEN,)
    assert found.recipients == ("ann@provider.example",)
    assert found.arrived == datetime(2026, 11, 2, 9, 12, 1, tzinfo=UTC)
    assert found.reported_domains == ("shop.example", "mail.example")
    assert (found.source_ip, found.count) == ("192.0.2.10", 3)
    [message] = found.messages
    assert message.message_id == "abc123@shop.example"
    assert message.feedback_id == "offers:announcements:shop.example:sender1"
    assert message.cfbl_feedback_id == TOKEN
    assert message.sender == "orders@shop.example"


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("abuse", FeedbackType.ABUSE), ("Abuse", FeedbackType.ABUSE), ("fraud", FeedbackType.FRAUD),
        ("virus", FeedbackType.VIRUS), ("other", FeedbackType.OTHER), ("not-spam", FeedbackType.NOT_SPAM),
        ("auth-failure", FeedbackType.AUTH_FAILURE), ("opt-out", FeedbackType.OPT_OUT),
        ("opt-out-list", FeedbackType.OPT_OUT_LIST), ("miscategorized", FeedbackType.MISCATEGORIZED),
        ("x-new-thing", FeedbackType.OTHER), ("", FeedbackType.ABUSE),
    ],
)  # fmt: skip
def test_the_type_is_read_and_an_unknown_one_is_other(declared: str, expected: FeedbackType) -> None:
    assert read(arf(FIELDS.replace("abuse", declared, 1))).type is expected


def test_redacted_recipients_are_left_out() -> None:
    hidden = FIELDS.replace("ann@provider.example", "[redacted]")
    found = read(arf(hidden, MESSAGE.replace("ann@provider.example", "redacted@provider.example")))

    assert found.recipients == ()
    assert found.tokens == (TOKEN,)


def test_the_recipient_of_the_message_counts_if_the_report_names_none() -> None:
    found = read(arf("Feedback-Type: abuse\nVersion: 0.1\n"))
    assert found.recipients == ("ann@provider.example",)
    assert found.return_path == PATH


@pytest.mark.parametrize("third", [None, ""])
def test_a_report_without_its_third_part_counts(third: str | None) -> None:
    found = read(arf(third=third))
    assert found.tokens == (TOKEN,)
    assert found.messages == ()


@pytest.mark.parametrize("kind", ["text/rfc822-headers", "message/rfc822-headers", "message/global", "text/plain"])
def test_headers_alone_and_other_types_of_the_third_part_are_read(kind: str) -> None:
    [message] = read(arf("Feedback-Type: abuse\n", MESSAGE, kind=kind)).messages
    assert message.message_id == "abc123@shop.example"


@pytest.mark.parametrize(
    "raw",
    [
        arf(report="multipart/mixed"),
        arf(report="multipart/report", fields_kind="text/plain"),
        arf("\n\n" + FIELDS.replace("\n", "\n\n")),
        arf(report="multipart/report; report-type=\"feedback-report\"", fields_kind="application/octet-stream"),
    ],
    ids=["mixed", "fields as text", "blank lines between fields", "fields of an unknown type"],
)  # fmt: skip
def test_malformed_reports_count(raw: bytes) -> None:
    found = read(raw)
    assert found.type is FeedbackType.ABUSE
    assert found.tokens == (TOKEN,)


def test_several_messages_in_one_report_are_all_read() -> None:
    second = MESSAGE.replace("abc123", "def456")
    parts = f"{MESSAGE}\n--B\nContent-Type: message/rfc822\n\n{second}"
    assert [one.message_id for one in read(arf(third=parts)).messages] == ["abc123@shop.example", "def456@shop.example"]


def test_a_message_inside_the_message_in_base64_is_read() -> None:
    encoded = MESSAGE.encode().hex()  # no base64, nor anything else: the report still counts
    found = read(arf(third=encoded))
    assert found.type is FeedbackType.ABUSE


def test_microsofts_forwarded_message_counts_as_abuse() -> None:
    inner = MESSAGE.replace("Subject:", "X-HmXmrOriginalRecipient: <ann@outlook.example>\nSubject:")
    raw = (
        "From: staff@hotmail.com\nTo: fbl@mail.example\nSubject: complaint about message from 192.0.2.10\n"
        'Content-Type: multipart/mixed; boundary="B"\n\n--B\nContent-Type: message/rfc822\n'
        f"Content-Disposition: inline\n\n{inner}\n--B--\n"
    )
    found = read(raw.replace("\n", "\r\n").encode())

    assert found.type is FeedbackType.ABUSE
    assert found.recipients == ("ann@outlook.example",)
    assert found.messages[0].message_id == "abc123@shop.example"
    assert found.tokens == (TOKEN,)


@pytest.mark.parametrize(
    "raw", [b"", b"From: ann@b.example\r\nSubject: Re: Offer\r\n\r\nStop this spam.\r\n", MESSAGE.encode()]
)
def test_what_is_no_complaint_is_none(raw: bytes) -> None:
    assert read_feedback_report(raw) is None


@given(st.binary(max_size=600), st.integers(0, 1_500))
def test_arbitrary_octets_raise_nothing(octets: bytes, at: int) -> None:
    raw = arf()
    read_feedback_report(octets)
    read_feedback_report(raw[:at] + octets + raw[at:])
