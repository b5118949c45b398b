"""How every operator command ends."""

import errno
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from engine.base.version import version
from engine.store.database_errors import DatabaseLoginRefused, DatabaseUnavailable, SchemaMismatch
from ops.cli import cli
from ops.commands.durations import Duration
from ops.commands.failures import sentence
from ops.commands.output import cell, show
from ops.commands.site import site
from tests.harness.patience import PATIENCE_S

_MUCH = """
import sys
import click
from ops.commands.base import reported

@click.command()
@reported
def command() -> None:
    {}

try:
    command.main(args=[], standalone_mode=False)
except click.ClickException as error:
    error.show()
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("[click.echo(str(number)) for number in range(200_000)]", ""),
        ("raise BrokenPipeError(32, 'the service hung up')", "Error: [Errno 32] the service hung up\n"),
    ],
)
def test_a_reader_who_has_seen_enough_is_no_failure_and_a_server_that_hangs_up_is(does: str, said: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _MUCH.format(does)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.readline()
        if not said:
            command.stdout.close()
        assert command.stderr.read() == said
        assert command.wait(PATIENCE_S) == 1


@pytest.mark.exhaustive
def test_what_is_logged_in_a_command_stands_beside_its_json() -> None:
    list_and_log = (
        "main(['drill', 'list', '--json']); log = structlog.get_logger(); log.info('quiet'); log.warning('loud')"
    )
    script = f"import structlog; from ops.cli import main; {list_and_log}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert json.loads(done.stdout)
    assert "loud" in done.stderr
    assert "quiet" not in done.stderr


def test_the_version_is_printed_for_programs_too() -> None:
    told = json.loads(CliRunner().invoke(cli, ["--version", "--json"]).stdout)
    assert (told["version"], told["python"]) == (version(), platform.python_version())
    alone = CliRunner().invoke(cli, ["--json"])
    assert (alone.exit_code, "behind the command" in alone.stderr) == (2, True)


def test_a_command_leaves_a_process_that_ran_it_able_to_log_when_its_streams_are_gone() -> None:
    run_it = "sys.stderr = io.StringIO(); main(['drill', 'list']); sys.stderr.close(); sys.stderr = sys.__stderr__"
    script = f"import io, sys, structlog; from ops.cli import main; {run_it}; structlog.get_logger().warning('after')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert "after" in done.stderr


def test_numbers_that_are_none_are_refused_with_the_option_they_stand_in() -> None:
    done = CliRunner().invoke(site, ["set", "mx.peer.test", "--ladder", "60,soon"])
    assert done.exit_code == 1
    assert done.stderr == "Error: --ladder needs numbers separated by commas, such as 60,300,900.\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), ("", "-"), ([], "-"), ({}, "-"), (True, "yes"), (False, "no"), (0, "0"), (1.5, "1.5"),
        (["a", None, True], "a, -, yes"), (("x", "y"), "x, y"), ({"a": 1, "b": None}, "a=1 b=-"), ("[x]", "[x]"),
        (datetime(2026, 11, 20, 8, 9, 10, tzinfo=UTC), "2026-11-20T08:09:10.000Z"), (date(2026, 11, 20), "2026-11-20"),
    ],
)  # fmt: skip
def test_a_value_is_printed_as_a_person_reads_it(value: object, text: str) -> None:
    assert cell(value) == text


def test_rows_stand_as_a_table_under_their_name_behind_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    show({"rows": [{"a": "[b]", "c": None}], "deletionScheduledFor": None, "id": "x"}, as_json=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    assert lines == ["deletionScheduledFor -", "id                   x", "", "rows:", "a    c", "[b]  -"]


def test_a_file_of_another_user_is_told_with_both_users(tmp_path: Path) -> None:
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / "pepper"))
    assert sentence(refused).startswith("User ")
    assert f"may not use {tmp_path / 'pepper'}." in sentence(refused)
    assert "`sudo -u root …`" in sentence(PermissionError(errno.EACCES, "no", "/proc/1/x")) or os.geteuid() == 0


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (DatabaseLoginRefused("no such password"), "WAYBILL_DATABASE_URL"),
        (SchemaMismatch('relation "x" does not exist'), "Run `ops migrate`."),
        (DatabaseUnavailable("the database system is starting up"), "PostgreSQL is unavailable"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "`ops doctor`"),
        (TimeoutError(), "did not respond in time."),
    ],
)
def test_errors_of_servers_say_what_to_do(error: Exception, says: str) -> None:
    assert says in sentence(error)
    assert "\n" not in sentence(error)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("2h", 7200), ("1.5h", 5400), ("5", 300), ("x", None), ("9d", None)],
)
def test_spans_of_time_are_read_with_their_unit(text: str, seconds: float | None) -> None:
    kind = Duration(min_s=1, max_s=86_400)
    if seconds is None:
        with pytest.raises(click.BadParameter):
            kind.convert(text, None, None)
    else:
        assert kind.convert(text, None, None) == seconds


def test_the_version_names_revision_and_python() -> None:
    done = CliRunner().invoke(cli, ["--version"])

    assert done.exit_code == 0
    assert done.stdout.startswith(f"waybill {version()}")
    assert f"Python {'.'.join(map(str, sys.version_info[:3]))} (" in done.stdout


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["messags"], "messages"), (["queue", "suspnd"], "suspend"), (["queue", "--limt", "3"], "--limit")],
)
def test_a_misspelt_command_or_option_names_its_neighbour(words: list[str], meant: str) -> None:
    done = CliRunner().invoke(cli, words)

    assert done.exit_code == 2
    assert "Did you mean" in done.stderr
    assert meant in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_completes_the_command_in_each_shell(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell, "--name", "wb"], prog_name="ops")

    assert done.exit_code == 0
    assert "_WAYBILL_COMPLETE" in done.stdout
    assert "wb" in done.stdout
