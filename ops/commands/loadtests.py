"""The commands that the package `loadtests` defines, found by module name.

`loadtests` imports `ops`, so `ops` must not import `loadtests`; an installation may also leave the package out, as
the container image does.
"""

import importlib
import importlib.util
from typing import Final

import click

_PACKAGE: Final = "loadtests"
_NAMES: Final = ("bench", "drill", "hosts", "loadtest")


class GroupWithLoadtests(click.Group):
    """A group whose commands `bench`, `drill`, `hosts` and `loadtest` are imported when they are first needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in alphabetical order."""
        own = super().list_commands(ctx)
        return sorted([*own, *_NAMES]) if _is_installed() else own

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by name, or None; raises ClickException for a tool that this installation leaves out."""
        return _load(cmd_name) if cmd_name in _NAMES else super().get_command(ctx, cmd_name)


def _is_installed() -> bool:
    return importlib.util.find_spec(_PACKAGE) is not None


def _load(name: str) -> click.Command:
    if not _is_installed():
        raise click.ClickException(
            f"`ops {name}` needs the folder `{_PACKAGE}`, which is not installed here: run it in a checkout of Waybill."
        )
    command: click.Command = getattr(importlib.import_module(f"{_PACKAGE}.commands.{name}"), name)
    return command
