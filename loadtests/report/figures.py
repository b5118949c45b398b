"""Compute the figures of one load test: one value for JSON, HTML page and terminal."""

from typing import Any

from msgspec import to_builtins
from rich.console import Console
from rich.table import Table

from loadtests.bench.check import CheckResult
from loadtests.bench.figures import ordered
from loadtests.bench.measure import SERVER_ROLES
from loadtests.report import load_record, samples
from loadtests.report.load_record import LoadRecord
from loadtests.report.samples import Sampler


def summarize(
    done: LoadRecord, sampler: Sampler, findings: list[CheckResult], signatures: list[float], about: dict[str, Any]
) -> dict[str, Any]:
    """Return the figures of one load test.

    `signatures` are ms of CPU of one RSA-2048 signature before and after. CPU of the service counts until it drained.
    """
    moments = sampler.moments
    accepted = len(done.recipients)
    cpu = samples.spent(moments, done.began, moments[-1].at if moments else done.ended)
    server = {role: ms for role, ms in cpu.items() if role in SERVER_ROLES}
    signature_ms = sum(signatures) / len(signatures)
    arrived = [recipient.arrived_at for recipient in done.recipients if recipient.arrived_at is not None]
    cost = sum(server.values()) / max(1, accepted)
    return about | {
        "checked": all(one.ok for one in findings),
        "checks": [to_builtins(one) for one in findings],
        "seconds": round(done.seconds, 1),
        "accepted": accepted,
        "accepted_per_s": round(accepted / done.seconds, 1),
        "arrived": len(arrived),
        "arrived_per_s": round(sum(at <= done.ended for at in arrived) / done.seconds, 1),
        "drained_s": round(max(0.0, max(arrived, default=done.ended) - done.ended), 1),
        "requests": load_record.by_name(done),
        "groups": load_record.groups(done),
        "tail_ms": load_record.percentiles(ms for _, ms in done.tailed),
        "tail_events": len(done.tailed),
        "webhook_posts": len(done.posted),
        "signature_ms": round(signature_ms, 4),
        "server_cpu_ms_per_message": round(cost, 4),
        "cost_in_signatures": round(cost / signature_ms, 2),
        "cpu_ms_per_message_by_role": {role: round(cpu[role] / max(1, accepted), 4) for role in ordered(cpu)},
        "cores_by_role": _cores(moments, done),
        "cores_used_by_others": round(samples.others(moments, done.began, done.ended), 2),
        "memory_kind": sampler.memory_kind,
        "memory_peak_mb_by_role": _peaks(moments),
        "queue_peak": max((one.depth for one in moments), default=0),
        "oldest_peak_s": round(max((one.oldest_s for one in moments), default=0.0), 1),
        "webhook_queue_peak": max((one.hooks for one in moments), default=0),
    }


def show(found: dict[str, Any]) -> None:
    """Print the figures as text."""
    console = Console(highlight=False, emoji=False, soft_wrap=True, width=140)
    for one in found["checks"]:
        console.print(f"{'ok  ' if one['ok'] else 'BAD '} {one['what']}: {one['found']}", markup=False)
    console.print(
        f"\n{found['accepted']:,} accepted in {found['seconds']:g} s, {found['accepted_per_s']:,.0f} a second; arrived"
        f" {found['arrived']:,}, the last {found['drained_s']:g} s after the end; queue at most"
        f" {found['queue_peak']:,}, its oldest {found['oldest_peak_s']:g} s"
    )
    if found["cores_by_role"]:
        console.print(
            f"Server CPU {found['server_cpu_ms_per_message']:.3f} ms a message, {found['cost_in_signatures']:.2f}"
            f" signatures of {found['signature_ms']:.3f} ms; Locust's own:"
            f" {found['cpu_ms_per_message_by_role'].get('locust', 0.0):.3f} ms; others used"
            f" {found['cores_used_by_others']:.2f} cores meanwhile"
        )
    table = Table(box=None, pad_edge=False)
    table.add_column("milliseconds", no_wrap=True)
    for title in ("count", "p50", "p95", "p99", "largest"):
        table.add_column(title, justify="right")
    for row in rows(found):
        table.add_row(*row)
    console.print()
    console.print(table)
    console.print(f"\n{found['report']}/report.html")


def rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of the time table: title, count, p50, p95, p99 and maximum in ms."""
    made = [
        (name + (f", failed {one['failed']}" if one["failed"] else ""), one["requests"], one["ms"])
        for name, one in found["requests"].items()
    ]
    made += [
        (f"answer to arrival: {name}", one["accepted"], one["deliver_ms"]) for name, one in found["groups"].items()
    ]
    if found["tail_ms"] is not None:
        made.append(("event to live tail", found["tail_events"], found["tail_ms"]))
    return [(title, f"{count:,}", *_cells(times)) for title, count, times in made]


def _cells(times: dict[str, float] | None) -> tuple[str, ...]:
    return ("–",) * 4 if times is None else tuple(f"{value:,.1f}" for value in times.values())


def _cores(moments: list[samples.LoadSample], done: LoadRecord) -> dict[str, float]:
    """Return the mean cores used by each role while mail was sent."""
    cpu = samples.spent(moments, done.began, done.ended)
    return {role: round(cpu[role] / 1000 / done.seconds, 3) for role in ordered(cpu)}


def _peaks(moments: list[samples.LoadSample]) -> dict[str, float]:
    roles = {role for one in moments for role in one.memory_mb}
    return {role: round(max(one.memory_mb.get(role, 0.0) for one in moments), 1) for role in ordered(roles)}
