"""`ops drill`: run drills from the catalogue, print their reports and set the exit status."""

import random
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from loadtests.drill import catalogue, report
from loadtests.drill.catalogue import Drill
from loadtests.drill.report import DrillReport

ALL = "all"
LIST = "list"


class DrillRequest(Struct, frozen=True, kw_only=True):
    """The options of the command line; None leaves a value to each drill."""

    messages: int | None = None
    rounds: int | None = None
    minutes: float | None = None
    seed: int | None = None  # of the random choices; None: chosen and printed
    options: Mapping[str, str | int] = {}  # that only some drills take
    as_json: bool = False


def run(name: str, asked: DrillRequest) -> int:
    """Run one drill, `all` drills in turn, or print the `list`.

    Return 0 when every rule held, 1 when one did not or the named drill cannot run here, 2 for an option of other
    drills.
    """
    if name == LIST:
        _list(as_json=asked.as_json)
        return 0
    wanted = [drill for drill in catalogue.CATALOGUE if drill.in_all] if name == ALL else [catalogue.named(name)]
    for drill in wanted:
        refused = [option for option in asked.options if option not in drill.options]
        if refused:
            _say(f"The drill {drill.name} has no option --{refused[0]}; it can be given to: {_takers(refused[0])}.")
            return 2
    seed = random.SystemRandom().getrandbits(32) if asked.seed is None else asked.seed
    reports: list[DrillReport] = []
    skipped: dict[str, str] = {}
    for drill in wanted:
        why = drill.missing()
        if why is not None:
            skipped[drill.name] = why
            _say(f"{drill.name} is skipped: {why}")
            continue
        reports.append(_one(drill, asked, seed))
        if not asked.as_json:
            report.show(reports[-1:])
    _conclude(reports, skipped, asked, seed)
    passed = all(one.passed for one in reports) and (name == ALL or not skipped)
    return 0 if passed else 1


def _one(drill: Drill, asked: DrillRequest, seed: int) -> DrillReport:
    _say(f"{drill.name} (seed {seed}): {drill.about}")
    # A drill of several draws what it would draw alone with the same seed.
    rng = random.Random(f"{drill.name} {seed}")
    return drill.run(drill.order(asked.messages, asked.rounds, rng, asked.minutes, asked.options))


def _takers(option: str) -> str:
    """Return the names of the drills that take this option."""
    return ", ".join(drill.name for drill in catalogue.CATALOGUE if option in drill.options)


def _conclude(reports: Sequence[DrillReport], skipped: dict[str, str], asked: DrillRequest, seed: int) -> None:
    if asked.as_json:
        found = {"seed": seed, "drills": [report.as_builtins(one) for one in reports], "skipped": skipped}
        _print_json(found)
    elif len(reports) > 1:
        report.show(reports)


def _list(*, as_json: bool) -> None:
    found: list[dict[str, Any]] = [
        {
            "name": drill.name,
            "says": drill.about,
            "rows": list(drill.rows),
            "needs": [need.name for need in drill.requires],
            "missing": drill.missing(),
            "messages": drill.order(None, None, random.Random(0), None).messages,
            "rounds": drill.rounds,
            "inAll": drill.in_all,
        }
        for drill in catalogue.CATALOGUE
    ]
    if as_json:
        _print_json(found)
        return
    table = Table(box=None, pad_edge=False)
    for title in ("drill", "rows", "needs", "what it does"):
        table.add_column(title, no_wrap=title != "what it does")
    for one in found:
        away = f" Cannot run here: {one['missing']}." if one["missing"] else ""
        rows = ", ".join(map(str, one["rows"]))
        table.add_row(one["name"], rows, ", ".join(one["needs"]), one["says"] + away)
    Console(highlight=False, emoji=False, soft_wrap=True, width=160).print(table)


def _say(text: str) -> None:
    """Print progress to standard error."""
    with suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)


def _print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value)).decode())
