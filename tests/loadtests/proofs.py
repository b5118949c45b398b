"""Made-up proofs for tests."""

from typing import Any

from msgspec import structs

from loadtests.drill.report import CopyReason
from loadtests.kit.check import Check
from loadtests.proof.record import BenchRecord, DrillRecord, Machine, Proof, SkippedPart, totals_of

HELD = Check("every accepted message arrived", ok=True, found="0 lost")
BROKEN = Check("every accepted message arrived", ok=False, found="3 lost")
TOLD: dict[str, Any] = {"started_at": "2026-11-29T10:00:00.000Z", "took_s": 20.5, "load_average": 1.5}
DRILL = DrillRecord(
    name="kill-mta", about="mta processes are killed.", command="python3 -m ops drill kill-mta --seed 7", **TOLD,
    verdict="passed", sent=1_000, accepted=1_000, delivered=980, refused=20, second_copies=15, allowed_copies=125,
    copy_reasons=(CopyReason.MTA_KILLED,), faults=5, longest_pause_s=1.21, checks=(HELD,),
)  # fmt: skip
OTHER = DrillRecord(
    name="clock", about="The clock jumps.", command="python3 -m ops drill clock --seed 7", **TOLD, verdict="passed",
    sent=500, accepted=500, delivered=500, faults=1, checks=(HELD,),
)  # fmt: skip
BENCH = BenchRecord(
    name="bench-send", about="Messages are sent.", command="python3 -m ops bench send --messages 3000", **TOLD,
    verdict="passed", figures={"checked": True, "accepted_per_s": 1234.5, "delivered_per_s": 987.6},
)  # fmt: skip
SKIPPED = SkippedPart("disk-full", "it must be run by root")
MACHINE = Machine(
    cpu="A processor", cores=2, memory_gb=8.0, kernel="6.1", python="3.11", postgresql="18.6", valkey="9.1"
)


def made_proof(**changed: Any) -> Proof:
    """Return a proof that holds, with some of its fields changed; the totals follow from the drills."""
    fields: dict[str, Any] = {
        "set_name": "quick", "version": "0.1.0", "revision": "0123456789abcdef" * 2 + "01234567", "dirty": False,
        "seed": 7, "started_at": "2026-11-29T10:00:00.000Z", "ended_at": "2026-11-29T10:08:00.000Z",
        "machine": MACHINE, "parts": ("kill-mta", "disk-full", "clock", "bench-send"), "drills": (DRILL, OTHER),
        "benches": (BENCH,), "skipped": (SKIPPED,),
    } | changed  # fmt: skip
    return Proof(**{"totals": totals_of(fields["drills"]), **fields})


def changed_drill(**changed: Any) -> Proof:
    """Return a proof whose first drill has some of its fields changed."""
    return made_proof(drills=(structs.replace(DRILL, **changed), OTHER))
