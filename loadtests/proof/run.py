"""Run the parts of a set one after the other, keep each record in the folder of the run, and write `proof.json`.

The folder holds `plan.json`, and for each part that ended `NAME.json` with its record beside its output and log. So a
run that was interrupted continues with the parts that have no record; a failed part keeps its record, too.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from engine.base import clock
from engine.base.version import version
from loadtests.proof import checkout
from loadtests.proof.checkout import WorkTree
from loadtests.proof.parts import Record, run_part
from loadtests.proof.record import (
    BenchRecord,
    DrillRecord,
    Proof,
    SetName,
    SignedProof,
    SkippedPart,
    totals_of,
    written,
)
from loadtests.proof.sets import SETS, ProofPart
from loadtests.proof.signature import sign

FILE: Final = "proof.json"
_PLAN: Final = "plan.json"
Say = Callable[[str], None]


class CannotContinue(RuntimeError):  # noqa: N818 - named for what it says
    """A folder holds no run that can be continued here; the text says why."""


class ProofPlan(Struct, frozen=True, kw_only=True):
    """The options that a run was started with; `--continue` reads them again."""

    set_name: SetName
    only: tuple[str, ...]
    seed: int
    tree: WorkTree
    started_at: str

    @property
    def parts(self) -> list[ProofPart]:
        """Return the parts to run, in order."""
        return [part for part in SETS[self.set_name] if not self.only or part.name in self.only]


def begin(folder: Path, set_name: SetName, only: tuple[str, ...], seed: int) -> ProofPlan:
    """Write the plan of a new run into a folder without one; raises CannotContinue and checkout.NoCheckout."""
    unknown = [name for name in only if name not in {part.name for part in SETS[set_name]}]
    if unknown:
        raise CannotContinue(f"The {set_name} set has no part {unknown[0]}. `ops proof --list` shows its parts.")
    if (folder / _PLAN).exists():
        raise CannotContinue(f"{folder} holds a run already. Continue it with --continue, or give another folder.")
    tree, started_at = checkout.work_tree(), clock.iso(clock.now())
    plan = ProofPlan(set_name=set_name, only=only, seed=seed, tree=tree, started_at=started_at)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / _PLAN, msgspec.json.encode(plan))
    return plan


def resume(folder: Path) -> ProofPlan:
    """Return the plan of an earlier run of the same revision; raises CannotContinue and checkout.NoCheckout."""
    try:
        plan = msgspec.json.decode((folder / _PLAN).read_bytes(), type=ProofPlan)
    except (FileNotFoundError, msgspec.MsgspecError) as error:
        raise CannotContinue(f"{folder} holds no run that could be continued.") from error
    here = checkout.work_tree()
    if here.revision != plan.tree.revision:
        raise CannotContinue(f"The run in {folder} began at revision {plan.tree.revision[:12]}; check that out first.")
    return plan


def run(folder: Path, plan: ProofPlan, key: Ed25519PrivateKey | None, say: Say) -> SignedProof:
    """Run the parts that have no record yet, and write and return the proof. Call from the main thread."""
    parts, skipped = plan.parts, []
    for number, part in enumerate(parts, 1):
        place = f"[{number}/{len(parts)}] {part.name}"
        if (record := _kept(folder, part)) is not None:
            say(f"{place}: kept, {_outcome(record)}")
        elif (reason := part.missing()) is not None:
            skipped.append(SkippedPart(part.name, reason))
            say(f"{place}: skipped, because {reason}")
        else:
            say(f"{place}: {part.about}")
            record = run_part(part, plan.seed, folder)
            _write(folder / f"{part.name}.json", msgspec.json.encode(record))
            say(f"{place}: {_outcome(record)}")
    records = [record for part in parts if (record := _kept(folder, part)) is not None]
    proof = _proof(plan, records, skipped)
    document = SignedProof(proof=proof, signature=None if key is None else sign(proof, key))
    _write(folder / FILE, written(document))
    return document


def _proof(plan: ProofPlan, records: Iterable[Record], skipped: Iterable[SkippedPart]) -> Proof:
    found, tree = list(records), checkout.work_tree()
    drills = tuple(one for one in found if isinstance(one, DrillRecord))
    return Proof(
        set_name=plan.set_name, version=version(), revision=plan.tree.revision,
        dirty=plan.tree.dirty or tree != plan.tree, seed=plan.seed, started_at=plan.started_at,
        ended_at=clock.iso(clock.now()), machine=checkout.machine(),
        parts=tuple(part.name for part in SETS[plan.set_name]), only=plan.only, totals=totals_of(drills),
        drills=drills, benches=tuple(one for one in found if isinstance(one, BenchRecord)), skipped=tuple(skipped),
    )  # fmt: skip


def _kept(folder: Path, part: ProofPart) -> Record | None:
    """Return the record of a part that has run already."""
    try:
        text = (folder / f"{part.name}.json").read_bytes()
    except FileNotFoundError:
        return None
    if part.tool == "drill":
        return msgspec.json.decode(text, type=DrillRecord)
    return msgspec.json.decode(text, type=BenchRecord)


def _outcome(record: Record) -> str:
    ended = f"{record.verdict} in {record.took_s:.0f} s"
    if record.failure:
        return f"{ended}. {record.failure}"
    if isinstance(record, BenchRecord):
        return ended
    broken = [check.shown for check in record.checks if not check.ok]
    counted = f"{record.accepted:,} accepted, {record.lost} lost, {record.second_copies} second copies"
    return "; ".join([f"{ended}: {counted}", *broken])


def _write(file: Path, text: bytes) -> None:
    """Write a file whole or not at all."""
    partial = file.with_name(f".{file.name}")
    with partial.open("wb") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    partial.replace(file)
