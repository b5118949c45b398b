"""Judge a proof: its signature, its sums, the verdict of each part, and whether it is of the wanted revision."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from loadtests.proof import checkout
from loadtests.proof.checkout import NoCheckout
from loadtests.proof.page import PAGES, STORED
from loadtests.proof.record import BenchRecord, DrillRecord, Proof, SignedProof, totals_of
from loadtests.proof.signature import is_genuine
from ops.host.process_specs import ROOT

_PUBLISHED: Final = frozenset(file.relative_to(ROOT).as_posix() for file in (STORED, *PAGES))


class Judgement(Struct):
    """The result of verifying a proof: faults that make it invalid, and notes for the reader."""

    faults: list[str] = []
    notes: list[str] = []

    @property
    def holds(self) -> bool:
        """Return True if nothing speaks against it."""
        return not self.faults


def judge(document: SignedProof, public_key: str | None) -> Judgement:
    """Judge a proof by itself; with `public_key` (hex) it must be signed by that key."""
    proof = document.proof
    found = Judgement(faults=[*_signature_faults(document, public_key), *_set_faults(proof), *_sum_faults(proof)])
    for drill in proof.drills:
        found.faults += _drill_faults(drill)
    found.faults += [f"{one.name} has failed. {one.failure}".strip() for one in proof.benches if not _has_passed(one)]
    if document.signature is None:
        found.notes.append("The proof is unsigned: nothing shows who made it.")
    elif public_key is None:
        found.notes.append(
            f"The key {document.signature.fingerprint} is the file's own. Give --public-key to learn who signed."
        )
    found.notes += [f"{one.name} was skipped: {one.reason}." for one in proof.skipped]
    return found


def revision_faults(proof: Proof, wanted: str) -> list[str]:
    """Return why the proof is not of the `wanted` commit, branch or tag; raises NoCheckout without git.

    A later commit counts as that revision if it changes nothing but the files that publishing a proof writes.
    """
    commit = checkout.resolved(wanted)
    if commit == proof.revision:
        return []
    try:
        changed = checkout.changed_between(proof.revision, commit)
    except NoCheckout:
        return [f"The proof is of revision {proof.revision}, which this repository does not have."]
    if _PUBLISHED.issuperset(changed):
        return []
    others = len(set(changed) - _PUBLISHED)
    return [f"The proof is of revision {proof.revision[:12]}, and {others} files differ at {wanted} ({commit[:12]})."]


def _signature_faults(document: SignedProof, public_key: str | None) -> Iterator[str]:
    signature = document.signature
    if signature is None:
        if public_key is not None:
            yield "The proof is unsigned."
        return
    if not is_genuine(document.proof, signature):
        yield "The signature does not match: the statement or its signature was changed."
    if public_key is not None and signature.public_key != public_key:
        yield f"Another key has signed it: {signature.fingerprint}."


def _set_faults(proof: Proof) -> Iterator[str]:
    if proof.dirty:
        yield "It is not a release: files differed from the commit."
    if proof.only:
        yield f"It is not a release: only {', '.join(proof.only)} of the {proof.set_name} set ran."
    there = Counter([*(one.name for one in proof.ran), *(one.name for one in proof.skipped)])
    wanted = proof.only or proof.parts
    if missing := [name for name in wanted if not there[name]]:
        yield f"Parts of the {proof.set_name} set are missing: {', '.join(missing)}."
    if strange := [name for name, count in there.items() if count > 1 or name not in wanted]:
        yield f"Parts are listed twice or are not of the {proof.set_name} set: {', '.join(strange)}."
    if not proof.drills:
        yield "No drill ran."


def _sum_faults(proof: Proof) -> Iterator[str]:
    if proof.totals != totals_of(proof.drills):
        yield "The totals are not the sums of the drills."
    if proof.started_at > proof.ended_at:
        yield "It ended before it started."


def _drill_faults(drill: DrillRecord) -> Iterator[str]:
    if drill.lost:
        yield f"{drill.name} lost {drill.lost} messages."
    if drill.second_copies > drill.allowed_copies:
        yield f"{drill.name} had {drill.second_copies} second copies; {drill.allowed_copies} are allowed."
    elif drill.second_copies and not drill.copy_reasons:
        yield f"{drill.name} had {drill.second_copies} second copies without an allowed reason."
    if min(drill.sent, drill.accepted, drill.delivered, drill.refused, drill.lost, drill.second_copies) < 0:
        yield f"{drill.name} has a negative count."
    if drill.failure:
        yield f"{drill.name} has failed. {drill.failure}"
        return
    broken = [check.shown for check in drill.checks if not check.ok]
    if broken or not drill.checks:
        yield f"{drill.name} has failed. {'; '.join(broken) or 'It checked nothing.'}"
    elif drill.verdict != "passed":
        yield f"{drill.name} has failed."


def _has_passed(bench: BenchRecord) -> bool:
    return bench.verdict == "passed" and bench.figures.get("checked") is True
