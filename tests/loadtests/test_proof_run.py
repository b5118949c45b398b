"""The run of a proof: its sets, the records of its parts, and how it continues after an interrupt."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner
from msgspec import structs

from loadtests.commands.bench import bench
from loadtests.commands.drill import drill
from loadtests.commands.proof import proof as command
from loadtests.drill import catalogue
from loadtests.drill.report import AllowedCopies, CopyReason, DrillReport, as_builtins
from loadtests.kit.check import Check
from loadtests.proof import checkout, parts, run
from loadtests.proof.parts import run_part
from loadtests.proof.record import DrillRecord, read
from loadtests.proof.sets import FULL, QUICK, SETS, ProofPart, subject_of
from ops.host.process_specs import ROOT
from tests.harness.patience import PATIENCE_S
from tests.loadtests.proofs import BENCH, DRILL

TREE = checkout.WorkTree("0" * 40, dirty=False)


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> list[checkout.WorkTree]:
    """The state of the checkout, which a test may change."""
    found = [TREE]
    monkeypatch.setattr(checkout, "work_tree", lambda: found[-1])
    return found


# -- the sets -----------------------------------------------------------------------------------------


def test_the_full_set_has_every_drill() -> None:
    assert {part.target for part in FULL if part.tool == "drill"} == set(catalogue.names())


@pytest.mark.parametrize("chosen", SETS.values(), ids=list(SETS))
def test_each_part_has_a_name_and_a_command_that_ops_takes(chosen: tuple[ProofPart, ...]) -> None:
    assert len({part.name for part in chosen}) == len(chosen)
    for part in chosen:
        tool: click.Command = {"drill": drill, "bench": bench}[part.tool]
        tool.make_context(part.tool, [*part.words(7)[1:], "--json"])
        assert (part.subject is None) == (part.tool == "bench")
        assert part.about.endswith(".")


def test_the_quick_set_is_smaller_and_has_the_subjects_of_the_full_one() -> None:
    assert len(QUICK) < len(FULL) / 2
    assert {part.subject for part in QUICK if part.subject} <= {part.subject for part in FULL}
    assert subject_of("kill-mta") is subject_of("kill-mta-small")
    assert subject_of("gone") is None


def test_the_list_shows_what_cannot_run_here() -> None:
    listed = json.loads(CliRunner().invoke(command, ["--quick", "--list", "--json"]).stdout)

    assert [one["part"] for one in listed] == [part.name for part in QUICK]
    assert [one["missing"] for one in listed] == [part.missing() for part in QUICK]


# -- one part -----------------------------------------------------------------------------------------


def test_a_record_has_the_counts_of_the_report_that_a_drill_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    report = DrillReport(
        drill="kill-mta", sent=9, accepted=8, delivered=6, bounced=1, lost=1, duplicated=1, copies=2, recovery_s=1.5,
        checks=[Check("rule", ok=True, found="")], done=["mta 1", "mta 2"], figures={"longest, s": 1.5},
    )  # fmt: skip
    report.allow_copies(AllowedCopies.each(2, 25, CopyReason.MTA_KILLED))
    printed = msgspec.json.decode(json.dumps({"seed": 7, "drills": [as_builtins(report)], "skipped": {}}))
    monkeypatch.setattr(parts, "_finished", lambda *_: parts._Finished(1, printed, "a line"))

    found = run_part(QUICK[1], 7, Path("unused"))

    assert isinstance(found, DrillRecord)
    assert (found.sent, found.accepted, found.delivered, found.refused, found.lost) == (9, 8, 6, 1, 1)
    assert (found.second_copies, found.allowed_copies, found.copy_reasons) == (2, 50, (CopyReason.MTA_KILLED,))
    assert (found.faults, found.longest_pause_s, found.verdict) == (2, 1.5, "failed")
    assert found.checks == tuple(report.checks)
    assert found.figures == report.figures
    assert found.command == "python3 -m ops drill kill-mta --seed 7"


def test_a_command_without_a_report_is_a_failed_part(tmp_path: Path) -> None:
    unknown = ProofPart(tool="drill", target="kill-mta", options=("--unknown-option",))

    found = run_part(unknown, 7, tmp_path)

    assert found.verdict == "failed"
    assert found.failure.startswith("The command ended with status 2.")
    assert "--unknown-option" in found.failure
    assert "--unknown-option" in (tmp_path / "kill-mta.log").read_text()


def test_a_part_that_takes_too_long_is_stopped_and_has_failed(tmp_path: Path) -> None:
    found = run_part(QUICK[1], 7, tmp_path, limit_s=0.2)

    assert found.verdict == "failed"
    assert found.failure.startswith("The command was stopped at its time limit.")


# -- the run ------------------------------------------------------------------------------------------


def test_a_run_continues_with_its_seed_and_keeps_what_has_ended(tmp_path: Path, tree: list[checkout.WorkTree]) -> None:
    begun = run.begin(tmp_path, "quick", ("kill-mta", "bench-send"), 7)
    failed = structs.replace(DRILL, verdict="failed", lost=3)
    for record in (failed, BENCH):
        (tmp_path / f"{record.name}.json").write_bytes(msgspec.json.encode(record))
    said: list[str] = []

    document = run.run(tmp_path, run.resume(tmp_path), None, said.append)

    assert document.proof.seed == begun.seed == 7
    assert document.proof.drills == (failed,)  # a failed part is not tried again
    assert document.proof.benches == (BENCH,)
    assert (document.proof.verdict, document.proof.failed) == ("failed", ["kill-mta"])
    assert (document.proof.totals.lost, document.proof.dirty) == (3, False)
    assert document.proof.only == ("kill-mta", "bench-send")
    assert document.proof.parts == tuple(part.name for part in QUICK)
    assert all("kept" in line for line in said)
    assert read(tmp_path / run.FILE) == document


def test_a_change_of_the_files_during_the_run_is_told(tmp_path: Path, tree: list[checkout.WorkTree]) -> None:
    plan = run.begin(tmp_path, "quick", ("kill-mta",), 7)
    (tmp_path / "kill-mta.json").write_bytes(msgspec.json.encode(DRILL))
    tree.append(structs.replace(TREE, dirty=True))

    assert run.run(tmp_path, plan, None, lambda _: None).proof.dirty


def test_a_run_is_refused_where_it_would_mix_two(tmp_path: Path, tree: list[checkout.WorkTree]) -> None:
    with pytest.raises(run.CannotContinue, match="holds no run"):
        run.resume(tmp_path)
    with pytest.raises(run.CannotContinue, match="no part nonsense"):
        run.begin(tmp_path, "quick", ("nonsense",), 7)
    run.begin(tmp_path, "quick", (), 7)
    with pytest.raises(run.CannotContinue, match="holds a run already"):
        run.begin(tmp_path, "quick", (), 7)
    tree.append(structs.replace(TREE, revision="1" * 40))
    with pytest.raises(run.CannotContinue, match="began at revision 000000000000"):
        run.resume(tmp_path)


def test_a_continued_run_takes_no_other_set(tmp_path: Path) -> None:
    refused = CliRunner().invoke(command, ["--continue", str(tmp_path), "--quick"])

    assert (refused.exit_code, "takes set, parts and seed from the folder" in refused.stderr) == (2, True)


@pytest.mark.journey
@pytest.mark.exhaustive
@pytest.mark.timeout(300)
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a proof needs a git checkout")
def test_an_interrupted_run_is_continued_to_a_proof_of_a_real_drill(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    begin = ["--quick", "--only", "kill-worker", "--seed", "7", "--out", str(folder)]
    with subprocess.Popen(
        [sys.executable, "-m", "ops", "proof", *begin], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as interrupted:
        assert interrupted.stderr is not None
        interrupted.stderr.readline()  # the part has begun
        os.kill(interrupted.pid, signal.SIGTERM)
        told = interrupted.stderr.read()
        assert interrupted.wait(PATIENCE_S) == 130
    assert f"ops proof --continue {folder}" in told

    again = [sys.executable, "-m", "ops", "proof", "--continue", str(folder), "--json"]
    done = subprocess.run(again, cwd=ROOT, check=False, capture_output=True, text=True, timeout=280)

    assert done.returncode == 0, done.stderr
    [found] = read(folder / run.FILE).proof.drills
    assert (found.verdict, found.lost, found.second_copies) == ("passed", 0, 0)
    assert found.accepted == found.delivered + found.refused > 0
    assert json.loads(done.stdout)["accepted"] == found.accepted
