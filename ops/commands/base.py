"""Code that all commands share: settings, common options, and errors printed as one line."""

import json
import os
import select
import sys
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import asyncpg
import click

from engine.base.settings import BadSetting, Loaded, Settings, load
from engine.store import service_time
from ops import admin
from ops.commands.failures import EXPECTED, sentence
from ops.commands.output import cell, console, line, print_json, record, show, show_rows, table
from ops.host.attach import NotRunning, attach

__all__ = [
    "account_filter", "as_json", "attached", "cell", "console", "fail", "in_database", "in_service", "limit_option",
    "line", "loaded", "print_json", "record", "reported", "show", "show_rows", "state_folder", "table",
]  # fmt: skip

P = ParamSpec("P")
Answer = TypeVar("Answer")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
account_filter = click.option("--account", help="Only this account (id acc_… or name); default: all accounts.")


def limit_option(default: int, *, most: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option `--limit` of a command that prints rows."""
    return click.option(
        "--limit", type=click.IntRange(1, most), default=default, show_default=True, help="Maximum rows to print."
    )


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
    try:
        settings = attach(loaded())
    except NotRunning as error:
        fail(str(error))
    service_time.join(settings)
    return settings


def in_database(
    work: Callable[Concatenate[asyncpg.Pool, P], Awaitable[Answer]], /, *args: P.args, **kwargs: P.kwargs
) -> Answer:
    """Run `work` with a pool of connections to the service's database, and return its result."""
    return admin.with_pool(attached(), lambda pool: work(pool, *args, **kwargs))


def in_service(
    work: Callable[Concatenate[asyncpg.Pool, Settings, P], Awaitable[Answer]], /, *args: P.args, **kwargs: P.kwargs
) -> Answer:
    """Run `work` with a pool of connections to the service's database and its settings, and return the result."""
    settings = attached()
    return admin.with_pool(settings, lambda pool: work(pool, settings, *args, **kwargs))


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
