"""The report of a drill: message counts, recovery time and each rule that was checked."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from loadtests.bench import report as output
from loadtests.bench.report import Row
from loadtests.kit.check import Check

__all__ = ["Check", "DrillReport", "as_builtins", "combined", "show"]

_COLUMNS: Final = {
    "drill": "drill", "sent": "sent", "accepted": "accepted", "delivered": "delivered", "bounced": "refused by MX",
    "lost": "lost", "duplicated": "duplicated", "copies": "extra copies", "recovery_s": "worst recovery s",
    "took_s": "took s",
}  # fmt: skip
_MAX_DONE: Final = 12  # the first of possibly hundreds of kills


class DrillReport(Struct, kw_only=True):
    """The outcome of one drill. Times in seconds."""

    drill: str
    sent: int = 0
    accepted: int = 0
    delivered: int = 0  # different messages that arrived
    bounced: int = 0  # refused by their mail server, as they should be
    lost: int = 0
    duplicated: int = 0  # messages that arrived more than once
    copies: int = 0  # how many copies too many that makes
    recovery_s: float = 0.0  # the longest time after a fault in which the service did not do its work
    took_s: float = 0.0
    checks: list[Check] = msgspec.field(default_factory=list)
    done: list[str] = msgspec.field(default_factory=list)  # what was done to the service, in order
    examples: list[str] = msgspec.field(default_factory=list)  # messages to look at after a failure
    figures: dict[str, Any] = msgspec.field(default_factory=dict)  # what only this drill measures

    @property
    def passed(self) -> bool:
        """Return True if no message was lost and every checked rule held; False if nothing was checked."""
        return bool(self.checks) and self.lost == 0 and all(check.ok for check in self.checks)


def combined(name: str, reports: Sequence[DrillReport]) -> DrillReport:
    """Combine the reports of the parts of one drill."""
    added = {
        field: sum(getattr(one, field) for one in reports)
        for field in ("sent", "accepted", "delivered", "bounced", "lost", "duplicated", "copies", "took_s")
    }
    return DrillReport(
        drill=name,
        **added,
        recovery_s=max((one.recovery_s for one in reports), default=0.0),
        checks=[Check(f"{one.drill}: {check.what}", check.ok, check.found) for one in reports for check in one.checks],
        done=[line for one in reports for line in one.done],
        examples=[line for one in reports for line in one.examples],
        figures={one.drill: one.figures for one in reports if one.figures},
    )


def as_builtins(report: DrillReport) -> dict[str, Any]:
    """Return the report for JSON; times are rounded to milliseconds."""
    found: dict[str, Any] = msgspec.to_builtins(report)
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in found.items()}
    return rounded | {"passed": report.passed}


def show(reports: Sequence[DrillReport]) -> None:
    """Print a table with a row for each report; for a single report also its faults and checks."""
    rows: list[Row] = [(*_COLUMNS.values(), "result")]
    for report in reports:
        values = [getattr(report, name) for name in _COLUMNS]
        cells = [f"{one:.2f}" if isinstance(one, float) else str(one) for one in values]
        rows.append((*cells, "passed" if report.passed else "FAILED"))
    if len(reports) == 1:
        rows += ((line,) for line in _lines(reports[0]))
    output.show(rows)


def _lines(report: DrillReport) -> Iterator[str]:
    if report.done:
        more = len(report.done) - _MAX_DONE
        yield f"done: {', '.join([*report.done[:_MAX_DONE], *([f'and {more} more'] if more > 0 else [])])}"
    yield from (f"{name}: {figure}" for name, figure in report.figures.items())
    yield from (check.shown for check in report.checks)
    yield from (f"  {line}" for line in report.examples)
