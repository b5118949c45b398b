"""The command `ops drill`: run drills from the catalogue, print their reports and set the exit status."""

import random
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import click

from loadtests.bench import report as output
from loadtests.drill import catalogue, report
from loadtests.drill.catalogue import Drill, Profile
from loadtests.drill.report import DrillReport
from loadtests.drill.silent_cases import SilentServerKind, Stage
from ops.commands.base import as_json as json_option
from ops.commands.base import print_json

ALL = "all"
LIST = "list"


@click.command()
@click.argument("name", type=click.Choice([*catalogue.names(), ALL, LIST]), metavar="NAME|all|list",
                help="Drill to run, `all`, or `list` to show all drills.")  # fmt: skip
@click.option(
    "--messages", type=click.IntRange(10, 1_000_000), help="Minimum number of messages; default: set by the drill."
)
@click.option("--rounds", type=click.IntRange(1, 1_000), help="Number of faults; default: set by the drill.")
@click.option("--minutes", type=click.FloatRange(0.5, 24 * 60), help="Duration, for drills that run for a time.")
@click.option(
    "--profile",
    type=click.Choice(catalogue.PROFILES),
    default="full",
    show_default=True,
    help="Profile of the services that the drill starts.",
)
@click.option("--seed", type=int, help="Repeat the random choices of a run.")
@click.option(
    "--kind",
    type=click.Choice([one.value for one in SilentServerKind]),
    help="With silent-sites: behaviour of the servers.",
)
@click.option(
    "--stage", type=click.Choice([one.value for one in Stage]), help="With silent-sites: the step without an answer."
)
@click.option("--accounts", type=click.IntRange(1, 10_000), help="With silent-sites: number of sending accounts.")
@click.option("--addresses", type=click.IntRange(1, 60_000), help="With silent-sites: number of server addresses.")
@click.option("--postgres", type=click.Path(exists=True, file_okay=False),
              help="With patroni: folder of PostgreSQL's programs.")  # fmt: skip
@json_option
def drill(
    *, name: str, messages: int | None, rounds: int | None, minutes: float | None, seed: int | None, profile: Profile,
    as_json: bool, **options: str | int | None,
) -> None:  # fmt: skip
    """Inject faults into a separate service while mail flows, then account for every message; `list` shows the
    drills."""
    if name == LIST:
        _list(as_json=as_json)
        return
    given = {option: value for option, value in options.items() if value is not None}
    wanted = [one for one in catalogue.CATALOGUE if one.in_all] if name == ALL else [catalogue.named(name)]
    _check_options(wanted, given)
    drawn = random.SystemRandom().getrandbits(32) if seed is None else seed
    reports: list[DrillReport] = []
    skipped: dict[str, str] = {}
    for one in wanted:
        if (why := one.missing(profile)) is not None:
            skipped[one.name] = why
            _say(f"{one.name} is skipped: {why}")
            continue
        _say(f"{one.name} (seed {drawn}): {one.about}")
        # A drill of several draws what it would draw alone with the same seed.
        rng = random.Random(f"{one.name} {drawn}")
        reports.append(one.run(one.order(messages, rounds, rng, minutes, given, profile)))
        if not as_json:
            report.show(reports[-1:])
    if as_json:
        found = [report.as_builtins(one) for one in reports]
        print_json({"seed": drawn, "profile": profile, "drills": found, "skipped": skipped})
    elif len(reports) > 1:
        report.show(reports)
    passed = all(one.passed for one in reports) and (name == ALL or not skipped)
    raise click.exceptions.Exit(0 if passed else 1)


def _check_options(wanted: list[Drill], given: Mapping[str, object]) -> None:
    """End the command with an error if a drill does not take one of the options."""
    for one in wanted:
        for option in given.keys() - set(one.options):
            takers = ", ".join(other.name for other in catalogue.CATALOGUE if option in other.options)
            raise click.UsageError(f"The drill {one.name} has no option --{option}; it can be given to: {takers}.")


def _list(*, as_json: bool) -> None:
    found: list[dict[str, Any]] = [
        {
            "name": one.name, "says": one.about, "needs": [need.name for need in one.requires],
            "missing": one.missing(), "messages": one.order(None, None, random.Random(0), None).messages,
            "small": not one.needs_full, "rounds": one.rounds, "inAll": one.in_all,
        }
        for one in catalogue.CATALOGUE
    ]  # fmt: skip
    if as_json:
        print_json(found)
        return
    rows = [("drill", "needs", "what it does")]
    for one in found:
        away = f" Cannot run here: {one['missing']}." if one["missing"] else ""
        rows.append((one["name"], ", ".join(one["needs"]), one["says"] + away))
    output.show(rows)


def _say(text: str) -> None:
    """Print progress to standard error."""
    with suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)
