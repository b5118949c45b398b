"""The command `ops drill`."""

from typing import Any

import click

from loadtests.drill import catalogue
from loadtests.drill.silent_cases import SilentServerKind, Stage
from ops.commands.base import as_json


@click.command()
@click.argument("name", type=click.Choice([*catalogue.names(), "all", "list"]), metavar="NAME|all|list",
                help="Drill to run, `all`, or `list` to show all drills.")  # fmt: skip
@click.option(
    "--messages", type=click.IntRange(10, 1_000_000), help="Minimum number of messages; default: set by the drill."
)
@click.option("--rounds", type=click.IntRange(1, 1_000), help="Number of faults; default: set by the drill.")
@click.option("--minutes", type=click.FloatRange(0.5, 24 * 60), help="Duration, for drills that run for a time.")
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
@as_json
def drill(
    *, name: str, kind: str | None, stage: str | None, accounts: int | None, addresses: int | None, **asked: Any
) -> None:
    """Inject faults into a separate service while mail flows, then account for every message; `list` shows the
    drills."""
    from loadtests.drill import command  # noqa: PLC0415

    given = {"kind": kind, "stage": stage, "accounts": accounts, "addresses": addresses}
    options = {option: value for option, value in given.items() if value is not None}
    raise click.exceptions.Exit(command.run(name, command.DrillRequest(**asked, options=options)))
