"""`ops up`: run the service on this host. The process stays, so this module imports little."""

import os

import click

from engine.base.settings import BadSetting, load
from ops.host.up import run


@click.command()
@click.option("--detach", "-d", is_flag=True, help="Keep it running in the background once it is ready.")
def up(*, detach: bool) -> None:
    """Start the service and keep it running until it is told to stop.

    To stop it: Ctrl-C, or `ops stop` in another terminal. Open requests and deliveries are finished first; a second
    Ctrl-C stops at once.
    """
    try:
        loaded = load(os.environ)
    except BadSetting as error:
        raise click.ClickException(str(error)) from error
    if not detach:
        raise click.exceptions.Exit(run(loaded))
    from ops.host.detach import start  # noqa: PLC0415 - the service itself has no use for it

    raise click.exceptions.Exit(start(loaded.settings.state))
