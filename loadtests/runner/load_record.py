"""Read back what a load test recorded: the sent messages, the sink's index and Locust's statistics."""

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from engine.base import clock
from engine.store.sink_folder import SinkEntry
from loadtests.bench import figures
from loadtests.scenarios.load_plan import SENT, STATISTICS, TAIL_EVENT

_PARTS: Final = {"p50": "50%", "p95": "95%", "p99": "99%", "max": "100%"}


class LoadRecord(Struct):
    """Everything that one load test recorded."""

    seconds: float  # from the first answer to the last
    answers: Counter[str]  # recipients: accepted, refused, lost
    arrived: int  # different recipients, accepted or not
    copies: int  # at the sink beyond the first of each
    drained_s: float  # from the last answer to the last arrival
    requests: dict[str, dict[str, Any]]  # Locust's count, failures, rate and percentiles (ms) by name
    deliver_ms: dict[str, dict[str, float] | None]  # from the answer to the sink's 250 by group; 0 if that came first

    @property
    def accepted(self) -> int:
        """Return the number of accepted messages."""
        return self.answers["accepted"]

    @property
    def tail_events(self) -> int:
        """Return the number of events on live tails."""
        return int(self.requests.get(TAIL_EVENT, {}).get("requests", 0))


def read(folder: Path, entries: Iterable[SinkEntry]) -> LoadRecord:
    """Read the files in `folder` and the sink's index; raises ValueError when nothing was sent."""
    first: dict[str, float] = {}
    copies = 0
    for entry in entries:
        for recipient in entry.recipients:
            copies += recipient in first
            first.setdefault(recipient, clock.parse_iso(entry.at).timestamp())
    sent = _rows(folder / SENT)
    if not sent:
        raise ValueError("nothing was sent")
    times = [float(row["at"]) for row in sent]
    waits: dict[str, list[float]] = defaultdict(list)
    for row, at in zip(sent, times, strict=True):
        if row["answer"] == "accepted" and row["recipient"] in first:
            waits[row["group"]].append(max(0.0, first[row["recipient"]] - at))
    return LoadRecord(
        seconds=max(0.001, max(times) - min(times)),
        answers=Counter(row["answer"] for row in sent),
        arrived=len(first),
        copies=copies,
        drained_s=max(0.0, max(first.values(), default=0.0) - max(times)),
        requests={row["Name"]: _request(row) for row in _rows(folder / STATISTICS) if row["Type"]},
        deliver_ms={group: figures.percentiles(times) for group, times in waits.items()},
    )


def _request(row: dict[str, str]) -> dict[str, Any]:
    return {
        "requests": int(row["Request Count"]), "failed": int(row["Failure Count"]),
        "per_s": round(float(row["Requests/s"]), 1), "ms": {name: float(row[part]) for name, part in _PARTS.items()},
    }  # fmt: skip


def _rows(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
