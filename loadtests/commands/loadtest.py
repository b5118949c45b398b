"""The command `ops loadtest`."""

import importlib.util
from pathlib import Path
from typing import Any

import click

from loadtests.peers import comparison
from loadtests.peers.comparison import COMPARISONS
from loadtests.runner.catalogue import SCENARIOS
from loadtests.runner.run import run
from ops.commands.base import as_json, fail, show

_MAX_SECONDS = 4 * 3600.0


@click.command()
@click.argument("name", metavar="NAME|peers|list", help="Load to run, `peers`, or `list` to show all loads.")
@click.option("--seconds", type=click.FloatRange(1, _MAX_SECONDS), help="Sending time; default: 60.")
@click.option("--minutes", type=click.FloatRange(0.1, _MAX_SECONDS / 60), help="Sending time in minutes.")
@click.option("--users", type=click.IntRange(1, 2_000), help="Number of users that send.")
@click.option(
    "--rate", type=click.FloatRange(0.1, 20_000), help="Requests per second of all users; default: set by the load."
)
@click.option("--messages", "max_messages", type=click.IntRange(1, 1_000_000), help="Maximum number of messages.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="The report's folder.")
@click.option("--url", help="URL of a service running on this machine, instead of a separate one.")
@click.option("--key", help="With --url: the API key to send with.")
@click.option(
    "--runs", type=click.IntRange(1, 20), default=3, show_default=True, help="With peers: number of pairs of runs."
)
@click.option("--only", multiple=True, help="With peers: name of a peer; repeatable.")
@as_json
def loadtest(*, name: str, seconds: float | None, minutes: float | None, **options: Any) -> None:
    """Run load NAME against a separate service and write a report; `list` shows the loads.

    `peers` compares Waybill with Postfix, Haraka, OpenSMTPD and Exim, where they are installed, in pairs of runs;
    `peers-receiving` compares receiving with Postfix and Haraka.
    """
    peers = {"runs": options.pop("runs"), "only": options.pop("only")}
    if name == "list":
        loads = [
            {"name": one.name, "users": one.users, "rate": one.rate, "seconds": one.seconds, "about": one.about}
            for one in SCENARIOS.values()
        ]
        show({"loads": loads}, as_json=options["as_json"])
        return
    if name in COMPARISONS:
        chosen = {"messages": options["max_messages"], "as_json": options["as_json"]}
        raise click.exceptions.Exit(comparison.run(name, **peers, **chosen))
    if name not in SCENARIOS:
        fail(f"There is no load named {name}; there are: {', '.join([*SCENARIOS, *COMPARISONS])}.")
    if importlib.util.find_spec("locust") is None:
        fail("locust is not installed. Run `python3 -m ops loadtest …`, which installs it.")
    duration = minutes * 60 if minutes is not None else seconds
    raise click.exceptions.Exit(run(name, seconds=duration, **options))
