"""`ops log`: change the log level of running processes."""

import click

from ops.commands.base import as_json, print_json, reported, state_folder, table
from ops.commands.durations import Duration
from ops.host import log_levels
from ops.host.log_levels import DEFAULT, LEVELS

_DAY_S = 86_400.0


@click.group()
def log() -> None:
    """Change log levels. Each process writes JSON lines to its file in the folder `log` of the state folder."""


@log.command("level")
@click.argument(
    "level",
    required=False,
    type=click.Choice([*LEVELS, DEFAULT]),
    help="Lowest level to write; without it, show levels.",
)
@click.option("--process", "names", multiple=True, help="Process or kind, as `ops status` names it; default: all.")
@click.option(
    "--for", "for_s", type=Duration(min_s=1, max_s=_DAY_S), default="10m", show_default=True,
    help="Duration, such as 90s, 10m or 2h; afterwards the level of the settings applies again.",
)  # fmt: skip
@as_json
@reported
def log_level(*, level: str | None, names: tuple[str, ...], for_s: float, as_json: bool) -> None:
    """Change the log level of running processes for a limited time, within a second; without LEVEL, show it.

    `default` ends the change at once. The permanent level is the setting WAYBILL_LOG_LEVEL.
    """
    rows = log_levels.ask(state_folder(), level, names, for_s)
    if as_json:
        print_json(rows)
    else:
        table(rows, ["process", "level", "until"])
