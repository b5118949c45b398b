"""The `ops` command line: finds the module of a command, and turns errors into one line and an exit status.

Each command prints text for people, or with `--json` one JSON value for programs. Exit status: 0 done, 1 failed or
something is wrong, 2 wrong usage, 130 interrupted.
"""

import importlib
import importlib.util
import json
import logging
import sys
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

import click

from engine.base.version import version
from ops.commands.setup import COMPLETE_VARIABLE
from ops.host import interpreter, release

# A package that the container image leaves out. It imports `ops`, so that `ops` finds its commands by name only.
_LOADTESTS: Final = "loadtests"


class LazyCommand(NamedTuple):
    """A command: the module that defines it under its name, and the first paragraph of its help."""

    module: str
    help: str


COMMANDS: Final = {
    name: LazyCommand(*words)
    for name, words in tomllib.loads((Path(__file__).parent / "commands/table.toml").read_text("utf-8")).items()
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called; until then, `commands` has their names and helps."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a command by name, or None; raises ClickException for a tool that this installation leaves out."""
        one = COMMANDS.get(cmd_name)
        if one is None:
            return None
        if not _is_installed(one):
            raise click.ClickException(
                f"`ops {cmd_name}` needs the folder `{_LOADTESTS}`, which is not installed here: run it in a checkout"
                " of Waybill."
            )
        if cmd_name != "up":
            _log_to_stderr()
        command: click.Command = getattr(importlib.import_module(one.module), cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        names = self.list_commands(ctx)
        width = formatter.width - 6 - max(map(len, names))
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])


def _is_installed(one: LazyCommand) -> bool:
    return not one.module.startswith(_LOADTESTS) or importlib.util.find_spec(_LOADTESTS) is not None


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        found = cli.main(args=argv, prog_name="ops", standalone_mode=False, complete_var=COMPLETE_VARIABLE)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except Exception as error:
        from ops.commands.failures import FOREIGN, sentence  # noqa: PLC0415 - loads the database driver

        if not isinstance(error, FOREIGN):
            raise
        click.ClickException(sentence(error)).show()
        return 1
    return found if isinstance(found, int) else 0  # click returns the code of an Exit exception


def _log_to_stderr() -> None:
    """Write log lines to standard error, so that they never mix with a command's output, and only from warnings up.

    The logger reads `sys.stderr` at each call: a process that runs several commands may replace and close it between.
    """
    import structlog  # noqa: PLC0415 - 14 MB, which the supervisor does without

    structlog.configure(
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    )


def _print_version(*, as_json: bool) -> None:
    revision = release.revision()
    python = interpreter.about()
    numbers = ".".join(map(str, python["version"]))
    if as_json:
        told = {"version": version(), "revision": revision, "python": numbers, "optimised": bool(python["optimised"])}
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(
        f"waybill {version()}{f' (revision {revision})' if revision else ''},"
        f" Python {numbers} ({interpreter.words(python['optimised'])})"
    )


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True,
    no_args_is_help=True,
    commands={name: click.Command(name, help=one.help) for name, one in COMMANDS.items() if _is_installed(one)},
)  # fmt: skip
@click.option("--version", is_flag=True, help="Print version, revision and Python, and exit.")
@click.option("--json", "as_json", is_flag=True, help="With --version: print one JSON value.")
@click.pass_context
def cli(context: click.Context, *, version: bool, as_json: bool) -> None:
    """Waybill: transactional email that you run yourself.

    Every command that prints accepts --json. Exit status: 0 done, 1 failed or something is wrong, 2 wrong usage, 130
    interrupted.
    """
    if version:
        _print_version(as_json=as_json)
        context.exit()
    if as_json:
        raise click.UsageError("Write --json behind the command, such as `ops status --json`.", context)
