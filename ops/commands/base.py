"""What every command shares: settings, common options, and failures in one line."""

import json
import os
import select
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import NoReturn, ParamSpec

import click

from engine.base.settings import BadSetting, Loaded, Settings, load
from ops import admin
from ops.commands.failures import EXPECTED, sentence
from ops.commands.output import cell, console, line, print_json, show, table

__all__ = [
    "as_json", "attached", "cell", "console", "fail", "line", "loaded", "print_json", "reported", "show",
    "state_folder", "table",
]  # fmt: skip

P = ParamSpec("P")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")


def fail(message: str) -> NoReturn:
    """End the command with one line."""
    raise click.ClickException(message)


def loaded() -> Loaded:
    """The settings; a bad one ends the command with its name."""
    try:
        return load(os.environ)
    except BadSetting as error:
        fail(str(error))


def attached() -> Settings:
    """The settings of the service that runs here; without one the command ends and says how to start it."""
    from ops.up import NotRunning, attach  # noqa: PLC0415 - commands that need no service start faster without

    try:
        return attach(loaded())
    except NotRunning as error:
        fail(str(error))


def state_folder() -> Path:
    """The state folder that the settings name."""
    return loaded().settings.state.expanduser().absolute()


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Print expected failures as one line, not as a traceback."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (click.exceptions.Exit, click.Abort):
            raise
        except admin.ApiError as error:
            if kwargs.get("as_json"):
                click.echo(json.dumps(error.answer, indent=2))
                raise click.exceptions.Exit(1) from error
            fail(str(error))
        except EXPECTED as error:
            if isinstance(error, BrokenPipeError) and _nobody_reads():
                raise  # click ends quietly
            fail(sentence(error))

    return run


def _nobody_reads() -> bool:
    """True when who read our output has seen enough, as `head` has after some lines."""
    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in watch.poll(0))
