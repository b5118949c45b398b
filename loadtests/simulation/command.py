"""The runs that `ops simulate` asks for, and what it prints."""

import argparse
import contextlib
import itertools
import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from loadtests.simulation import clocks, postgres
from loadtests.simulation.campaign import Task, results
from loadtests.simulation.mutations import MUTATIONS
from loadtests.simulation.postgres import SimulationServer
from loadtests.simulation.run import RunResult

PROGRESS_EVERY: Final = 50
MAX_SHOWN: Final = 3  # failing seeds whose schedules are printed

Report = dict[str, Any]


def run(words: Sequence[str]) -> int:
    """Run; return 1 if an invariant did not hold, or a mutation was not found."""
    asked = _asked(words)
    began = clocks.real_monotonic()
    with postgres.server() as running:
        _progress(f"PostgreSQL is ready after {clocks.real_monotonic() - began:.1f} s")
        began = clocks.real_monotonic()
        if asked.mutations:
            report = _mutations(running, asked)
        elif asked.seed is not None:
            report = _one(running, asked.seed, asked.mutation)
        else:
            report = _many(running, asked)
    report["seconds"] = round(clocks.real_monotonic() - began, 1)
    if asked.json:
        print(json.dumps(report))
    else:
        _show(report)
    return 0 if report["passed"] else 1


def _asked(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loadtests.simulation")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--mutation", default="")
    parser.add_argument("--mutations", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(words)


def _one(running: SimulationServer, seed: int, mutation: str) -> Report:
    """Run one seed."""
    with contextlib.closing(results(running, [Task(seed, mutation)], jobs=1, shows=True)) as found:
        _, result = next(found)
    return {"passed": not result.violations, "runs": [_shown(result) | {"schedule": result.schedule}]}


def _many(running: SimulationServer, asked: argparse.Namespace) -> Report:
    """Run seeds; the report holds the schedules of the first that fail."""
    tasks = [Task(seed, asked.mutation) for seed in range(asked.first, asked.first + asked.seeds)]
    runs: list[Report] = []
    failed = 0
    for _, result in results(running, tasks, asked.jobs):
        runs.append(_shown(result))
        if len(runs) % PROGRESS_EVERY == 0:
            _progress(f"{len(runs)} of {asked.seeds} seeds, {failed} failed")
        if result.violations:
            failed += 1
            _progress(f"seed {result.seed} fails: {result.violations[0]}")
            if failed <= MAX_SHOWN:
                runs[-1]["schedule"] = result.schedule
    return {"passed": not failed, "runs": sorted(runs, key=lambda one: int(one["seed"])), "failed": failed}


def _mutations(running: SimulationServer, asked: argparse.Namespace) -> Report:
    """Run each mutation until a seed finds it."""
    found = []
    for name in [asked.mutation] if asked.mutation else MUTATIONS:
        tasks = [Task(seed, name) for seed in range(asked.first, asked.first + asked.seeds)]
        with contextlib.closing(results(running, tasks, asked.jobs)) as ran:
            numbered = zip(itertools.count(1), ran, strict=False)
            hit = next(((count, result) for count, (_, result) in numbered if result.violations), None)
        entry: Report = {"mutation": name, "runs": asked.seeds, "seed": None, "violation": None}
        if hit is not None:
            entry |= {"runs": hit[0], "seed": hit[1].seed, "violation": hit[1].violations[0]}
        found.append(entry)
        _progress(_told(entry))
    return {"passed": all(one["seed"] is not None for one in found), "mutations": found}


def _shown(result: RunResult) -> Report:
    return {
        "seed": result.seed, "digest": result.digest, "violations": result.violations,
        "simulatedSeconds": round(result.simulated_s, 3),
    }  # fmt: skip


def _show(report: Report) -> None:
    """Print a report as text."""
    for one in report.get("runs", []):
        if "schedule" in one:
            print("\n".join(one["schedule"]))
            print(f"seed {one['seed']}: schedule {one['digest']}, {one['simulatedSeconds']} s of simulated time")
        for violation in one["violations"]:
            print(f"  {violation}")
    for one in report.get("mutations", []):
        print(_told(one))
    if "failed" in report:
        each_s = report["seconds"] / len(report["runs"])
        print(f"{len(report['runs'])} seeds, {report['failed']} failed, {report['seconds']} s, {each_s:.2f} s each")


def _told(one: Report) -> str:
    if one["seed"] is None:
        return f"{one['mutation']}: not found in {one['runs']} runs"
    return f"{one['mutation']}: found after {one['runs']} runs, by seed {one['seed']}: {one['violation']}"


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
