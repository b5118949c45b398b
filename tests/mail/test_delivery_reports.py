"""Delivery reports: fields of RFC 3464 and RFC 6533, outcomes, and octets of any kind."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.delivery.outcome import Category, Scope, Verdict
from engine.delivery.reported import outcome_of
from engine.mail.delivery_reports import Action, RecipientReport, ReportKind, read_delivery_report
from engine.mail.delivery_status import address_of, quoted_reply, read_status, status_in
from engine.mail.replies import Phase
from engine.mail.report_parts import MAX_PARTS
from tests.mail.bounce_files import FILES


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("rfc822; ann@b.example", "ann@b.example"),
        ("RFC822;<ann@b.example>", "ann@b.example"),
        ("ann@b.example", "ann@b.example"),
        ("rfc822; ann@b.example (Ann)", "ann@b.example"),
        ('rfc822; "Ann B" <ann@b.example>', "ann@b.example"),
        ("rfc822;ann+2Btag@b.example", "ann+tag@b.example"),
        ("rfc822;ann+de@b.example", "ann+de@b.example"),
        ("utf-8; ü@b.example", "ü@b.example"),
        (r"utf-8; \x{FC}@b.example", "ü@b.example"),
        (r"utf-8; \x{D800}@b.example", "\ufffd@b.example"),
        ("smtp; ann@b.example", "ann@b.example"),
        ("", ""),
    ],
)
def test_recipient_fields(value: str, expected: str) -> None:
    assert address_of(value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5.1.1", "5.1.1"), ("5.01.001 (x)", "5.1.1"), ("#5.1.1", "5.1.1"), ("192.168.5.1.1", None),
        ("version 2.5.1.10", None), ("5.1.1.2", None), ("6.1.1", None), ("5.1.1234", None),
    ],
)  # fmt: skip
def test_status_codes_are_not_taken_from_numbers_of_other_kinds(text: str, expected: str | None) -> None:
    assert status_in(text) == expected


def test_a_quoted_reply_is_divided_into_code_and_text() -> None:
    assert quoted_reply("550-5.1.1 no\t such user") == (550, "5.1.1 no such user")
    assert quoted_reply("Mailbox full") == (None, "Mailbox full")
    assert quoted_reply("5500 messages") == (None, "5500 messages")


def test_the_address_of_the_sender_comes_before_that_of_the_forwarder() -> None:
    [found] = read_status(
        "Final-Recipient: rfc822; home@c.example\nOriginal-Recipient: rfc822; ann@b.example\nAction: failed\n"
    ).recipients
    assert (found.address, found.final) == ("ann@b.example", "home@c.example")


@pytest.mark.parametrize(
    ("fields", "action"),
    [
        ("Status: 5.1.1", Action.FAILED), ("Status: 4.4.1", Action.DELAYED), ("Status: 2.0.0", Action.DELIVERED),
        ("Action: Failed (bad)\nStatus: 4.4.7", Action.FAILED), ("Action: expanded\nStatus: 2.1.5", Action.EXPANDED),
        ("Action: relayed", Action.RELAYED), ("Action: nonsense", Action.FAILED), ("Action: delayed", Action.DELAYED),
    ],
)  # fmt: skip
def test_the_action_is_read_or_follows_from_the_status(fields: str, action: Action) -> None:
    [found] = read_status(f"Reporting-MTA: dns; a\n\nFinal-Recipient: rfc822; ann@b.example\n{fields}\n").recipients
    assert found.action is action


def test_fields_behind_stray_blank_lines_belong_to_the_recipient_and_the_first_of_a_name_counts() -> None:
    fields = [
        "Final-Recipient: rfc822; ann@b.example",
        "Status: 5.1.1",
        "Status: 4.4.1",
        "Diagnostic-Code: smtp; 550 no",
    ]
    [found] = read_status("\n\n".join(["Reporting-MTA: dns; a", *fields, "Action: failed"])).recipients
    assert (found.address, found.status, found.reply_code, found.action) == (
        "ann@b.example", "5.1.1", 550, Action.FAILED,
    )  # fmt: skip


def said(text: str, **fields: object) -> RecipientReport:
    return RecipientReport("ann@b.example", **({"action": Action.FAILED, "diagnostic": text} | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("report", "scope", "suppress"),
    [
        (said("5.1.1 User unknown", reply_code=550, status="5.1.1"), Scope.RECIPIENT, True),
        (said("", status="5.1.1"), Scope.RECIPIENT, True),
        (said("", status="5.0.0"), Scope.MESSAGE, False),
        (said(""), Scope.MESSAGE, False),
        (said("", status="5.2.2"), Scope.RECIPIENT, False),
        (said("", status="5.4.4"), Scope.SITE, False),
        (said("5.7.1 blocked by policy", reply_code=550, status="5.7.1"), Scope.MESSAGE, False),
        (said("Client host blocked using zen.spamhaus.org", reply_code=554), Scope.SITE, False),
        (said("5.1.1 User unknown, try later", reply_code=450, status="4.1.1"), Scope.RECIPIENT, False),
        (said("Postfach voll"), Scope.RECIPIENT, False),
        (said("too large", status="5.3.4"), Scope.MESSAGE, False),
        (said("5.7.26 unauthenticated", reply_code=550, status="5.7.26"), Scope.MESSAGE, False),
    ],
)
def test_only_proof_against_the_recipient_suppresses(report: RecipientReport, scope: Scope, suppress: bool) -> None:
    found = outcome_of(report)
    assert (found.verdict, found.scope, found.suppress) == (Verdict.BOUNCED, scope, suppress)


def notification(text: str, fields: str, *, kind: str = "delivery-status", part: str = "") -> bytes:
    """Return a multipart/report about ann@b.example with a text and the fields about her."""
    return (
        f"From: MAILER-DAEMON@relay.example\nSubject: Undelivered Mail\n"
        f"Content-Type: multipart/report; report-type={kind}; boundary=B\n\n"
        f"--B\nContent-Type: text/plain\n\n{text}\n"
        f"--B\nContent-Type: message/{part or kind}\n\nReporting-MTA: dns; relay.example\n\n"
        f"Final-Recipient: rfc822; ann@b.example\n{fields}\n--B--\n"
    ).replace("\n", "\r\n").encode()  # fmt: skip


_NOTICES = {  # by software, with the place of the command and of the reply
    "postfix": "<ann@b.example>: host mx.b.example[192.0.2.1] said: {reply} (in\n    reply to {postfix} command)",
    "exim": "  ann@b.example\n    host mx.b.example [192.0.2.1]\n    SMTP error from remote mail server after {exim}:\n"
    "    {reply}",
    "exim in one line": "  ann@b.example\n    SMTP error from remote mail server after pipelined {exim}: {reply}",
    "sendmail": "   ----- The following addresses had permanent fatal errors -----\n<ann@b.example>\n\n"
    "   ----- Transcript of session follows -----\n... while talking to mx.b.example.:\n>>> {exim}\n<<< {reply}",
    "session": "<ann@b.example>\n>>> EHLO relay.example\n<<< 250 mx.b.example\n>>> {exim}\n<<< {reply}\n>>> QUIT",
    "hmailserver": "ann@b.example\n   Error Type: SMTP\n   hMailServer sent: {exim}\n"
    "   Remote server replied: {reply}",
    "stalwart": "<ann@b.example> (host 'mx.b.example' rejected command '{exim}' with: {reply})",
}  # fmt: skip
_COMMANDS = {  # as Postfix and as Exim write them
    Phase.EHLO: ("EHLO", "EHLO relay.example"), Phase.MAIL: ("MAIL FROM", "MAIL FROM:<b+x@a.example>"),
    Phase.RCPT: ("RCPT TO", "RCPT TO:<ann@b.example>"), Phase.DATA: ("DATA", "DATA"),
    Phase.BODY: ("end of DATA", "end of data"),
}  # fmt: skip


@pytest.mark.parametrize("notice", _NOTICES.values(), ids=_NOTICES)
@pytest.mark.parametrize("phase", _COMMANDS)
@pytest.mark.parametrize("reply", ["550 Address rejected", "554 5.0.0 Recipient refuses the mail", "550 Rejected"])
def test_the_text_names_the_phase_of_a_bare_reply_and_only_rcpt_is_about_the_address(
    notice: str, phase: Phase, reply: str
) -> None:
    postfix, exim = _COMMANDS[phase]
    text = notice.format(reply=reply, postfix=postfix, exim=exim)

    found = read_delivery_report(notification(text, f"Action: failed\nDiagnostic-Code: smtp; {reply}"))

    [one] = found.recipients
    outcome = outcome_of(one)
    assert one.phase is phase
    assert (outcome.verdict, outcome.suppress) == (Verdict.BOUNCED, phase is Phase.RCPT and "Address" in reply)
    assert outcome.unexplained == (phase is Phase.RCPT and reply == "550 Rejected")


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("host mx.b.example[192.0.2.1] refused to talk to me: 554 go away", Phase.GREETING),
        ("192.0.2.1 does not like recipient.\nRemote host said: 550 Rejected", Phase.RCPT),
        ("192.0.2.1 failed after I sent the message.\nRemote host said: 550 Rejected", Phase.BODY),
        (">>> .\n<<< 554 Transaction failed", Phase.BODY),
        ("SMTP error from remote mail server after initial connection: 554 no", Phase.GREETING),
        ("LMTP error after RCPT TO:<ann@b.example>: 550 no", Phase.RCPT),
        ("the mail went out after dinner and was rejected: 550 Rejected", None),
    ],
)
def test_servers_name_the_phase_in_their_own_ways(text: str, phase: Phase | None) -> None:
    raw = notification(f"<ann@b.example>:\n{text}", "Action: failed\nDiagnostic-Code: smtp; 554 Transaction failed")
    [one] = read_delivery_report(raw).recipients
    assert one.phase is phase


def test_a_bare_reply_without_a_phase_is_about_the_message() -> None:
    found = outcome_of(said("Address rejected", reply_code=550))
    assert (found.verdict, found.scope, found.suppress, found.unexplained) == (
        Verdict.BOUNCED, Scope.MESSAGE, False, False,
    )  # fmt: skip


def test_the_phase_of_one_recipient_is_not_that_of_another() -> None:
    text = (
        "<ann@b.example>: host mx.b.example said: 550 Rejected (in reply to end of DATA command)\n\n"
        "<bob@b.example>: host mx.b.example said: 550 Rejected (in reply to RCPT TO command)"
    )
    second = "\n\nFinal-Recipient: rfc822; bob@b.example\nAction: failed\nDiagnostic-Code: smtp; 550 Rejected"
    raw = notification(text, "Action: failed\nDiagnostic-Code: smtp; 550 Rejected" + second)
    assert [one.phase for one in read_delivery_report(raw).recipients] == [Phase.BODY, Phase.RCPT]


@pytest.mark.parametrize(
    ("text", "status", "suppress"),
    [
        ("Host or domain name not found. Name service error for name=x.example type=A: Host not found", "5.4.4", True),
        ("DNS lookup of x.example responded with code NXDOMAIN", "5.0.0", True),
        ("x.example does not exist", None, True),
        ("Host or domain name not found. Name service error: Host not found, try again", "4.4.3", False),
        ("Sender's domain name not found", "5.4.4", False),
        ("connect to mx.b.example[192.0.2.1]:25: Connection refused", "5.4.1", False),
        ("Envelope expired", "5.0.0", False),
    ],
)  # fmt: skip
def test_a_domain_that_a_relay_does_not_find_is_dead(text: str, status: str | None, suppress: bool) -> None:
    assert outcome_of(said(text, status=status)).suppress == suppress


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("disposition-notification", ""), ("disposition-notification", "x-unknown"),
        ("delivery-status", "disposition-notification"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("disposition", ["displayed", "deleted", "deleted/error", "failed"])
def test_a_read_receipt_is_no_bounce(kind: str, part: str, disposition: str) -> None:
    fields = f"Disposition: automatic-action/MDN-sent-automatically; {disposition}\nError: 550 5.1.1 User unknown"
    raw = notification("Delivery failure? The mail to ann@b.example was deleted unread.", fields, kind=kind, part=part)

    found = read_delivery_report(raw)

    assert (found.kind, found.recipients) == (ReportKind.AUTO_REPLY, ())


def test_a_returned_read_receipt_leaves_a_bounce_a_bounce() -> None:
    receipt = notification(
        "read", "Disposition: manual-action/MDN-sent-manually; displayed", kind="disposition-notification"
    )
    status = notification("<ann@b.example>: no", "Action: failed\nStatus: 5.1.1").removesuffix(b"--B--\r\n")
    raw = status.replace(b"boundary=B", b"boundary=C").replace(b"--B", b"--C")
    raw += b"--C\r\nContent-Type: message/rfc822\r\n\r\n" + receipt + b"--C--\r\n"
    assert read_delivery_report(raw).kind is ReportKind.BOUNCE


def test_what_was_delayed_is_deferred_and_what_was_relayed_delivered() -> None:
    delayed = outcome_of(said("550 5.1.1 no such user", action=Action.DELAYED))
    relayed = outcome_of(said("", action=Action.RELAYED))
    assert (delayed.verdict, delayed.suppress) == (Verdict.DEFERRED, False)
    assert (relayed.verdict, relayed.category) == (Verdict.DELIVERED, Category.ACCEPTED)


def test_the_outcome_shows_the_reply_as_quoted() -> None:
    found = outcome_of(said("no such user", reply_code=550, status="5.1.1"))
    assert found.diagnostic == "550 5.1.1 no such user"
    assert (found.smtp_code, found.enhanced_code) == (550, "5.1.1")


def test_exim_marks_bounces_as_automatic_replies_and_they_still_count() -> None:
    raw = b"From: Mailer-Daemon@b.example\r\nAuto-Submitted: auto-replied\r\nSubject: x\r\n\r\nnot delivered:\r\n\r\n"
    assert read_delivery_report(raw + b"  ann@b.example\r\n    Unrouteable address\r\n").kind is ReportKind.BOUNCE
    assert read_delivery_report(raw.replace(b"Mailer-Daemon", b"ann")).kind is ReportKind.AUTO_REPLY


def test_what_is_returned_can_be_stored() -> None:
    raw = _STATUS.replace(b"Subject", b"In-Reply-To: =?utf-8?q?<a=00=01@b.example>?=\r\nSubject")
    found = read_delivery_report(
        raw + b"Original-Envelope-Id: a\x01\x00b\r\n\r\nFinal-Recipient: rfc822; a\x00@b.example"
    )
    for text in (found.message_id or "", found.envelope_id, found.recipients[0].address):
        assert text.isprintable()


def test_a_person_who_writes_of_a_delivery_is_no_bounce() -> None:
    raw = b"From: ann@b.example\r\nSubject: Re: Your delivery\r\n\r\nbob@b.example does not exist any more, sorry.\r\n"
    assert read_delivery_report(raw).kind is ReportKind.UNREADABLE


@given(st.binary(max_size=800))
def test_arbitrary_octets_raise_nothing(octets: bytes) -> None:
    found = read_delivery_report(octets)
    for one in found.recipients:
        outcome_of(one)


@given(st.sampled_from(FILES), st.integers(0, 4_000), st.integers(0, 200), st.binary(max_size=60))
def test_damaged_reports_raise_nothing(one: object, at: int, cut: int, octets: bytes) -> None:
    raw = one.raw  # type: ignore[attr-defined]
    found = read_delivery_report(raw[:at] + octets + raw[at + cut :])
    for recipient in found.recipients:
        outcome_of(recipient)
        recipient.address.encode()
        recipient.diagnostic.encode()


_DAEMON = b"From: mailer-daemon@b.example\r\nSubject: undeliverable\r\n"
_STATUS = (
    _DAEMON + b"Content-Type: multipart/report; boundary=B\r\n\r\n--B\r\nContent-Type: message/delivery-status\r\n\r\n"
)
_SIZE = 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (_STATUS, b"Final-Recipient: rfc822;a@b.example\r\n"),
        (_STATUS, b"Final-Recipient: rfc822;a@b.example\r\n\r\n"),
        (_DAEMON + b"\r\nundeliverable\r\n", b"<a@b.example>: 550 5.1.1 no\r\n"),
        (_DAEMON + b"\r\nundeliverable\r\n", b"to (((("),
        (_DAEMON + b"\r\nundeliverable\r\n", b"a@b.example "),
        (_DAEMON + b"Content-Type: text/html\r\n\r\n", b"<style><"),
        (_DAEMON, b"To: <a@b.example>, \r\n"),
        (b"", b"Content-Type: message/rfc822\r\n\r\n"),
        (b"", b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n"),
    ],
)
def test_hostile_reports_take_a_bounded_time(start: bytes, piece: bytes) -> None:
    began = time.process_time()
    read_delivery_report(start + piece * (_SIZE // len(piece)))
    assert time.process_time() - began < 1.0


def test_parts_are_bounded() -> None:
    raw = _STATUS + b"Final-Recipient: rfc822;a@b.example\r\n" + b"--B\r\n\r\nx\r\n" * (MAX_PARTS * 2)
    assert read_delivery_report(raw).kind is ReportKind.BOUNCE


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ("Final-Recipient: rfc822;|/usr/local/bin/x bob@b.example", "bob@b.example"),
        ('Final-Recipient: rfc822; "|/usr/local/bin/x bob@b.example"', "bob@b.example"),
        ("Final-Recipient: rfc822;|/usr/bin/procmail\nOriginal-Recipient: rfc822;bob@b.example", "bob@b.example"),
        ("Final-Recipient: RFC822; bob@b.example\nX-Actual-Recipient: X-Unix; |/usr/bin/filter -d", "bob@b.example"),
        ("Final-Recipient: rfc822;|/usr/bin/forward carl@c.example bob@b.example", ""),
        ("Final-Recipient: rfc822;|/usr/bin/procmail", ""),
    ],
)
def test_a_pipe_is_no_recipient_but_the_only_address_among_its_arguments_is(fields: str, address: str) -> None:
    [one] = read_status(f"Reporting-MTA: dns; relay.example\n\n{fields}\nAction: failed\nStatus: 5.3.0\n").recipients
    assert one.address == address


@pytest.mark.parametrize(
    ("diagnostic", "expected"),
    [
        ("550 5.1.1 <ann@b.example> no such user 552 5.2.2 <bob@b.example> mailbox full", (552, "5.2.2")),
        ("550-5.1.1 <ann@b.example>: unknown\n 552-5.2.2 <bob@b.example>: full", (552, "5.2.2")),
        ("550 <ann@b.example> unknown 450 <bob@b.example> later 550 <carl@b.example> unknown", (450, "5.0.0")),
        ("550-5.1.1 <bob@b.example> unknown 550-5.1.1 <bob@b.example> ask ann@b.example", (550, "5.1.1")),
        ("550 5.1.1 <ann@b.example> no such user 550 5.1.1 <carl@b.example> no such user", (550, "5.1.1")),
    ],
)
def test_of_joined_replies_the_one_about_the_recipient_counts(diagnostic: str, expected: tuple[int, str]) -> None:
    fields = (
        f"Final-Recipient: rfc822; bob@b.example\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: smtp; {diagnostic}"
    )
    [one] = read_status(f"Reporting-MTA: dns; relay.example\n\n{fields}\n").recipients
    assert (one.reply_code, one.status) == expected
