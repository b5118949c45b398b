"""Compute figures from samples: rates, CPU per message, percentiles, commits, medians of runs. Pure."""

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from loadtests.bench.load import LoadResult
from loadtests.bench.measure import OUTSIDE_ROLES, SERVER_ROLES, UsageSample

_SERIES: Final = re.compile(r"^(\w+)(?:\{(.*)\})? ([0-9.eE+-]+|NaN)$")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')

MetricSeries = dict[tuple[str, str], float]  # (name, value of the one label that matters) → value


def percentiles(seconds: Iterable[float]) -> dict[str, float] | None:
    """Return p50, p95 and p99 in ms by nearest rank, ignoring NaN; None without values."""
    ordered = sorted(value * 1000 for value in seconds if not math.isnan(value))
    if not ordered:
        return None
    return {name: round(ordered[max(0, math.ceil(part * len(ordered)) - 1)], 2) for name, part in _PARTS}


_PARTS: Final = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))


def rate(load: LoadResult, count: int) -> float:
    """Return the messages per second of an order."""
    return round(count / max(load.ended - load.began, 1e-6), 1)


def usage(before: UsageSample, after: UsageSample, messages: int) -> dict[str, Any]:
    """Return CPU (ms) and context switches per message by role, and the cores that other programs used."""
    cpu = {role: after.roles[role].cpu_ms - before.roles[role].cpu_ms for role in after.roles if role in before.roles}
    switches = {role: after.roles[role].switches - before.roles[role].switches for role in cpu}
    took_ms = (after.at - before.at) * 1000
    others = max(0.0, after.machine_busy_ms - before.machine_busy_ms - sum(cpu.values()))
    return {
        "server_cpu_ms_per_message": _rounded(sum(cpu.get(role, 0.0) for role in SERVER_ROLES) / messages),
        "cpu_ms_by_role": {role: _rounded(cpu[role] / messages) for role in ordered(cpu)},
        "context_switches_by_role": {role: round(max(0, switches[role]) / messages, 2) for role in ordered(switches)},
        # In cores: what neighbours took from the run.
        "cores_used_by_others": round(others / took_ms, 2),
        "cores_stolen": round((after.machine_stolen_ms - before.machine_stolen_ms) / took_ms, 2),
    }


def flushes(before: MetricSeries, after: MetricSeries) -> dict[str, dict[str, float]]:
    """Return for each kind of group commit the number of commits, their mean size and mean duration in ms."""
    flows = sorted({label for name, label in after if name == "waybill_flush_items_count"})
    found = {}
    for flow in flows:
        count = _increase(before, after, "waybill_flush_items_count", flow)
        if count > 0:
            found[flow] = {
                "flushes": round(count),
                "items": round(_increase(before, after, "waybill_flush_items_sum", flow) / count, 1),
                "ms": round(_increase(before, after, "waybill_flush_seconds_sum", flow) / count * 1000, 2),
            }
    return found


def settle_lag(before: MetricSeries, after: MetricSeries) -> dict[str, float] | None:
    """Return the time from final reply to commit of the slowest outcome of each half second and process.

    The value holds the number of half seconds, the mean in ms and the share within 50 ms; None if nothing was settled.
    """
    name = "waybill_settle_seconds"
    count = _increase(before, after, f"{name}_count", "")
    if count <= 0:
        return None
    return {
        "half_seconds": round(count),
        "slowest_mean_ms": round(_increase(before, after, f"{name}_sum", "") / count * 1000, 1),
        "within_50_ms": round(_increase(before, after, f"{name}_bucket", "0.05") / count, 3),
    }


def connections(before: MetricSeries, after: MetricSeries) -> dict[str, int]:
    """Return the SMTP connections to the sink that were opened and reused."""
    name = "waybill_smtp_connections_total"
    labels = sorted({label for series, label in after if series == name})
    return {label: round(_increase(before, after, name, label)) for label in labels}


def dns_questions(before: MetricSeries, after: MetricSeries) -> int:
    """Return the number of questions sent to DNS servers."""
    return round(_increase(before, after, "waybill_dns_questions_total", ""))


def parse_metrics(text: str) -> MetricSeries:
    """Parse Prometheus text format; keeps only the label `flow` or `how`, or `le` where it is the only label."""
    found: MetricSeries = {}
    for line in text.splitlines():
        match = _SERIES.match(line)
        if match is not None:
            labels = dict(_LABEL.findall(match[2] or ""))
            key = (match[1], labels.get("flow") or labels.get("how") or labels.get("le") or "")
            found[key] = found.get(key, 0.0) + float(match[3])
    return found


def ordered(roles: Iterable[str]) -> list[str]:
    """Return roles in display order: server roles first."""
    known = [*SERVER_ROLES, *OUTSIDE_ROLES]
    return sorted(roles, key=lambda role: known.index(role) if role in known else len(known))


def medians(results: Sequence[Any]) -> Any:
    """Return a value of the same shape with the median of every number and the first of everything else."""
    first = results[0]
    if isinstance(first, Mapping):
        return {key: medians([one[key] for one in results if isinstance(one, Mapping) and key in one]) for key in first}
    numbers = [one for one in results if isinstance(one, (int, float)) and not isinstance(one, bool)]
    if len(numbers) == len(results):
        middle = statistics.median(numbers)
        return middle if isinstance(first, float) else round(middle)
    return first


def _increase(before: MetricSeries, after: MetricSeries, name: str, label: str) -> float:
    return after.get((name, label), 0.0) - before.get((name, label), 0.0)


def _rounded(value: float) -> float:
    return round(value, 4)
