"""Every `ops …` in README, runbooks and deploy notes is one that the command line takes, options included."""

import re
from pathlib import Path

import click
import pytest

from ops.cli import cli
from tests.harness.documentation import Command, commands, documents

FOUND = [one for file in documents() for one in commands(file) if one.calls]
# What stands for a value that the reader fills in.
PLACEHOLDERS = {
    "N": "1",
    "NODE": "mta-1",
    "MESSAGE": "msg_x",
    "ID": "1a",
    "REPORT": "01a20431-9a31-7974-89ac-c56f6306c6ad",
    "NAME": "x",
    "…": "",
}


def walk(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    """Return the command and everything below it, each with its path of names."""
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found += walk(below, (*path, name))
    return found


COMMANDS = walk(cli)


def parse(words: list[str], folder: Path) -> None:
    """Parse as the command line does, without running anything. Raises click.UsageError.

    A name alone, as in a table of commands, need not have the arguments that a run needs.
    """
    context = cli.make_context("ops", words_for(words, folder), resilient_parsing=not words)
    while isinstance(context.command, click.Group) and (rest := [*context._protected_args, *context.args]):
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        is_mention = not rest
        context = command.make_context(name, rest, parent=context, resilient_parsing=is_mention)


def words_for(words: list[str], folder: Path) -> list[str]:
    """The words with something of the right kind in place of what the reader fills in."""
    found = []
    for word in words:
        if word in {"DIR", "FOLDER"}:
            found.append(str(folder))
        elif word == "COMMAND":
            found.append("queue")
        elif re.fullmatch(r"kill-…", word):
            found.append("kill-api")
        else:
            found.append(PLACEHOLDERS.get(word, word))
    return [word for word in found if word]


def test_a_documented_command_is_one_that_the_command_line_takes(tmp_path: Path) -> None:
    wrong = []
    for command in FOUND:
        for words in command.calls:
            try:
                parse(words, tmp_path)
            except click.exceptions.Exit:  # --help and --version end the parsing
                continue
            except click.UsageError as error:
                wrong.append(f"{command.file}: `ops {' '.join(words)}`: {error.format_message()}")

    assert not wrong


def test_commands_are_found_where_they_stand() -> None:
    """The reading itself: were it blind, the test above would pass."""
    assert {"README.md", "ops/runbooks/backup.md", "ops/deploy/README.md"} <= {one.file for one in FOUND}
    assert len(FOUND) > 60
    spelt = Command("x.md", "A=1 python3 -m ops queue suspend|resume --all > x && ops status # now", fenced=True)
    assert spelt.calls == [["queue", "suspend", "--all"], ["queue", "resume", "--all"], ["status"]]
    for wrong in (["queue", "bounce", "--message", "m"], ["sink", "--nope"], ["quue"], ["bench", "--runs", "many"]):
        with pytest.raises(click.UsageError):
            parse(wrong, Path())


def test_every_command_option_and_argument_says_what_it_is() -> None:
    for path, command in COMMANDS[1:]:
        silent = [one.name for one in command.params if not getattr(one, "help", None)]

        assert command.help, path
        assert silent == [], path


# What prints no answer: it runs a service or another program, changes the network under a host, or writes a file.
NO_JSON = {
    ("up",), ("test",), ("bootstrap",), ("completion",), ("hosts", "cut"), ("hosts", "heal"), ("inbound", "raw"),
    ("contacts", "export"), ("opt-outs", "export"), ("suppressions", "export"),
    ("sendmail",), ("mcp",), ("stop",), ("down",), ("logs",),
}  # fmt: skip


def test_every_command_that_prints_an_answer_prints_it_as_json_too() -> None:
    for path, command in COMMANDS:
        if not isinstance(command, click.Group) and path not in NO_JSON:
            assert "--json" in [name for one in command.params for name in one.opts], path
