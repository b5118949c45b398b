"""The command `ops hosts`."""

from functools import partial
from pathlib import Path

import click

from loadtests.hosts import network, run
from ops.commands.base import as_json, print_json, reported, table

_folder = click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), default=run.FOLDER,
    help="Folder for the state of all hosts.",
)  # fmt: skip


@click.group()
def hosts() -> None:
    """Run several hosts as network namespaces of this machine, to test network failures (Linux, root)."""


@hosts.command()
@_folder
@as_json
@reported
def up(folder: Path, *, as_json: bool) -> None:
    """Start the hosts: two with api and relay, three with mta, one worker, one with the stores, one with DNS and
    sink."""
    run.up(folder, partial(click.echo, err=as_json))
    if as_json:
        click.echo(run.as_json(run.status(folder)))
        return
    click.echo("The hosts are up. Run commands with `ip netns exec waybill-client …`; `ops hosts down` removes them.")


@hosts.command()
@_folder
@as_json
@reported
def down(folder: Path, *, as_json: bool) -> None:
    """Stop all processes on the hosts and remove the hosts."""
    run.down(folder, partial(click.echo, err=as_json))
    if as_json:
        print_json({"down": True})


@hosts.command()
@click.argument("name", help="Host, as `ops hosts status` names it.")
@reported
def cut(name: str) -> None:
    """Disconnect a host from the network."""
    network.cut(run.host_that_is_up(name).name)


@hosts.command()
@click.argument("name", help="Host, as `ops hosts status` names it.")
@reported
def heal(name: str) -> None:
    """Reconnect a host to the network."""
    network.heal(run.host_that_is_up(name).name)


@hosts.command()
@_folder
@as_json
@reported
def status(folder: Path, *, as_json: bool) -> None:
    """List the hosts that are up, their processes, and those that are disconnected."""
    rows = run.status(folder)
    if as_json:
        click.echo(run.as_json(rows))
    else:
        table(rows, ["host", "address", "runs", "processes", "cut"])
