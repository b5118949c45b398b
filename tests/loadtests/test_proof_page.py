"""The published figures of proofs are generated: the stored proof holds, and the pages have its figures."""

import re
from pathlib import Path

import pytest
from msgspec import structs

from loadtests.drill.report import CopyReason
from loadtests.proof import page, verify
from loadtests.proof.page import LATEST, PAGES, REPORT, STORED, guide_section, report_section, rewritten
from loadtests.proof.record import SignedProof, read
from tests.loadtests.proofs import BENCH, made_proof
from tests.loadtests.test_proof_verify import signed

MADE = SignedProof(proof=made_proof())


def test_the_stored_proof_holds() -> None:
    found = verify.judge(read(STORED), None)

    assert found.faults == []


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_a_page_has_the_figures_of_the_stored_proof(file: Path) -> None:
    generated = rewritten(file, read(STORED))

    assert file.read_text("utf-8") == generated, f"run `python3 -m ops proof publish {STORED}`"


def test_the_stored_proof_names_no_folder_of_the_machine() -> None:
    absolute = rb'"(?:[^"]*[\s=:\'(])?/\w+/[^"]*"'
    assert re.findall(absolute, STORED.read_bytes()) == []


def test_the_section_for_readers_names_set_revision_sums_and_what_was_left_out() -> None:
    text = guide_section(MADE).replace("\n", " ")

    assert "The **quick set** ran on 29 November 2026, 10:00 to 10:08 UTC: 2 drills and 1 bench." in text
    assert f"revision `{MADE.proof.revision[:12]}`, with seed 7" in text
    assert "**1,500 messages were accepted, and 0 lost**, through 6 faults. 15 second copies arrived, within" in text
    assert "The proof is unsigned." in text
    assert "| Processes are killed, stopped and replaced | 1 | 5 | 1,000 | **0** | 15 |" in text
    assert "| `ops bench send --messages 3000` | 1,234 accepted per second, 988 delivered per second |" in text
    assert "- `disk-full`: it must be run by root" in text
    assert "The full set has" in text


def test_the_section_of_the_report_has_a_row_per_drill_and_the_reasons_of_copies() -> None:
    text = report_section(MADE)

    assert "| `ops drill kill-mta` | 5 | 1,000 | 0 | 15 | 125 | 1.2 | 20 |" in text
    assert "| `ops drill clock` | 1 | 500 | 0 | 0 | 0 | 0.0 | 20 |" in text
    assert f"- {CopyReason.MTA_KILLED}: `kill-mta`" in text


def test_a_signed_proof_of_the_full_set_is_named_as_such() -> None:
    text = guide_section(signed(made_proof(set_name="full", skipped=(), benches=(BENCH, BENCH)))).replace("\n", " ")

    assert "The **full set** ran" in text
    assert "2 drills and 2 benches." in text
    assert "The proof is signed by `sha256:" in text
    assert "The full set has" not in text
    assert "could not run" not in text


def test_the_page_says_when_other_programs_used_the_machine() -> None:
    busy = [structs.replace(one, load_average=12.0) for one in MADE.proof.drills]

    text = guide_section(MADE).replace("\n", " ")
    assert "Load averages were 1.5 to 1.5." in text
    assert "Other programs used" not in text
    text = guide_section(SignedProof(proof=made_proof(drills=tuple(busy)))).replace("\n", " ")
    assert "Load averages were 1.5 to 12.0. Other programs used the machine, so times and rates say little." in text


def test_publishing_replaces_one_section_and_keeps_the_text_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"# Title\n\nBy hand.\n\n## {LATEST}\n\nOld.\n\n### Part\n\nOld.\n\n## After\n\nBy hand.\n")
    monkeypatch.setattr(page, "PAGES", (file,))
    monkeypatch.setattr(page, "STORED", tmp_path / "proof.json")

    for _ in range(2):
        page.publish(MADE)

    before, _, after = file.read_text().partition(report_section(MADE))
    assert (before, after) == (f"# Title\n\nBy hand.\n\n## {LATEST}\n\n", "\n## After\n\nBy hand.\n")
    assert read(tmp_path / "proof.json") == MADE
    file.write_text("# Title\n")
    with pytest.raises(ValueError, match="must have the section"):
        rewritten(file, MADE)


def test_the_report_names_the_date_of_figures_by_hand() -> None:
    sections = REPORT.read_text("utf-8").split("\n## ")[1:]
    undated = [one.partition("\n")[0] for one in sections if "\n|" in one and "Measured on " not in one]

    assert undated == [LATEST]
