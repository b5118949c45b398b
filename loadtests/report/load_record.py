"""Read back what a load test recorded, from its CSV files and the sink's index, for the report and the checks."""

import bisect
import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from engine.store.sink_folder import SinkEntry

PARTS: Final = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))


class RecordedRequest(Struct, frozen=True):
    """A request of the load test; `at` is the wall-clock time of its end."""

    at: float
    name: str
    group: str
    ms: float
    status: str
    offered: int
    accepted: int

    @property
    def succeeded(self) -> bool:
        """Return True for a 2xx or 3xx answer that the user accepted."""
        return self.status[:1] in {"2", "3"} and not self.status.endswith("!")


class LoadRecipient(Struct, frozen=True):
    """An accepted recipient: the time of the answer, and of the arrival (None: not arrived)."""

    recipient: str
    group: str
    accepted_at: float
    arrived_at: float | None

    @property
    def ms(self) -> float:
        """Return the time from the answer to the sink's 250 in ms; 0 if the 250 came first, NaN without arrival."""
        return math.nan if self.arrived_at is None else max(0.0, self.arrived_at - self.accepted_at) * 1000


class LoadRecord(Struct):
    """Everything that one load test recorded. Times are wall-clock seconds."""

    began: float
    ended: float  # of the sending
    requests: list[RecordedRequest]
    recipients: list[LoadRecipient]
    arrivals: list[float]  # of every copy at the sink
    copies: int  # at the sink beyond the first of each
    unexpected: int  # at the sink without an answer that took them
    tailed: list[tuple[float, float]] = field(default_factory=list)  # (at, ms) of events on live tails
    posted: list[float] = field(default_factory=list)  # arrivals at webhook endpoints

    @property
    def seconds(self) -> float:
        """Return the duration of sending in seconds."""
        return max(0.001, self.ended - self.began)

    def second(self, at: float) -> float:
        """Convert a wall-clock time to seconds since the start."""
        return at - self.began


def read(folder: Path, entries: Iterable[SinkEntry]) -> LoadRecord:
    """Read the CSV files in `folder` and the sink's index; raises ValueError when the load never began."""
    spans = {what: float(at) for at, what in _rows(folder / "span.csv")}
    if "began" not in spans:
        raise ValueError("the load never began")
    requests = [
        RecordedRequest(float(at), name, group, float(ms), status, int(offered), int(accepted))
        for at, name, group, ms, status, offered, accepted in _rows(folder / "requests.csv")
    ]
    first: dict[str, float] = {}
    arrivals: list[float] = []
    for entry in entries:
        at = datetime.fromisoformat(entry.at).timestamp()
        for recipient in entry.recipients:
            arrivals.append(at)
            first.setdefault(recipient, at)
    recipients = [
        LoadRecipient(recipient, group, float(at), first.get(recipient))
        for at, recipient, group in _rows(folder / "accepted.csv")
    ]
    known = {recipient.recipient for recipient in recipients}
    return LoadRecord(
        began=spans["began"],
        ended=spans.get("ended", max((one.at for one in requests), default=spans["began"])),
        requests=requests,
        recipients=recipients,
        arrivals=sorted(arrivals),
        copies=len(arrivals) - len(first),
        unexpected=len(first.keys() - known),
        tailed=[(float(at), float(ms)) for at, ms, _ in _rows(folder / "tailed.csv")],
    )


def percentiles(values: Iterable[float]) -> dict[str, float] | None:
    """Return p50, p95, p99 and maximum by nearest rank; None without values."""
    ordered = sorted(value for value in values if not math.isnan(value))
    if not ordered:
        return None
    found = {name: round(ordered[max(0, math.ceil(part * len(ordered)) - 1)], 1) for name, part in PARTS}
    return found | {"max": round(ordered[-1], 1)}


def by_second(points: Iterable[tuple[float, float]], window_s: float = 1.0) -> dict[float, dict[str, float]]:
    """Return the percentiles of each window of `window_s`, keyed by the start of the window."""
    windows: dict[float, list[float]] = defaultdict(list)
    for at, value in points:
        windows[math.floor(at / window_s) * window_s].append(value)
    return {start: found for start in sorted(windows) if (found := percentiles(windows[start])) is not None}


def rates(times: Sequence[float], until: float, weights: Sequence[float] | None = None) -> list[tuple[float, float]]:
    """Return the events per second from 0 to `until`; `times` are seconds since the start."""
    counts = [0.0] * max(1, math.ceil(until))
    for place, at in enumerate(times):
        if 0 <= at < len(counts):
            counts[int(at)] += 1 if weights is None else weights[place]
    return [(second + 0.5, count) for second, count in enumerate(counts)]


def groups(record: LoadRecord) -> dict[str, dict[str, Any]]:
    """Return for each group of mail the accepted count and the percentiles of answer and delivery times."""
    answers: dict[str, list[float]] = defaultdict(list)
    for one in record.requests:
        if one.succeeded and one.offered:
            answers[one.group].append(one.ms)
    recipients: dict[str, list[float]] = defaultdict(list)
    for recipient in record.recipients:
        recipients[recipient.group].append(recipient.ms)
    return {
        group: {"accepted": len(times), "accept_ms": percentiles(answers[group]), "deliver_ms": percentiles(times)}
        for group, times in recipients.items()  # in the order of their beginning
    }


def by_name(record: LoadRecord) -> dict[str, dict[str, Any]]:
    """Return for each request name its count, failures by answer, rate per second and times in ms."""
    found: dict[str, list[RecordedRequest]] = defaultdict(list)
    for one in record.requests:
        found[one.name].append(one)
    return {name: _summed(requests, record.seconds) for name, requests in sorted(found.items())}


def write_percentiles(record: LoadRecord, folder: Path) -> None:
    """Write `percentiles.csv`: percentiles per second of answer, delivery and live tail times."""
    series = {
        "accept": [(record.second(one.at), one.ms) for one in record.requests if one.offered and one.succeeded],
        "deliver": [(record.second(recipient.accepted_at), recipient.ms) for recipient in record.recipients],
        "tail": [(record.second(at), ms) for at, ms in record.tailed],
    }
    with (folder / "percentiles.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("second", "what", "p50_ms", "p95_ms", "p99_ms", "max_ms"))
        for what, points in series.items():
            for second, found in by_second(points).items():
                writer.writerow((f"{second:g}", what, *found.values()))


def between(times: Sequence[float], since: float, until: float) -> int:
    """Return how many of the sorted `times` lie from `since` to `until`."""
    return bisect.bisect_right(times, until) - bisect.bisect_left(times, since)


def _summed(requests: list[RecordedRequest], seconds: float) -> dict[str, Any]:
    failed: dict[str, int] = defaultdict(int)
    for one in requests:
        if not one.succeeded:
            failed[one.status] += 1
    return {
        "requests": len(requests),
        "failed": dict(failed),
        "per_s": round(len(requests) / seconds, 1),
        "ms": percentiles(one.ms for one in requests if one.succeeded),
    }


def _rows(file: Path) -> list[list[str]]:
    """Return the data rows of a CSV file, [] if it is missing; rows that a crash cut short are left out."""
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as lines:
        head, *rows = csv.reader(lines)
    return [row for row in rows if len(row) == len(head)]
