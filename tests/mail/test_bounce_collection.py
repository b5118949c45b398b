"""Bounces of many servers in many languages; `pytest -s` shows the figures."""

import re
import textwrap
from collections.abc import Iterable, Iterator

import pytest

from engine.delivery.outcome import Scope, Verdict
from engine.delivery.reported import outcome_of
from engine.mail.delivery_reports import DeliveryReport, ReportKind, read_delivery_report
from engine.mail.feedback_reports import read_feedback_report
from engine.mail.replies import Phase
from tests.delivery.reply_files import Bounce, read
from tests.mail.bounce_files import FILES, BounceFile

RECIPIENTS_FOUND = 0.95
HARD_FOUND = 0.97
SOFT_SUPPRESSED = 0.01
READ = {one.name: read_delivery_report(one.crlf) for one in FILES}
BOUNCES = [one for one in FILES if one.kind is None]
_LINE_ENDS = {"crlf": b"\r\n", "lf": b"\n", "cr": b"\r"}


def tell(figures: str) -> None:
    print(figures)  # noqa: T201 - the figures are what this module is for


def suppressed(one: BounceFile) -> dict[str, bool]:
    return {found.address.lower(): outcome_of(found).suppress for found in READ[one.name].recipients}


def test_the_collection_holds_dialects_and_languages() -> None:
    assert len(FILES) >= 120
    assert len({one.name for one in FILES}) == len(FILES)
    assert len({one.dialect for one in FILES}) >= 12
    assert len({one.language for one in FILES}) >= 6


def test_recipients_are_found() -> None:
    missed = {
        one.name: sorted(suppressed(one))
        for one in BOUNCES
        if set(suppressed(one)) != {address.lower() for address in one.labels}
    }
    share = 1 - len(missed) / len(BOUNCES)
    tell(f"\nrecipients: {len(BOUNCES) - len(missed)} of {len(BOUNCES)} files ({share:.1%})")
    assert share >= RECIPIENTS_FOUND, missed


def test_dead_addresses_are_suppressed() -> None:
    dead = [(one, address) for one in BOUNCES for address, label in one.labels.items() if label == "dead"]
    missed = [(one.name, address) for one, address in dead if not suppressed(one).get(address.lower())]
    share = 1 - len(missed) / len(dead)
    tell(f"\ndead addresses: {len(dead) - len(missed)} of {len(dead)} suppressed ({share:.1%})")
    assert share >= HARD_FOUND, missed


def test_hardly_anything_else_suppresses() -> None:
    others = [(one, address) for one in BOUNCES for address, label in one.labels.items() if label != "dead"]
    wrong = [(one.name, address) for one, address in others if suppressed(one).get(address.lower())]
    tell(f"\nothers: {len(wrong)} of {len(others)} suppressed")
    assert len(wrong) / len(others) <= SOFT_SUPPRESSED, wrong


def test_delays_are_told_from_bounces() -> None:
    wrong = [
        (one.name, READ[one.name].kind)
        for one in BOUNCES
        if (READ[one.name].kind is ReportKind.DELAY) != ("delay" in one.labels.values())
    ]
    assert wrong == []


def test_what_is_no_bounce_names_no_recipient() -> None:
    others = [one for one in FILES if one.kind is not None]
    wrong = [(one.name, READ[one.name].kind) for one in others if READ[one.name].kind != one.kind]
    assert wrong == []
    for one in others:
        if one.kind != "success":
            assert READ[one.name].recipients == ()


def test_only_what_suppresses_concerns_a_recipient_that_bounced() -> None:
    for one in BOUNCES:
        for found in READ[one.name].recipients:
            outcome = outcome_of(found)
            assert not outcome.suppress or (outcome.scope, outcome.verdict) == (Scope.RECIPIENT, Verdict.BOUNCED)
            assert len(found.diagnostic) <= 1_024
            assert "\n" not in found.diagnostic


def test_the_returned_message_leads_back() -> None:
    with_id = [one for one in BOUNCES if b"\nMessage-ID: <" in one.raw]
    missed = [one.name for one in with_id if not (READ[one.name].message_id or "").endswith("@shop.example")]
    assert len(missed) / len(with_id) <= 0.05, missed
    assert [one.name for one in BOUNCES if b"b+" in one.raw and not READ[one.name].tokens] == []


@pytest.mark.parametrize("ends", _LINE_ENDS)
def test_line_ends_change_nothing(ends: str) -> None:
    different = [
        one.name
        for one in FILES
        if facts(read_delivery_report(one.raw.replace(b"\n", _LINE_ENDS[ends]))) != facts(READ[one.name])
    ]
    assert different == []


def facts(report: DeliveryReport) -> object:
    return report.kind, [(one.address, one.action, one.status, one.reply_code) for one in report.recipients]


