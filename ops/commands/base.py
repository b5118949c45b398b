"""What every command shares: settings, answers in words or JSON, and failures in one line."""

import json
import os
import select
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

import click
from rich.console import Console
from rich.table import Table

from engine.base.errors import Refusal
from engine.base.ids import WrongId
from engine.base.settings import BadSetting, Loaded, Settings, load
from engine.mail.address import BadAddress
from ops import operate

P = ParamSpec("P")
_FAILED = (Refusal, WrongId, BadAddress, operate.ApiError, OSError, RuntimeError, ValueError)
_WIDE = None if sys.stdout.isatty() else 200  # a pipe has no width: ids must not be folded
console = Console(highlight=False, soft_wrap=True, width=_WIDE)

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
    """Refusals and unreachable servers as one line, not as a traceback."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except operate.ApiError as error:
            if kwargs.get("as_json"):
                click.echo(json.dumps(error.answer, indent=2))
                raise click.exceptions.Exit(1) from error
            fail(str(error))
        except _FAILED as error:
            if isinstance(error, BrokenPipeError) and _nobody_reads():
                raise  # click ends quietly
            fail(str(error))

    return run


def _nobody_reads() -> bool:
    """True when who read our output has seen enough, as `head` has after some lines."""
    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in watch.poll(0))


def show(value: Any, *, as_json: bool) -> None:
    """An answer: one JSON value, or its fields as lines and tables."""
    if as_json:
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))
        return
    for name, one in value.items():
        if isinstance(one, list) and one and isinstance(one[0], dict):
            table(one, list(one[0]))
        else:
            console.print(f"{name:14} {', '.join(map(str, one)) if isinstance(one, list) else one}", markup=False)


def table(rows: list[dict[str, Any]], columns: list[str]) -> None:
    """Rows as a table without lines."""
    shown = Table(box=None, pad_edge=False)
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*[cell(row.get(column)) for column in columns])
    console.print(shown)


def cell(value: object) -> str:
    """One value as text that rich takes literally."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value).replace("[", r"\[")
