"""Mail that programs wrote, and mail to many, are told from mail between people."""

import pytest

from engine.mail.received import summarise

FROM = "From: Ann <ann@people.test>\r\n"
PART = "\r\n\r\n--r\r\n\r\nText.\r\n--r\r\nContent-Type: {kind}\r\n\r\nStatus: 5.1.1\r\n--r--\r\n"


@pytest.mark.parametrize(
    "head",
    [
        "Auto-Submitted: auto-replied", "Auto-Submitted: (x) auto-generated; y=z", "X-Autoreply: yes",
        "X-Autorespond: x", "X-Auto-Reply-From: x", "Precedence: auto_reply", "X-Auto-Response-Suppress: All",
        "X-Auto-Response-Suppress: DR, OOF, AutoReply",
        "X-MS-Exchange-Generated-Message-Source: Mailbox Rules Agent", "Subject: Automatic reply: Offer",
        "Subject: =?utf-8?q?R=C3=A9ponse_automatique=C2=A0:_Offre?=", "Subject: Automatische Antwort: Angebot",
        "X-Failed-Recipients: x@people.test", "Return-Path: <>", "Auto-Submitted: no\r\nReturn-Path: < >",
        "Content-Type: multipart/report; boundary=r" + PART.format(kind="message/delivery-status"),
        "Content-Type: (x) multipart/report; boundary=r" + PART.format(kind="message/feedback-report"),
        "Content-Type: multipart/mixed; boundary=r" + PART.format(kind="message/disposition-notification"),
        "Content-Type: message/delivery-status\r\n\r\nStatus: 5.1.1",
    ],
)  # fmt: skip
def test_mail_that_a_program_wrote_is_auto_submitted(head: str) -> None:
    assert summarise(f"{FROM}{head}\r\n\r\nx".encode()).auto_submitted


def test_mail_of_a_mail_daemon_is_auto_submitted() -> None:
    for sender in (
        "MAILER-DAEMON@mx.people.test (Mail Delivery System)",
        "Mailer-Daemon",
        "<mailer-daemon@people.test>",
        "Mail Delivery System <>",
    ):
        assert summarise(f"From: {sender}\r\nSubject: Undelivered\r\n\r\nx".encode()).auto_submitted


@pytest.mark.parametrize(
    "head",
    [
        "Subject: Offer", "Auto-Submitted: no",
        "X-Autoreply: no", "Auto-Submitted: (auto) no", "X-Auto-Response-Suppress: None",
        "Precedence: bulk", "List-Id: <list.people.test>", "Subject: Re: Automatic reply: Offer",
        "Content-Type: multipart/mixed; boundary=r" + PART.format(kind="message/rfc822"),
        "Auto-Submitted: no\r\nX-Auto-Response-Suppress: All",
    ],
)  # fmt: skip
def test_mail_that_a_person_wrote_is_not(head: str) -> None:
    assert not summarise(f"{FROM}{head}\r\n\r\nx".encode()).auto_submitted


@pytest.mark.parametrize(
    ("head", "bulk"),
    [
        ("Precedence: bulk", True), ("Precedence: LIST", True), ("Precedence: junk", True),
        ("List-Id: <l.people.test>", True),
        ("List-Unsubscribe: <mailto:x@people.test>", True), ("X-Mailing-List: l@people.test", True),
        ("Precedence: first-class", False), ("Precedence: auto_reply", False), ("Subject: list", False),
    ],
)  # fmt: skip
def test_mail_to_many_is_bulk(head: str, bulk: bool) -> None:
    assert summarise(f"{FROM}{head}\r\n\r\nx".encode()).bulk is bulk
