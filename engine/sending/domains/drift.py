"""Notice records that were correct and no longer are: drift. Pure.

One failed look-up is not enough: a zone may be changing. Without an answer from DNS nothing changes.
A record whose wanted value changes, such as a DKIM record after a key rotation, has to be correct again before it can
drift. Records that the operator publishes for all domains are not the concern of a domain's owner.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

from msgspec import Struct, structs

from engine.sending.domains.types import CheckedRecord, RecordFinding, WantedRecord

LOOKS: Final = 2  # checks in a row without the record


class DriftCounts(Struct, frozen=True):
    """Count the records of a domain that were correct once.

    `drifted` no longer are, `suspected` were not found by one check so far, `unanswered` had no answer last time.
    """

    drifted: int
    suspected: int
    unanswered: int


def carried(wanted: WantedRecord, before: RecordFinding, now: RecordFinding) -> RecordFinding:
    """Return a finding with the memory of the earlier one: when it was correct, and how often it was missed since."""
    mark = fingerprint(wanted.value)
    ok_as = mark if before.status == "ok" and before.ok_as is None else before.ok_as
    if now.problem is not None:
        return structs.replace(now, ok_as=ok_as, misses=before.misses)
    if now.status == "ok":
        return structs.replace(now, ok_as=mark)
    return structs.replace(now, ok_as=ok_as, misses=before.misses + 1 if ok_as == mark else 0)


def counts(checks: Sequence[CheckedRecord]) -> DriftCounts:
    """Count what has drifted according to the findings of a domain."""
    known = [check for check in checks if _was_ok(check)]
    asked = [check.finding.misses for check in known if check.finding.problem is None]
    return DriftCounts(
        drifted=sum(misses >= LOOKS for misses in asked),
        suspected=sum(0 < misses < LOOKS for misses in asked),
        unanswered=len(known) - len(asked),
    )


def drifted(checks: Iterable[CheckedRecord]) -> list[CheckedRecord]:
    """Return the records that have drifted."""
    return [
        check for check in checks if _was_ok(check) and check.finding.problem is None and check.finding.misses >= LOOKS
    ]


def fingerprint(value: str) -> str:
    """Return a short digest of a record's wanted value."""
    return sha256(value.encode()).hexdigest()[:12]


def _was_ok(check: CheckedRecord) -> bool:
    return not check.wanted.by_operator and check.finding.ok_as == fingerprint(check.wanted.value)
