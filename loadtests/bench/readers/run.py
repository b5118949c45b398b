"""Run every reader case against a separate service and print a table."""

import asyncio
import os
from typing import Final

import orjson
from msgspec import structs
from rich.console import Console
from rich.table import Table

from engine.base import settings
from engine.base.errors import Refusal
from engine.store.database_errors import DatabaseUnavailable
from loadtests.bench import measure, report
from loadtests.bench.readers.cases import ReaderTarget
from loadtests.bench.readers.measuring import Cost, measured
from loadtests.bench.readers.registry import ALL_CASES
from loadtests.bench.service import SENDER, own_service
from ops.host.process_specs import PortTaken
from ops.host.server_paths import CannotServe
from ops.host.supervise import StartFailed

MAX_US_PER_OCTET: Final = 1.0
MAX_MS: Final = 100.0  # of one request: what a bound ends early may cost more for each octet that came
_UNLIMITED: Final = 1_000_000_000


def run(*, as_json: bool, only: str | None = None) -> int:
    """Measure and print; return exit status 0 when no case exceeds the limit.

    `only` selects cases whose reader or input contains this text.
    """
    progress = report.Progress()
    try:
        costs = asyncio.run(_measure(only, progress))
    except (CannotServe, PortTaken, StartFailed, Refusal, DatabaseUnavailable) as error:
        progress.fail(str(error) or type(error).__name__)
        return 1
    _show(costs, as_json=as_json)
    return 1 if any(above_mark(cost) for cost in costs) else 0


def above_mark(cost: Cost) -> bool:
    """Return True if this input costs more CPU than the limit."""
    return cost.us_per_octet > MAX_US_PER_OCTET and cost.cpu_ms > MAX_MS


async def _measure(only: str | None, progress: report.Progress) -> list[Cost]:
    given = structs.replace(settings.load(os.environ).settings, unauthenticated_rate=_UNLIMITED, api_workers=1)
    async with own_service(given, progress.say, delivering=False, tls=False) as service:
        target = ReaderTarget(service.settings.api_host, service.settings.api_port, service.access.key, SENDER)
        pids = measure.tree_of(service.pids()["api"])
        costs = []
        for case in ALL_CASES:
            if only is None or only in f"{case.reader} {case.worst}":
                progress.say(f"{case.reader}: {case.worst}")
                costs.append(await asyncio.to_thread(measured, case, target, pids))
        return costs


def _show(costs: list[Cost], *, as_json: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    if as_json:
        console.print(orjson.dumps([_row(cost) for cost in costs], option=orjson.OPT_INDENT_2).decode(), markup=False)
        return
    table = Table("reader", "worst input", "answer", "octets", "CPU ms", "µs/octet", "bound", box=None)
    for cost in costs:
        style = "red" if above_mark(cost) else ""
        row = _row(cost)
        figures = (f"{cost.octets:,}", f"{cost.cpu_ms:.2f}", f"{cost.us_per_octet:.4f}")
        table.add_row(row["reader"], row["worst"], cost.answer, *figures, row["bound"], style=style)
    Console(highlight=False, width=140).print(table)


def _row(cost: Cost) -> dict[str, str]:
    case = cost.case
    return {
        "reader": case.reader,
        "worst": case.worst,
        "answer": cost.answer,
        "octets": str(cost.octets),
        "cpu_ms": f"{cost.cpu_ms:.3f}",
        "us_per_octet": f"{cost.us_per_octet:.5f}",
        "bound": case.bound,
    }
