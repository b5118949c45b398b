"""Commands about the logs of running processes."""

import click

from ops.commands.base import as_json, print_json, reported, state_folder, table
from ops.commands.durations import Duration
from ops.log_levels import DEFAULT, LEVELS

_DAY_S = 86_400.0


@click.group()
def log() -> None:
    """Logs: each process writes JSON lines to its file in the folder `log` of the state folder."""


@log.command("level")
@click.argument(
    "level", required=False, type=click.Choice([*LEVELS, DEFAULT]), help="Lowest level to write; none: show levels."
)
@click.option("--process", "names", multiple=True, help="A process or a kind, as `ops status` names it; default: all.")
@click.option(
    "--for", "for_s", type=Duration(min_s=1, max_s=_DAY_S), default="10m", show_default=True,
    help="How long, such as 90s, 10m or 2h; afterwards the level of the settings holds again.",
)  # fmt: skip
@as_json
@reported
def log_level(*, level: str | None, names: tuple[str, ...], for_s: float, as_json: bool) -> None:
    """Change the log LEVEL of running processes for a while, within a second; without LEVEL, show it.

    `default` ends a change at once. The lasting level is WAYBILL_LOG_LEVEL.
    """
    from ops import log_levels  # noqa: PLC0415

    rows = log_levels.ask(state_folder(), level, names, for_s)
    if as_json:
        print_json(rows)
    else:
        table(rows, ["process", "level", "until"])
