"""Drift: records that were correct and no longer are, by two checks in a row. No I/O."""

import pytest
from msgspec import structs

from engine.sending.domains import drift
from engine.sending.domains.types import CheckedRecord, RecordFinding, RecordStatus, WantedRecord

WANTED = WantedRecord("TXT", "_dmarc.shop.test", "v=DMARC1; p=none", required=False, purpose="dmarc")


def history(text: str, wanted: WantedRecord = WANTED) -> RecordFinding:
    """`+` correct, `-` missing, `x` wrong, `?` no answer."""
    shown: dict[str, RecordStatus] = {"+": "ok", "-": "missing", "x": "mismatch", "?": "missing"}
    finding = RecordFinding()
    for one in text:
        now = RecordFinding(shown[one], problem="no answer" if one == "?" else None)
        finding = drift.carried(wanted, finding, now)
    return finding


@pytest.mark.parametrize(
    ("text", "drifted", "suspected", "unanswered"),
    [
        ("---", 0, 0, 0),  # never was correct
        ("+", 0, 0, 0),
        ("+-", 0, 1, 0),
        ("+-x", 1, 0, 0),
        ("+-+-", 0, 1, 0),
        ("+--+", 0, 0, 0),
        ("+-?", 0, 0, 1),
        ("+-?-", 1, 0, 0),  # an answer that is missing breaks no row
        ("+--?", 0, 0, 1),
        ("-?", 0, 0, 0),
    ],
)
def test_two_looks_without_a_correct_record_are_drift(text: str, drifted: int, suspected: int, unanswered: int) -> None:
    checks = [CheckedRecord(WANTED, history(text))]

    assert drift.counts(checks) == drift.DriftCounts(drifted, suspected, unanswered)
    assert len(drift.drifted(checks)) == drifted


def test_a_record_whose_value_changes_has_to_be_correct_again_first() -> None:
    other = structs.replace(WANTED, value="v=DMARC1; p=reject")
    finding = history("+--")
    assert drift.counts([CheckedRecord(other, finding)]).drifted == 0
    for _ in range(3):
        finding = drift.carried(other, finding, RecordFinding("mismatch"))
    assert drift.counts([CheckedRecord(other, finding)]) == drift.DriftCounts(0, 0, 0)


def test_records_of_the_operator_are_left_out() -> None:
    theirs = structs.replace(WANTED, by_operator=True)
    assert drift.counts([CheckedRecord(theirs, history("+--", theirs))]).drifted == 0


def test_a_finding_from_before_drift_was_noticed_counts_as_correct() -> None:
    finding = RecordFinding("ok", ("v=DMARC1; p=none",))
    for _ in range(2):
        finding = drift.carried(WANTED, finding, RecordFinding("missing"))
    assert drift.counts([CheckedRecord(WANTED, finding)]).drifted == 1
