"""How every operator command ends."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from ops.commands import delivery

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
        assert command.wait(20) == 1


def test_what_is_logged_in_a_command_stands_beside_its_json() -> None:
    list_and_log = "main(['drill', 'list', '--json']); structlog.get_logger().info('x')"
    script = f"import structlog; from ops.cli import main; {list_and_log}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert json.loads(done.stdout)
    assert "x" in done.stderr


def test_a_command_leaves_a_process_that_ran_it_able_to_log_when_its_streams_are_gone() -> None:
    run_it = "sys.stderr = io.StringIO(); main(['drill', 'list']); sys.stderr.close(); sys.stderr = sys.__stderr__"
    script = f"import io, sys, structlog; from ops.cli import main; {run_it}; structlog.get_logger().info('after')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert "after" in done.stderr


def test_numbers_that_are_none_are_refused_with_the_option_they_stand_in() -> None:
    done = CliRunner().invoke(delivery.site, ["set", "mx.peer.test", "--ladder", "60,soon"])
    assert done.exit_code == 1
    assert done.stderr == "Error: --ladder takes numbers joined by commas, such as 60,300,900.\n"
