"""The rules of `ops drill silent-sites`: delivery times of healthy mail, and no lost message."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from loadtests.drill.clients import Send, percentile
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.silent_cases import SilentCase, SilentServerKind

WITHIN: Final = 2.0  # times the baseline
# Below it a p99 is not judged: beside a burst of other work on two cores, single messages of an unharmed service take
# this long, and twice a baseline of 20 ms would judge the scheduler.
FLOOR_MS: Final = 100.0
MAX_BASELINE_MS: Final = 500.0  # above it the machine is too busy for this rule
MIN_SAMPLES: Final = 50


class DeliveryTimes(Struct, kw_only=True):
    """Healthy mail of one sender in one phase, in ms from the 202 to the arrival.

    A message that has not arrived counts with the time that it has waited.
    """

    sent: int
    accepted: int
    arrived: int
    p50_ms: float
    p99_ms: float
    worst_ms: float

    @property
    def shown(self) -> str:
        """Return the figures in one line."""
        missing = self.accepted - self.arrived
        at_least = f", at least, because {missing} have not arrived" if missing else ""
        return (
            f"{self.arrived} of {self.sent} arrived; p50 {self.p50_ms:g} ms, p99 {self.p99_ms:g} ms, "
            f"worst {self.worst_ms:g} ms{at_least}"
        )


class HealthySender(Struct, kw_only=True):
    """The delivery times of one sender: before the fault, during it, and after all harmful mail was queued."""

    name: str
    baseline: DeliveryTimes
    during: DeliveryTimes
    after_queueing: DeliveryTimes | None


class SilentMailCount(Struct, kw_only=True):
    """Counts of all messages, healthy or not, by their state at the end."""

    sent: int
    accepted: int
    arrived: int
    waiting: int  # in the queue
    bounced: int
    lost: int  # accepted, and neither arrived nor waiting nor bounced
    copies: int  # arrivals too many
    broken_logs: int  # accounts whose log is no whole chain
    accounts: int


class HarmfulMailCost(Struct, kw_only=True):
    """The resources that the harmful mail used."""

    queued_s: float  # from its first request to its last answer
    max_open: int  # connections to its servers at once
    max_to_one: int  # of them to one address
    opened: int
    mta_restarted: bool
    peak_before_mb: float  # most memory of one mta process
    peak_after_mb: float


def series(sent: Sequence[Send], arrived: Mapping[str, float], until: float) -> DeliveryTimes:
    """Return the delivery times of some messages, as of `until` (wall clock)."""
    accepted = [one for one in sent if one.message_id is not None]
    waits = sorted(max(0.0, arrived.get(one.key, until) - one.answered_at) * 1_000 for one in accepted)
    p50, p99, worst = (percentile(waits, part) for part in (0.50, 0.99, 1.0)) if waits else (0.0, 0.0, 0.0)
    return DeliveryTimes(
        sent=len(sent),
        accepted=len(accepted),
        arrived=sum(one.key in arrived for one in accepted),
        p50_ms=p50,
        p99_ms=p99,
        worst_ms=worst,
    )


def limit_ms(baseline: DeliveryTimes) -> float:
    """Return the limit for the p99 of healthy mail during the fault."""
    return max(FLOOR_MS, WITHIN * baseline.p99_ms)


def report_of_case(
    case: SilentCase, senders: Sequence[HealthySender], count: SilentMailCount, load: HarmfulMailCost
) -> DrillReport:
    """Return the report of one case."""
    return DrillReport(
        drill=case.name,
        sent=count.sent,
        accepted=count.accepted,
        delivered=count.arrived,
        bounced=count.bounced,
        lost=count.lost,
        duplicated=count.copies,
        copies=count.copies,
        recovery_s=max(one.during.worst_ms for one in senders) / 1_000,
        checks=[check for one in senders for check in _of_sender(one)] + _of_count(case, count) + _of_load(case, load),
        done=[case.name],
        figures=_figures(case, senders, count, load),
    )


def _of_sender(sender: HealthySender) -> list[Check]:
    baseline, during = sender.baseline, sender.during
    enough = min(baseline.arrived, during.accepted) >= MIN_SAMPLES
    quiet = baseline.arrived == baseline.sent and baseline.p99_ms <= MAX_BASELINE_MS
    limit = limit_ms(baseline)
    why = "the floor" if limit > WITHIN * baseline.p99_ms else f"{WITHIN:g} times the baseline"
    return [
        Check(f"{sender.name}: the baseline is steady enough to judge by", enough and quiet, baseline.shown),
        Check(
            f"{sender.name}: every message is accepted and arrives",
            during.arrived == during.sent,
            f"{during.arrived} of {during.sent}",
        ),
        Check(f"{sender.name}: p99 stays below {limit:g} ms ({why})", during.p99_ms < limit, f"{during.p99_ms:g} ms"),
    ]


def _of_count(case: SilentCase, count: SilentMailCount) -> list[Check]:
    found = f"{count.accepted} accepted, {count.arrived} arrived, {count.waiting} queued, {count.bounced} bounced"
    checks = [
        Check("every message is accepted", count.accepted == count.sent, f"{count.accepted} of {count.sent}"),
        Check("every accepted message arrived or is queued", count.lost == 0, f"{found}, {count.lost} lost"),
        Check("no message arrives twice", count.copies == 0, f"{count.copies} extra copies"),
        Check("the account logs are intact", count.broken_logs == 0, f"{count.broken_logs} broken of {count.accounts}"),
    ]
    if case.kind is not SilentServerKind.WELL:
        checks.append(Check("no message bounces within minutes", count.bounced == 0, f"{count.bounced}"))
    return checks


def _of_load(case: SilentCase, load: HarmfulMailCost) -> list[Check]:
    checks = [Check("no mta process ends", not load.mta_restarted, "restarted" if load.mta_restarted else "none")]
    if case.has_servers and case.used_addresses == case.sites:  # each server has one message
        checks.append(
            Check("one message opens one connection at a time", load.max_to_one <= 1, f"{load.max_to_one} at once")
        )
    return checks


def _figures(
    case: SilentCase, senders: Sequence[HealthySender], count: SilentMailCount, load: HarmfulMailCost
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in senders:
        found[f"{one.name}, baseline"] = one.baseline.shown
        found[f"{one.name}, during the fault"] = one.during.shown
        if one.after_queueing is not None:
            found[f"{one.name}, during the fault, sent after the last harmful message"] = one.after_queueing.shown
    return found | {
        "harmful messages queued within": f"{load.queued_s:.1f} s",
        "most connections to their servers at once": f"{load.max_open}, {load.max_to_one} to one address",
        "connections opened for a harmful message": f"{load.opened / case.sites:.2f}",
        "messages in the queue at the end": count.waiting,
        "most memory of one mta process, MB": f"{load.peak_before_mb:.0f} before, {load.peak_after_mb:.0f} after",
    }
