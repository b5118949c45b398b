"""`ops bench`: measure acceptance and delivery, each run on a fresh service, and print the medians."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.base import settings
from engine.base.settings import Settings
from engine.store.database_errors import DatabaseUnavailable
from loadtests.bench import figures, flame_graphs, measure, report
from loadtests.bench.load import HTTP_GENERATOR, GeneratorFailed, LoadProcess, LoadTarget
from loadtests.bench.measured_run import MeasuredRun, copy_logs
from loadtests.bench.options import BenchOptions
from loadtests.bench.run_control import FAILURES, INTERRUPTED, BenchFailed, interruptible, machine_lock
from loadtests.bench.service import SENDER, own_service
from loadtests.bench.yardstick import Yardstick
from ops.process_specs import ROOT

Say = Callable[[str], None]


def run(
    *,
    scenario: str = "a",
    messages: int = 20_000,
    warm_up: int = 1_000,
    connections: int = 64,
    runs: int = 1,
    drain: int | None = None,
    profile: bool = False,
    paced: bool = True,
    tls: bool = False,
    rsa: bool = False,
    batch: int = 1,
    domains: int | None = None,
    rate: float | None = None,
    stored: int = 0,
    as_json: bool = False,
) -> int:
    """Measure and print; return 0 when measured, 1 when it failed or a check failed, 130 after a signal.

    The result goes to standard output, progress to standard error.
    """
    options = BenchOptions(
        scenario=scenario, messages=messages, warm_up=warm_up, connections=connections, runs=runs,
        drain=drain, profile=profile, paced=paced, tls=tls, rsa=rsa, batch=batch, domains=domains,
        rate=rate, stored=stored,
    )  # fmt: skip
    progress = report.Progress()
    try:
        with machine_lock(progress.say):
            result = asyncio.run(interruptible(_runs(options, progress.say)))
    except FAILURES as error:
        progress.fail(str(error) or type(error).__name__)
        return 1
    except (asyncio.CancelledError, KeyboardInterrupt):
        progress.fail("Interrupted: nothing was measured.")
        return INTERRUPTED
    report.show(result, as_json=as_json)
    return 0 if result["checked"] else 1


async def _runs(options: BenchOptions, say: Say) -> dict[str, Any]:
    """Measure `options.runs` times; return the medians, or the first result that failed its check."""
    if not measure.PROC.joinpath("self/stat").exists():
        raise BenchFailed("`ops bench` reads /proc, so it needs Linux.")
    given = settings.load(os.environ).settings
    folder = report.new_folder(ROOT) if options.profile else None
    if folder is not None:
        flame_graphs.program()
    yardstick = Yardstick()
    results = []
    for number in range(1, options.runs + 1):
        if options.runs > 1:
            say(f"Run {number} of {options.runs}")
        result = await measure_once(options, given, yardstick, folder, say)
        if not result["checked"]:
            return result
        results.append(result)
    found: dict[str, Any] = figures.medians(results)
    if options.runs > 1:
        found["runs"] = [{name: one[name] for name in report.KEY_FIGURES} for one in results]
    if folder is not None:
        found["report"] = str(folder)
        report.write_json(found, folder)
    return found


async def measure_once(
    options: BenchOptions, given: Settings, yardstick: Yardstick, folder: Path | None, say: Say
) -> dict[str, Any]:
    """Measure once on a fresh service and return the result."""
    say("Starting a separate service")
    async with own_service(given, say, delivering=options.drain is None, tls=options.tls, rsa=options.rsa) as service:
        target = LoadTarget(
            host=service.settings.api_host,
            port=service.settings.api_port,
            key=service.access.key,
            sender=SENDER,
            domains=options.recipients_domains,
            connections=options.connections,
            folder=str(service.settings.state),
            batch=options.batch,
        )
        async with LoadProcess(HTTP_GENERATOR, target, service.settings.state / "log" / "generator.log") as generator:
            measured = MeasuredRun(options, service, generator, yardstick, folder, say)
            try:
                return await measured.run()
            except (BenchFailed, GeneratorFailed, DatabaseUnavailable) as error:
                raise BenchFailed(f"{str(error) or type(error).__name__}{copy_logs(service)}") from error
