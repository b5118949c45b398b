"""The published pages of a proof: the section `LATEST` of two documents is generated, the rest is written by hand."""

import re
import statistics
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from engine.base import clock
from loadtests.proof.record import BenchRecord, DrillRecord, Proof, SignedProof, totals_of, written
from loadtests.proof.sets import FULL, subject_of
from ops.host.process_specs import ROOT

LATEST: Final = "The latest proof"
STORED: Final = ROOT / "api" / "docs" / "files" / "proof.json"  # the documentation serves it
GUIDE: Final = ROOT / "api" / "docs" / "guides" / "reliability.md"
REPORT: Final = ROOT / "loadtests" / "reliability.md"
PAGES: Final = (GUIDE, REPORT)
_SECTION: Final = re.compile(rf"(?<=^## {LATEST}\n).*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_WIDTH: Final = 120
_BUSY: Final = 2.0  # load per core; a drill alone makes about one
_OTHER: Final = "Other drills"  # those that no set has any more
_SETS: Final = {"full": "full set", "quick": "quick set"}
_HEADLINES: Final[dict[str, tuple[tuple[str, str, str], ...]]] = {  # by bench: place of a figure, its text, its format
    "bench-send": (
        ("accepted_per_s", "accepted per second", ",.0f"),
        ("delivered_per_s", "delivered per second", ",.0f"),
        ("server_cpu_ms_per_message", "ms of CPU per message", ".2f"),
    ),
    "bench-relay": (
        ("relay.accepted_per_s", "accepted per second over SMTP", ",.0f"),
        ("api.accepted_per_s", "over HTTP", ",.0f"),
    ),
    "bench-mx": (
        ("received_per_s", "received per second", ",.0f"),
        ("server_cpu_ms_per_message", "ms of CPU per message", ".2f"),
    ),
    "bench-webhooks": (
        ("alone.per_s", "posts per second", ",.0f"),
        ("beside_hanging.per_s", "beside endpoints that never respond", ",.0f"),
    ),
    "bench-broadcast": (("accepted_per_s", "copies accepted per second", ",.0f"),),
}


def publish(document: SignedProof) -> list[Path]:
    """Store the proof, and write its figures into the pages; return the files."""
    STORED.write_bytes(written(document))
    for page in PAGES:
        page.write_text(rewritten(page, document), "utf-8")
    return [STORED, *PAGES]


def rewritten(page: Path, document: SignedProof) -> str:
    """Return the text of one of `PAGES` with the section of this proof; raises ValueError without such a section."""
    section = guide_section(document) if page == GUIDE else report_section(document)
    text, count = _SECTION.subn(lambda _: f"\n{section}\n", page.read_text("utf-8"))
    if count != 1:
        raise ValueError(f"{page} must have the section “{LATEST}” once")
    return text if text.endswith("\n") and not text.endswith("\n\n") else text.rstrip("\n") + "\n"


def guide_section(document: SignedProof) -> str:
    """Return the section for readers of the documentation: a row per subject."""
    rows = [
        (subject, len(drills), found.faults, found.accepted, f"**{found.lost}**", found.second_copies)
        for subject, drills in _by_subject(document.proof)
        for found in [totals_of(drills)]
    ]
    return _joined(
        *map(_wrapped, _about(document)),
        _table(("What fails", "Drills", "Faults", "Messages accepted", "Lost", "Second copies"), rows),
        *_speeds(document.proof),
        *_left_out(document.proof),
    )


def report_section(document: SignedProof) -> str:
    """Return the section of the report: a table per subject, with a row per drill."""
    tables = []
    for subject, drills in _by_subject(document.proof):
        tables += [f"### {subject}", _table(
            ("command", "faults", "accepted", "lost", "second copies", "allowed", "longest pause s", "took s"),
            [
                (f"`{_shortened(one.command)}`", one.faults, one.accepted, one.lost, one.second_copies,
                 one.allowed_copies, f"{one.longest_pause_s:.1f}", f"{one.took_s:.0f}")
                for one in drills
            ],
        )]  # fmt: skip
    return _joined(
        "`ops proof publish` writes this section from [proof.json](../api/docs/files/proof.json).",
        *map(_wrapped, _about(document)), *tables, *_reasons(document.proof), *_speeds(document.proof),
        *_left_out(document.proof),
    )  # fmt: skip


def _about(document: SignedProof) -> Iterator[str]:
    """Yield the paragraphs about the run as a whole."""
    proof = document.proof
    machine, totals = proof.machine, proof.totals
    began, ended = map(clock.parse_iso, (proof.started_at, proof.ended_at))
    whole = f"{_counted(len(proof.drills), 'drill', 'drills')} and {_counted(len(proof.benches), 'bench', 'benches')}"
    more = "" if proof.set_name == "full" else f" The full set has {len(FULL)} parts."
    yield (
        f"The **{_SETS[proof.set_name]}** ran on {_day(began)}, {began:%H:%M} to {ended:%H:%M} UTC: {whole}.{more}"
        f" It tested version {proof.version}, revision `{proof.revision[:12]}`, with seed {proof.seed}."
    )
    loads = [one.load_average for one in proof.ran] or [0.0]
    busy = statistics.median(loads) > _BUSY * machine.cores
    alone = " Other programs used the machine, so times and rates say little." if busy else ""
    yield (
        f"The machine was {machine.cpu} with {machine.cores} cores and {machine.memory_gb:g} GB, Linux"
        f" {machine.kernel}. It ran Python {machine.python}; PostgreSQL {machine.postgresql}; Valkey {machine.valkey}."
        f" Load averages were {min(loads):.1f} to {max(loads):.1f}.{alone}"
    )
    yield (
        f"**{totals.accepted:,} messages were accepted, and {totals.lost} lost**, through"
        f" {_counted(totals.faults, 'fault', 'faults')}. {_copies(totals.second_copies)}"
    )
    signature = document.signature
    yield f"The proof is signed by `{signature.fingerprint}`." if signature else "The proof is unsigned."


def _copies(count: int) -> str:
    if not count:
        return "No second copy arrived."
    found = _counted(count, "second copy", "second copies")
    return f"{found} arrived, within the limits of the drills and for allowed reasons."


def _by_subject(proof: Proof) -> Iterator[tuple[str, list[DrillRecord]]]:
    """Yield the drills by subject, in the order of the set."""
    named = [(str(subject_of(one.name) or _OTHER), one) for one in proof.drills]
    order = list(dict.fromkeys(subject for subject, _ in named))
    named.sort(key=lambda pair: order.index(pair[0]))
    for subject, pairs in groupby(named, key=lambda pair: pair[0]):
        yield subject, [drill for _, drill in pairs]


def _reasons(proof: Proof) -> Iterator[str]:
    """Yield the reasons of the second copies that arrived."""
    found: dict[str, list[str]] = {}
    for drill in proof.drills:
        if drill.second_copies:
            found.setdefault("; or ".join(drill.copy_reasons), []).append(f"`{drill.name}`")
    if found:
        lines = [f"- {reason}: {', '.join(names)}" for reason, names in found.items()]
        yield "The reasons of these second copies:\n" + "\n".join(lines)


def _speeds(proof: Proof) -> Iterator[str]:
    rows = [(f"`{_shortened(one.command)}`", ", ".join(_headlines(one))) for one in proof.benches]
    if rows:
        yield "The benches ran on the same machine, after the drills:"
        yield _table(("Bench", "Result"), rows)


def _headlines(bench: BenchRecord) -> Iterator[str]:
    for place, text, form in _HEADLINES.get(bench.name, ()):
        figure = _figure(bench.figures, place)
        if figure is not None:
            yield f"{figure:{form}} {text}"


def _figure(figures: Mapping[str, Any], place: str) -> float | None:
    found: Any = figures
    for name in place.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, (int, float)) else None


def _left_out(proof: Proof) -> Iterator[str]:
    if proof.skipped:
        yield "These parts could not run on that machine:\n" + "\n".join(
            f"- `{one.name}`: {one.reason}" for one in proof.skipped
        )


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    titles = list(head)
    cells = [titles, *([f"{one:,}" if isinstance(one, int) else str(one) for one in row] for row in rows)]
    lines = [f"| {' | '.join(line)} |" for line in cells]
    return "\n".join([lines[0], "|" + "---|" * len(titles), *lines[1:]])


def _shortened(command: str) -> str:
    """Return a command as tables show it: without the interpreter and the seed, which is that of the run."""
    return re.sub(r" --seed \d+", "", command.removeprefix("python3 -m "))


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _day(at: datetime) -> str:
    return f"{at.day} {at:%B %Y}"


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(paragraph, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _joined(*blocks: str) -> str:
    return "\n\n".join(blocks) + "\n"
