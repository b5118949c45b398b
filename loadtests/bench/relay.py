"""`ops bench --relay`: the cost of accepting a message over SMTP, beside the same message over HTTP.

A separate service runs without delivery. Rounds over HTTP and SMTP alternate, so that both meet the same machine load.
Only acceptance counts: from the first octet of a message to the reply after its commit.
"""

import asyncio
import json
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from engine.base import settings
from loadtests.bench import figures, flame_graphs, load, measure, relay_load, report
from loadtests.bench.load import HTTP_GENERATOR, LoadOrder, LoadProcess, times_of
from loadtests.bench.measured_run import SLOWEST_PER_S
from loadtests.bench.run_control import FAILURES, BenchFailed, machine_lock
from loadtests.bench.service import SENDER, BenchService, own_service
from loadtests.bench.yardstick import Yardstick
from ops.process_specs import ROOT

SMTP_GENERATOR: Final = "loadtests.bench.relay_load"
DOMAINS: Final = 10
WARM_UP: Final = 500
_PATIENCE_S: Final = 60.0
_MAX_LINE: Final = 64 * 1024


def run(
    *, messages: int, connections: int, runs: int, profile: bool, as_json: bool, pipelined: bool = True, each: int = 0
) -> int:
    """Measure and print; return exit status 0 when every message was accepted and stored once."""
    progress = report.Progress()
    folder = report.new_folder(ROOT) if profile else None
    try:
        with machine_lock(progress.say):
            result = asyncio.run(
                _measure(messages, connections, runs, folder, progress, pipelined=pipelined, each=each)
            )
    except FAILURES as error:
        progress.fail(str(error) or type(error).__name__)
        return 1
    if folder is not None:
        result["report"] = str(folder)
        report.write_json(result, folder)
    _show(result, as_json=as_json)
    return 0 if result["checked"] else 1


async def _measure(
    messages: int,
    connections: int,
    runs: int,
    folder: Path | None,
    progress: report.Progress,
    *,
    pipelined: bool,
    each: int,
) -> dict[str, Any]:
    given = msgspec.structs.replace(
        settings.load(os.environ).settings, relay_sessions_each=connections + 10, relay_session_s=7_200.0
    )
    yardstick = Yardstick()
    progress.say("Starting a separate service without delivery")
    async with own_service(given, progress.say, delivering=False, tls=False) as service:
        host, state = service.settings.api_host, service.settings.state
        api = load.LoadTarget(
            host=host, port=service.settings.api_port, key=service.access.key, sender=SENDER, domains=DOMAINS,
            connections=connections, folder=str(state),
        )  # fmt: skip
        smtp = relay_load.RelayTarget(
            host=host, port=service.settings.submission_tls_port, key=service.access.key, sender=SENDER,
            domains=DOMAINS, connections=connections, folder=str(state), pipelined=pipelined, each=each,
        )  # fmt: skip
        async with (
            LoadProcess(HTTP_GENERATOR, api, state / "log" / "generator.log") as generator,
            LoadProcess(SMTP_GENERATOR, smtp, state / "log" / "relay-client.log") as client,
        ):
            rounds: dict[str, list[dict[str, Any]]] = {"api": [], "relay": []}
            sent = 0
            signatures = []
            for number in range(runs + 1):  # the first one warms up
                count = messages if number else WARM_UP
                for entry, sender in (("api", generator), ("relay", client)):
                    progress.say(f"{'Round ' + str(number) if number else 'Warming up'}: {count:,} messages, {entry}")
                    signatures.append(await asyncio.to_thread(yardstick.measure))
                    profiled = {entry: _busiest(service, entry)} if folder is not None and number == runs else {}
                    async with flame_graphs.FlameRecorders(profiled, folder or Path()):
                        found = await _round(service, sender, sent, count)
                    sent += count
                    if number:
                        rounds[entry].append(found)
            stored = await service.pool.fetch("SELECT source, count(*) FROM messages GROUP BY source ORDER BY source")
    result: dict[str, Any] = {
        "mode": "relay", "messages": messages, "connections": connections, "pipelined": pipelined,
        "messages_per_session": each or None,
    }  # fmt: skip
    result |= {entry: figures.medians(found) for entry, found in rounds.items()}
    result["signature_ms"] = round(statistics.median(one.cpu_ms for one in signatures), 4)
    for entry in rounds:
        result[entry]["cost_in_signatures"] = round(
            result[entry]["server_cpu_ms_per_message"] / result["signature_ms"], 2
        )
    result["stored"] = {row["source"]: row["count"] for row in stored}
    expected = messages * runs + WARM_UP
    result["checked"] = result["stored"] == {"api": expected, "smtp": expected}
    return result


async def _round(service: BenchService, sender: LoadProcess, first: int, count: int) -> dict[str, Any]:
    roots = measure.roots_by_role(service.pids())
    before = measure.sample(roots)
    sent = await sender.send(LoadOrder(first=first, count=count, timeout_s=_PATIENCE_S + count / SLOWEST_PER_S))
    after = measure.sample(roots)
    if sent.refused:
        raise BenchFailed(f"Not every message was accepted: {sent.refused}\n{sent.example}")
    used = figures.usage(before, after, count)
    cpu = {role: ms for role, ms in used["cpu_ms_by_role"].items() if role not in measure.OUTSIDE_ROLES}
    return {
        "accepted_per_s": round(count / max(sent.ended - sent.began, 1e-6), 1),
        "accept_ms": figures.percentiles(times_of(sent)[0]),
        "server_cpu_ms_per_message": round(sum(cpu.values()), 4),
        "cpu_ms_by_role": cpu,
        "cores_used_by_others": used["cores_used_by_others"],
    }


def _busiest(service: BenchService, entry: str) -> int:
    pids = service.pids()
    return measure.tree_of(pids["api"])[-1] if entry == "api" else pids["relay-1"]


def _show(result: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("", "POST /v1/emails", "SMTP relay"):
        table.add_column(column)
    rows: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "accepted a second": lambda one: f"{one['accepted_per_s']:,.0f}",
        "server CPU, ms a message": lambda one: f"{one['server_cpu_ms_per_message']:.3f}",
        "in RSA signatures": lambda one: f"{one['cost_in_signatures']:.2f}",
        "ms by role": lambda one: ", ".join(f"{role} {ms:.3f}" for role, ms in one["cpu_ms_by_role"].items()),
        "accept, ms p50 p95 p99": lambda one: " ".join(str(ms) for ms in one["accept_ms"].values()),
        "cores used by others": lambda one: str(one["cores_used_by_others"]),
    }
    for name, cell in rows.items():
        table.add_row(name, cell(result["api"]), cell(result["relay"]))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(table)
    console.print(f"signature {result['signature_ms']} ms; stored {result['stored']}; checked: {result['checked']}")
