"""Code that all commands share: settings, common options, and errors printed as one line."""

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
    """End the command with exit status 1 and one line on standard error."""
    raise click.ClickException(message)


def loaded() -> Loaded:
    """Return the settings; ends the command with an error that names the setting if one is wrong."""
    try:
        return load(os.environ)
    except BadSetting as error:
        fail(str(error))


def attached() -> Settings:
    """Return the settings of the service that runs here; ends the command with an error if none runs."""
    from ops.host.up import NotRunning, attach  # noqa: PLC0415 - commands that need no service start faster without

    try:
        return attach(loaded())
    except NotRunning as error:
        fail(str(error))


def state_folder() -> Path:
    """Return the absolute path of the state folder."""
    return loaded().settings.state.expanduser().absolute()


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Decorate a command so that it prints expected errors as one line instead of a traceback."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (click.exceptions.Exit, click.Abort):
            raise
        except admin.ApiCallError as error:
            if kwargs.get("as_json"):
                click.echo(json.dumps(error.answer, indent=2))
                raise click.exceptions.Exit(1) from error
            fail(str(error))
        except EXPECTED as error:
            if isinstance(error, BrokenPipeError) and _reader_is_gone():
                raise  # click ends quietly
            fail(sentence(error))

    return run


def _reader_is_gone() -> bool:
    """Return True if the reader of standard output has closed the pipe, as `head` does after some lines."""
    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in watch.poll(0))
