"""Output of benches: progress on standard error, the result as a table or JSON, and the report folder."""

import json
import time
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from loadtests.bench.measure import SERVER_ROLES

KEY_FIGURES: Final = (
    "accepted_per_s",
    "delivered_per_s",
    "server_cpu_ms_per_message",
    "signature_ms",
    "cost_in_signatures",
)


class Progress:
    """Prints progress and errors to standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, style="dim")

    def fail(self, text: str) -> None:
        """Print why there is no result."""
        self._console.print(text, style="red")


def new_folder(root: Path) -> Path:
    """Create a new folder `reports/bench-<time>` below `root`."""
    name = time.strftime("bench-%Y%m%d-%H%M%S")
    folder = root / "reports" / name
    number = 1
    while folder.exists():
        number += 1
        folder = root / "reports" / f"{name}-{number}"
    folder.mkdir(parents=True)
    return folder


def write_json(result: dict[str, Any], folder: Path) -> None:
    """Write the result to `bench.json` in the folder."""
    (folder / "bench.json").write_text(_text(result) + "\n", "utf-8")


def show(result: dict[str, Any], *, as_json: bool) -> None:
    """Print the result."""
    if as_json:
        click.echo(_text(result))
        return
    console = Console(highlight=False, emoji=False, soft_wrap=True)
    if not result["checked"]:
        _show_failure(result, console)
        return
    _show_speed(result, console)
    _show_roles(result, console)
    _show_latencies(result, console)
    _show_rest(result, console)


def _text(result: dict[str, Any]) -> str:
    return json.dumps(result, indent=2, ensure_ascii=False)


def _show_failure(result: dict[str, Any], console: Console) -> None:
    console.print("The run failed its check; it says nothing about speed.", style="bold red")
    for one in result["checks"]:
        console.print(f"{'ok  ' if one['ok'] else 'BAD '} {one['what']}: {one['found']}", markup=False)
    console.print(result["logs"].strip(), markup=False)


def _show_speed(result: dict[str, Any], console: Console) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    title = f"{result['messages']:,} messages, {result['domains']:,} domains, {result['mode']}"
    if result["stored"]:
        title += f", {result['stored']:,} stored before"
    table.add_row(title, "", f"{result['api_workers']} api, {result['mta_workers']} mta")
    queueing = result.get("queueing")
    accepted = queueing["accepted_per_s"] if queueing else result["accepted_per_s"]
    table.add_row("accepted", f"{accepted:,.0f}", "a second")
    table.add_row("delivered and settled", f"{result['delivered_per_s']:,.0f}", "a second")
    table.add_row("server CPU", f"{result['server_cpu_ms_per_message']:.3f}", "ms a message")
    if queueing:
        table.add_row("server CPU of queueing", f"{queueing['server_cpu_ms_per_message']:.3f}", "ms a message")
    table.add_row("RSA-2048 signature", f"{result['signature_ms']:.3f}", "ms")
    table.add_row("cost in signatures", f"{result['cost_in_signatures']:.2f}", "", style="bold")
    console.print(table)
    for number, one in enumerate(result.get("runs", []), 1):
        console.print(
            f"  run {number}: {one['delivered_per_s']:,.0f} a second,"
            f" {one['server_cpu_ms_per_message']:.3f} ms, {one['cost_in_signatures']:.2f} signatures"
        )


def _show_roles(result: dict[str, Any], console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("process")
    for title in ("CPU ms", "signatures", "switches", f"MiB ({result['memory_kind']})", "peak of one"):
        table.add_column(title, justify="right")
    for role, cpu_ms in result["cpu_ms_by_role"].items():
        table.add_row(
            role,
            f"{cpu_ms:.4f}",
            f"{cpu_ms / result['signature_ms']:.2f}",
            f"{result['context_switches_by_role'][role]:.2f}",
            f"{result['rss_mb_by_role'].get(role, 0):.0f}",
            f"{result['peak_rss_mb_by_role'].get(role, 0):.0f}",
            style=None if role in SERVER_ROLES else "dim",
        )
    console.print()
    console.print(table)


def _show_latencies(result: dict[str, Any], console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("milliseconds")
    for title in ("p50", "p95", "p99"):
        table.add_column(title, justify="right")
    full = result["at_full_rate"]
    queued = " while delivery waited" if result["mode"] == "drain" else ", at full rate"
    rows = [(f"accept{queued}", full["accept_ms"])]
    if full["deliver_ms"] is not None:
        rows.append(("202 to remote 250, at full rate", full["deliver_ms"]))
    if result["paced_per_s"] is not None:
        at = f"at {result['paced_per_s']:,.0f} a second"
        rows += [(f"accept, {at}", result["accept_ms"]), (f"202 to remote 250, {at}", result["deliver_ms"])]
    for title, values in rows:
        table.add_row(title, *[f"{values[name]:,.1f}" for name in ("p50", "p95", "p99")])
    console.print()
    console.print(table)


def _show_rest(result: dict[str, Any], console: Console) -> None:
    console.print()
    for flow, one in result["flush"].items():
        console.print(f"{flow}: {one['flushes']:,} commits of {one['items']:.1f} in the mean, {one['ms']:.2f} ms each")
    if (lag := result["settle_lag"]) is not None:
        console.print(
            f"Final reply to commit, slowest of each half second: {lag['slowest_mean_ms']:.1f} ms in the mean,"
            f" {lag['within_50_ms']:.0%} within 50 ms"
        )
    found = ", ".join(f"{count:,} {how}" for how, count in result["smtp_connections"].items())
    console.print(f"SMTP connections: {found or 'none'}{' with TLS' if result['tls'] else ''}")
    machine = result["machine"]
    console.print(
        f"{machine['cpu']}, {machine['cores']} cores, {machine['filesystem']} syncing in {machine['sync_us']:.0f} µs,"
        f" Python {machine['python']} ({machine['python_build']});"
        f" others used {result['cores_used_by_others']:.2f} cores meanwhile"
    )
    console.print("Checked: " + "; ".join(one["what"] for one in result["checks"]), style="green")
    if "report" in result:
        console.print(f"Report and flame graphs: {result['report']}")
