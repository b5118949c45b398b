"""The commands that `ops` imports when they are called, among them those of the package `loadtests`."""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from ops.cli import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ["bench", "drill", "hosts", "loadtest", "simulate"]
_WITHOUT = """
import sys
sys.modules["loadtests"] = None  # as if there were no such folder
from ops.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_table_of_commands_says_what_their_help_says() -> None:
    for name, listed in COMMANDS.items():
        command = cli.get_command(click.Context(cli), name)

        assert command is not None
        assert command.name == name
        first = inspect.cleandoc(command.help or "").split("\n\n")[0]
        assert " ".join(first.split()) == listed.help, name


def test_the_help_of_ops_imports_no_command() -> None:
    script = (
        "import json, sys; from ops.cli import main; main(['--help']);"
        "print(json.dumps([name for name in sys.modules if name.startswith(('ops.commands.', 'asyncpg'))]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert json.loads(done.stdout.splitlines()[-1]) == ["ops.commands.setup"]


def test_the_help_of_ops_lists_the_tools_with_their_help_lines() -> None:
    lines = CliRunner().invoke(cli, ["--help"]).output.splitlines()

    rows = {words[0]: words[1:] for line in lines if (words := line.split()) and line.startswith("  ")}
    assert all(rows.get(name) for name in TOOLS)


@pytest.mark.parametrize(("words", "typed", "offered"), [([], "ben", "bench"), (["bench"], "--dr", "--drain")])
def test_the_shell_completes_the_tools_and_their_options(words: list[str], typed: str, offered: str) -> None:
    complete = ShellComplete(cli, {}, "ops", "_COMPLETE")

    assert [one.value for one in complete.get_completions(words, typed)] == [offered]


def test_ops_imports_nothing_of_loadtests() -> None:
    for file in (ROOT / "ops").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert "loadtests" not in {name.split(".")[0] for name in names}, file


def test_other_commands_do_not_load_the_tools() -> None:
    script = (
        "import json, sys; from ops.cli import main; main(['config', '--help']);"
        "print(json.dumps([name for name in sys.modules if name.startswith('loadtests')]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_an_installation_without_the_tools_leaves_them_out_of_its_help_and_says_where_they_are() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", _WITHOUT, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert "\n  bench" not in run("--help").stdout
    refused = run("bench")
    assert refused.returncode == 1
    assert refused.stderr == (
        "Error: `ops bench` needs the folder `loadtests`, which is not installed here:"
        " run it in a checkout of Waybill.\n"
    )
