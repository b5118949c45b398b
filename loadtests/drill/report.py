"""The report of a drill: message counts, recovery time and each rule that was checked."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Struct

from loadtests.bench import report as output
from loadtests.bench.report import Row
from loadtests.kit.check import Check

__all__ = ["AllowedCopies", "Check", "CopyReason", "DrillReport", "as_builtins", "combined", "show"]

_COLUMNS: Final = {
    "drill": "drill", "sent": "sent", "accepted": "accepted", "delivered": "delivered", "bounced": "refused by MX",
    "lost": "lost", "duplicated": "duplicated", "copies": "extra copies", "recovery_s": "worst recovery s",
    "took_s": "took s",
}  # fmt: skip
_COUNTED: Final = ("sent", "accepted", "delivered", "bounced", "lost", "duplicated", "copies")
_MAX_DONE: Final = 12  # the first of possibly hundreds of kills


class CopyReason(StrEnum):
    """A reason for which a message may arrive twice: its sender could not know that the first copy arrived."""

    MTA_KILLED = "an mta process was killed between a server's reply and its commit"
    MTA_CUT_OFF = "an mta process was stopped or cut off longer than its lease, with messages on the wire"
    POSTGRES_ENDED = "PostgreSQL ended before it committed a delivery"
    NO_REPLY = "the mail server did not confirm a message that it had received, or not in time"


class AllowedCopies(Struct, frozen=True):
    """How many second copies the faults of a drill may cause, and why; none by default."""

    most: int = 0
    reasons: tuple[CopyReason, ...] = ()

    @classmethod
    def each(cls, faults: int, copies: int, *reasons: CopyReason) -> "AllowedCopies":
        """Allow `copies` for each of `faults`."""
        return cls(faults * copies, reasons)


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
    allowed_copies: AllowedCopies = AllowedCopies()
    recovery_s: float = 0.0  # the longest time after a fault in which the service did not do its work
    took_s: float = 0.0
    checks: list[Check] = msgspec.field(default_factory=list)
    done: list[str] = msgspec.field(default_factory=list)  # what was done to the service, in order
    examples: list[str] = msgspec.field(default_factory=list)  # messages to look at after a failure
    figures: dict[str, Any] = msgspec.field(default_factory=dict)  # what only this drill measures

    @property
    def passed(self) -> bool:
        """Return True if no message was lost, no more second copies came than are allowed, and every checked rule
        held; False if nothing was checked."""
        counted = self.lost == 0 and self.copies <= self.allowed_copies.most
        return bool(self.checks) and counted and all(check.ok for check in self.checks)

    def allow_copies(self, allowed: AllowedCopies) -> None:
        """Record how many extra copies the drill allows, and check the number."""
        self.allowed_copies = allowed
        rule = f"at most {allowed.most} extra copies"
        self.checks.append(Check(rule, self.copies <= allowed.most, f"{self.copies}"))

    def count(self, other: "DrillReport") -> None:
        """Add the messages of another report, of the same time."""
        for field in _COUNTED:
            setattr(self, field, getattr(self, field) + getattr(other, field))


def combined(name: str, reports: Sequence[DrillReport]) -> DrillReport:
    """Combine the reports of the parts of one drill."""
    added = {field: sum(getattr(one, field) for one in reports) for field in _COUNTED}
    return DrillReport(
        drill=name,
        **added,
        took_s=sum(one.took_s for one in reports),
        allowed_copies=AllowedCopies(
            sum(one.allowed_copies.most for one in reports),
            tuple(dict.fromkeys(reason for one in reports for reason in one.allowed_copies.reasons)),
        ),
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
