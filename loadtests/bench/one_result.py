"""Run one measurement while no other runs here, and print its result: the outer part that small benches share."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from rich.console import Console

from loadtests.bench import report
from loadtests.bench.run_control import FAILURES, machine_lock


def run_measurement(work: Callable[[report.Progress], Coroutine[Any, Any, dict[str, Any]]], *, as_json: bool) -> int:
    """Measure and print a line for each value, or JSON; return 0 if the result is `checked`, 1 otherwise."""
    progress = report.Progress()
    try:
        with machine_lock(progress.say):
            result = asyncio.run(work(progress))
    except FAILURES as error:
        progress.fail(str(error) or type(error).__name__)
        return 1
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        for name, value in result.items():
            Console(highlight=False).print(f"{name}: {value}", soft_wrap=True)
    return 0 if result["checked"] else 1
