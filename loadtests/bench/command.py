"""`ops bench`: run a bench from the catalogue, print its result and set the exit status."""

import json
import os
from collections.abc import Mapping
from typing import Any, Final

import click

from engine.base import settings
from loadtests.bench import catalogue, flame_graphs, measure, report
from loadtests.bench.run import BenchResult, BenchRun
from loadtests.bench.run_control import BenchFailed, measured
from ops.host.process_specs import ROOT

_WRONG_OPTION: Final = 2


def run(name: str, options: Mapping[str, Any], *, as_json: bool) -> int:
    """Measure and print, or print the `list`.

    The result goes to standard output, progress to standard error. Return 0 when measured, 1 when a check failed, 2 for
    an option of other benches.
    """
    progress = report.Progress()
    if name == catalogue.LIST:
        report.show([(bench.name, bench.about) for bench in catalogue.CATALOGUE])
        return 0
    bench = catalogue.named(name)
    for option in options:
        if option not in bench.options:
            takers = ", ".join(one.name for one in catalogue.CATALOGUE if option in one.options)
            word = option.replace("_", "-")
            progress.fail(f"The bench {name} has no option --{word}; it can be given to: {takers}.")
            return _WRONG_OPTION
    result = measured(_measured(bench.with_options(dict(options)), progress.say), progress)
    if as_json:
        click.echo(json.dumps(result.figures, indent=2, ensure_ascii=False))
    else:
        report.show(result.rows)
    return 0 if result.figures["checked"] else 1


async def _measured(bench: catalogue.ChosenBench, say: report.Say) -> BenchResult:
    if not measure.PROC.joinpath("self/stat").exists():
        raise BenchFailed("`ops bench` reads /proc, so it needs Linux.")
    given, folder = settings.load(os.environ).settings, None
    if getattr(bench, "profile", False):
        flame_graphs.program()
        folder = report.new_folder(ROOT)
    result = await bench.measure(BenchRun(given, say, folder))
    if folder is None:
        return result
    figures = result.figures | {"report": str(folder)}
    report.write_json(figures, folder)
    return BenchResult(figures, [*result.rows, (f"Report and flame graphs: {folder}",)])
