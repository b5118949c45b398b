"""The file `proof.json`: its types, its written form, and the sums over its drills.

Names are written in camel case. A file is read only in the form in which it was written, without further fields.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from loadtests.drill.report import CopyReason, DrillReport
from loadtests.kit.check import Check

FORMAT: Final = 1
MAX_BYTES: Final = 5_000_000  # of a file that is read
Verdict = Literal["passed", "failed"]
SetName = Literal["full", "quick"]


class BadProof(ValueError):  # noqa: N818 - named for what it says
    """A file is not a proof; the text says why."""


class PartRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of every part that ran. Times of day in ISO 8601 (UTC)."""

    name: str
    about: str
    command: str
    started_at: str
    took_s: float
    load_average: float  # of one minute, at the end: what else the machine did
    verdict: Verdict
    failure: str = ""  # why there is no report, or no figures


class DrillRecord(PartRecord, frozen=True, kw_only=True, rename="camel"):
    """The result of a drill: its message counts and the rules that it checked."""

    sent: int = 0
    accepted: int = 0
    delivered: int = 0
    refused: int = 0  # by their mail server, as they should be
    lost: int = 0
    second_copies: int = 0
    allowed_copies: int = 0
    copy_reasons: tuple[CopyReason, ...] = ()
    faults: int = 0
    longest_pause_s: float = 0.0
    checks: tuple[Check, ...] = ()
    figures: dict[str, Any] = {}


class BenchRecord(PartRecord, frozen=True, kw_only=True, rename="camel"):
    """The result of a bench: its figures."""

    figures: dict[str, Any] = {}


class SkippedPart(Struct, frozen=True):
    """A part of the set that could not run on this machine, and why."""

    name: str
    reason: str


class Machine(Struct, frozen=True, kw_only=True, rename="camel"):
    """The machine, and the versions of the programs that the service ran with."""

    cpu: str
    cores: int
    memory_gb: float
    kernel: str
    python: str
    postgresql: str
    valkey: str


class Totals(Struct, frozen=True, kw_only=True, rename="camel"):
    """The sums over all drills."""

    drills: int
    accepted: int
    delivered: int
    lost: int
    second_copies: int
    faults: int


class Proof(Struct, frozen=True, kw_only=True, rename="camel"):
    """The statement of a proof: what ran on which revision and machine, and what was found."""

    format: Literal[1] = FORMAT
    set_name: SetName = msgspec.field(name="set")
    version: str
    revision: str  # the commit, 40 hex digits
    dirty: bool  # files differed from the commit, or changed meanwhile
    seed: int
    started_at: str
    ended_at: str
    machine: Machine
    parts: tuple[str, ...]  # the names of the set, in order
    only: tuple[str, ...] = ()  # the parts that were chosen; empty: all
    totals: Totals
    drills: tuple[DrillRecord, ...]
    benches: tuple[BenchRecord, ...]
    skipped: tuple[SkippedPart, ...]

    @property
    def ran(self) -> list[PartRecord]:
        """Return all parts that ran."""
        return [*self.drills, *self.benches]

    @property
    def failed(self) -> list[str]:
        """Return the names of the parts that have failed."""
        return [one.name for one in self.ran if one.verdict != "passed"]

    @property
    def verdict(self) -> Verdict:
        """Return `passed` if every part that ran has passed."""
        return "passed" if self.ran and not self.failed else "failed"


class Signature(Struct, frozen=True, kw_only=True, rename="camel"):
    """An Ed25519 signature over the canonical form of the statement; key and signature in hex."""

    algorithm: Literal["ed25519"] = "ed25519"
    public_key: str
    fingerprint: str
    value: str


class SignedProof(Struct, frozen=True, kw_only=True):
    """The whole file. Without a signature nothing shows who made it."""

    proof: Proof
    signature: Signature | None = None


def totals_of(drills: Iterable[DrillRecord]) -> Totals:
    """Return the sums over these drills."""
    found = list(drills)
    return Totals(
        drills=len(found),
        accepted=sum(one.accepted for one in found),
        delivered=sum(one.delivered for one in found),
        lost=sum(one.lost for one in found),
        second_copies=sum(one.second_copies for one in found),
        faults=sum(one.faults for one in found),
    )


def counts_of(report: DrillReport) -> dict[str, Any]:
    """Return the fields of a drill's record that its report states."""
    return {
        "sent": report.sent, "accepted": report.accepted, "delivered": report.delivered, "refused": report.bounced,
        "lost": report.lost, "second_copies": report.copies, "allowed_copies": report.allowed_copies.most,
        "copy_reasons": report.allowed_copies.reasons, "faults": len(report.done),
        "longest_pause_s": round(report.recovery_s, 3), "checks": tuple(report.checks), "figures": report.figures,
        "verdict": "passed" if report.passed else "failed",
    }  # fmt: skip


def canonical(proof: Proof) -> bytes:
    """Return the bytes that a signature covers: JSON with sorted names and no spaces."""
    return msgspec.json.encode(proof, order="deterministic")


def written(document: SignedProof) -> bytes:
    """Return the bytes of the file."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def read(file: Path) -> SignedProof:
    """Read a file; raises BadProof unless it is in the form in which proofs are written, and OSError."""
    with file.open("rb") as opened:
        text = opened.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise BadProof(f"{file} is larger than {MAX_BYTES:,} bytes, and no proof is")
    try:
        document = msgspec.json.decode(text, type=SignedProof)
    except msgspec.MsgspecError as error:
        raise BadProof(f"{file} is not a proof: {error}") from error
    # A name that occurs twice, or spaces that hide text, would let two readers see different statements.
    if written(document) != text:
        raise BadProof(f"{file} is not in the form in which `ops proof` writes it; it was edited or formatted anew")
    return document
