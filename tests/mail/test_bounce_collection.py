"""Bounces of many servers in many languages; `pytest -s` shows the figures."""

import pytest

from engine.delivery.outcome import Scope, Verdict
from engine.delivery.reported import outcome_of
from engine.mail.delivery_reports import DeliveryReport, ReportKind, read_delivery_report
from engine.mail.feedback_reports import read_feedback_report
from tests.mail.bounce_files import FILES, BounceFile

RECIPIENTS_FOUND = 0.95
HARD_FOUND = 0.95
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