@pytest.mark.exhaustive
@pytest.mark.parametrize("ends", _LINE_ENDS)
def test_truncated_files_raise_nothing(ends: str) -> None:
    for one in FILES:
        raw = one.raw.replace(b"\n", _LINE_ENDS[ends])
        for part in range(1, 8):
            read_delivery_report(raw[: len(raw) * part // 8])
            read_feedback_report(raw[: len(raw) * part // 8])
            read_delivery_report(raw[len(raw) * part // 8 :])


# -- the replies of the other collections, as servers report them late ----------------------------------

_TSV = ("bounces", "bounces-heldout", "bounces-words", "bounces-servers", "bounces-unseen", "bounces-quoted")
PROVIDERS = [one for one in read("bounces-providers.tsv") if one.label != "soft"]
REPLIES = [one for name in _TSV for one in read(f"{name}.tsv") if one.phase is Phase.RCPT and one.text[0] == "5"]
_WITH_FIELDS = {  # the text for people; the fields have the bare reply
    "postfix": "<ann@b.test>: host mx.b.test[192.0.2.9] said: {reply} (in reply to {postfix}\n    command)",
    "exim": "  ann@b.test\n    host mx.b.test [192.0.2.9]\n    SMTP error from remote mail server after {exim}:\n"
    "    {reply}",
    "exim, pipelined": "  ann@b.test\n    SMTP error from remote mail server after pipelined {exim}: {reply}",
    "sendmail": "   ----- The following addresses had permanent fatal errors -----\n<ann@b.test>\n\n"
    "   ----- Transcript of session follows -----\n... while talking to mx.b.test.:\n>>> {exim}\n<<< {reply}",
    "courier": "<ann@b.test>:\n     mx.b.test [192.0.2.9]:\n>>> {exim}\n<<< {reply}",
    "stalwart": "<ann@b.test> (host 'mx.b.test' rejected command '{exim}' with: {reply})",
}
_WITHOUT_FIELDS = {
    "qmail": "Hi. This is the qmail-send program at relay.example.\nI'm afraid I wasn't able to deliver your message to"
    " the following addresses.\nThis is a permanent error; I've given up. Sorry it didn't work out.\n\n"
    "<ann@b.test>:\n192.0.2.9 {qmail}.\nRemote host said: {reply}\nGiving up on 192.0.2.9.",
    "exim": "This message was created automatically by mail delivery software.\n\nA message that you sent could not be"
    " delivered to one or more of its\nrecipients. This is a permanent error. The following address(es) failed:\n\n"
    "  ann@b.test\n    SMTP error from remote mail server after {exim}:\n    {reply}",
    "hmailserver": "Your message did not reach some or all of the intended recipients.\n\n   ann@b.test\n"
    "   Error Type: SMTP\n   hMailServer sent: {exim}\n   Remote server replied: {reply}",
}
_COMMANDS: dict[Phase | None, dict[str, str]] = {
    Phase.RCPT: {"postfix": "RCPT TO", "exim": "RCPT TO:<ann@b.test>", "qmail": "does not like recipient"},
    Phase.BODY: {"postfix": "end of DATA", "exim": "end of data", "qmail": "failed after I sent the message"},
    None: {"postfix": "it", "exim": "it", "qmail": "says no"},
}
_HEAD = "From: MAILER-DAEMON@relay.example\nSubject: Mail delivery failed\nTo: b+x@a.test\n"


def late(reply: str, dialect: str, phase: Phase | None) -> bytes:
    """Return the bounce in which a server reports a reply."""
    shape = _WITH_FIELDS.get(dialect) or _WITHOUT_FIELDS[dialect.removeprefix("plain ")]
    text = shape.format(reply=reply, **_COMMANDS[phase])
    if dialect == "postfix":
        text = textwrap.fill(text, 78, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    if dialect not in _WITH_FIELDS:
        return f"{_HEAD}\n{text}\n".encode()
    status = re.search(r"\b5\.\d{1,3}\.\d{1,3}\b(?!\.)", reply[:12])
    return (
        f"{_HEAD}Content-Type: multipart/report; report-type=delivery-status; boundary=B\n\n"
        f"--B\nContent-Type: text/plain; charset=utf-8\n\n{text}\n--B\nContent-Type: message/delivery-status\n\n"
        f"Reporting-MTA: dns; relay.example\n\nFinal-Recipient: rfc822; ann@b.test\nAction: failed\n"
        f"Status: {status[0] if status else '5.0.0'}\nDiagnostic-Code: smtp; {reply}\n--B--\n"
    ).encode()


DIALECTS = [*_WITH_FIELDS, *(f"plain {name}" for name in _WITHOUT_FIELDS)]


def reported(phase: Phase | None) -> Iterator[tuple[Bounce, str, bool]]:
    """Yield each reply with a dialect and whether the bounce suppresses; those of providers in every dialect."""
    cases: Iterable[tuple[Bounce, str]] = [
        *((one, DIALECTS[place % len(DIALECTS)]) for place, one in enumerate(REPLIES)),
        *((one, dialect) for one in PROVIDERS for dialect in DIALECTS),
    ]
    for one, dialect in cases:
        found = read_delivery_report(late(one.text, dialect, phase))
        yield one, dialect, any(outcome_of(each).suppress for each in found.recipients)


@pytest.mark.parametrize("phase", [Phase.RCPT, None])
def test_a_reply_means_in_a_late_bounce_what_it_means_at_once(phase: Phase | None) -> None:
    cases = list(reported(phase))
    missed = [(dialect, one.text) for one, dialect, suppress in cases if one.label == "dead" and not suppress]
    wrong = [(dialect, one.text) for one, dialect, suppress in cases if one.label != "dead" and suppress]
    dead = sum(one.label == "dead" for one, _, _ in cases)
    tell(f"\nlate, {phase}: {dead - len(missed)} of {dead} dead, {len(wrong)} of {len(cases) - dead} others suppressed")
    assert 1 - len(missed) / dead >= HARD_FOUND, missed
    assert len(wrong) / (len(cases) - dead) <= SOFT_SUPPRESSED, wrong


def test_after_the_content_nothing_but_a_dead_address_suppresses() -> None:
    others = [case for case in reported(Phase.BODY) if case[0].label != "dead"]
    wrong = [(dialect, one.text) for one, dialect, suppress in others if suppress]
    tell(f"\nlate, end of data: {len(wrong)} of {len(others)} others suppressed")
    assert len(wrong) / len(others) <= SOFT_SUPPRESSED, wrong
