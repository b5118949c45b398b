"""`ops stop`, `down` and `logs`: the service that runs on this host."""

import time
from collections import deque
from pathlib import Path

import click

from engine.base.settings import variable
from ops.commands.base import fail, reported, state_folder
from ops.host import detach
from ops.host.rolling import chosen

_LOOK_S = 0.2


@click.command()
@click.option("--now", is_flag=True, help="Don't finish open requests and deliveries.")
@reported
def stop(*, now: bool) -> None:
    """Stop the service on this host, and wait until it has ended.

    Open requests and deliveries are finished first, for up to WAYBILL_DRAIN_S. Nothing is lost with --now either:
    messages that were accepted are delivered after the next start.
    """
    state = state_folder()
    if detach.stop(state, click.echo, now=now):
        click.echo("Stopped")
    else:
        click.echo(f"Waybill does not run on {state}.")


down = click.Command("down", callback=stop.callback, params=stop.params, help=stop.help)


@click.command()
@click.argument("names", nargs=-1, help="Processes or kinds, as `ops status` names them; default: all.")
@click.option("--follow", "-f", is_flag=True, help="Keep printing new lines until Ctrl-C.")
@click.option("--lines", "-n", type=click.IntRange(0), default=50, show_default=True, help="Last lines of each log.")
@reported
def logs(names: tuple[str, ...], *, follow: bool, lines: int) -> None:
    """Print the logs of the processes on this host."""
    folder = state_folder() / "log"
    known = sorted(file.stem for file in folder.glob("*.log")) if folder.is_dir() else []
    if not known:
        fail(f"There are no logs in {folder}. With {variable('log_output')}=stdout, `ops up` prints them.")
    logs = [_Log(folder / f"{name}.log") for name in chosen(known, names)]
    width = max(len(one.name) for one in logs) if len(logs) > 1 else 0
    for one in logs:
        for line in one.last(lines):
            _print(one.name, line, width)
    while follow:
        time.sleep(_LOOK_S)  # files have no event that every system tells
        for one in logs:
            for line in one.new():
                _print(one.name, line, width)


class _Log:
    """A log file, read on from where it was read last."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._path = path
        self._at = 0

    def last(self, count: int) -> list[str]:
        """Return the last lines."""
        return list(deque(self.new(), maxlen=count))

    def new(self) -> list[str]:
        """Return the lines that came since the last call; a file that became smaller is read from its start."""
        with self._path.open("rb") as file:
            if file.seek(0, 2) < self._at:
                self._at = 0
            file.seek(self._at)
            octets = file.read()
        whole = octets[: octets.rfind(b"\n") + 1]
        self._at += len(whole)
        return whole.decode("utf-8", "replace").splitlines()


def _print(name: str, line: str, width: int) -> None:
    click.echo(f"{name:<{width}} | {line}" if width else line)
