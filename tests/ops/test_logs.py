"""What a log line holds when something fails."""

import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.base import logs
from engine.base.log_levels import LEVELS_FILE
from ops.host.process_specs import ROOT

FAILING = """
import structlog
from engine.base import logs
from engine.base.log_levels import LEVELS_FILE
from engine.base.settings import Settings

logs.configure("worker", "info")

def fail(settings):
    body = "Dear Ann, this is private"
    raise RuntimeError("the job broke")

try:
    fail(Settings(key_pepper="c0ffee" * 8, database_url="postgresql://u:hush@h/d"))
except RuntimeError:
    structlog.get_logger("worker").exception("job failed")
"""


def test_a_traceback_names_places_and_no_values() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING], check=True, capture_output=True, text=True, cwd=ROOT, timeout=30
    )

    assert "the job broke" in done.stdout
    assert '"name":"fail"' in done.stdout
    for value in ("c0ffee", "hush", "Dear Ann"):
        assert value not in done.stdout


GOING_ON = """
import logging, sys
import structlog
from engine.base import logs
from engine.base.log_levels import LEVELS_FILE

logs.configure("worker", "info")
structlog.get_logger("worker").info("x" * 100_000)
logging.getLogger("other").error("y" * 100_000)
print("went on", file=sys.stderr)
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_log_that_can_not_be_written_ends_nothing() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", GOING_ON],
            check=False, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=30,
        )  # fmt: skip

    assert done.stderr.startswith("went on")


def written(threshold: logs.Threshold) -> list[str]:
    return [name for name in ("debug", "info", "warning", "error") if threshold.allows(logs._NUMBERS[name])]


def test_a_level_of_the_file_holds_for_its_process_until_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "READ_EVERY_S", 0.0)
    file = tmp_path / LEVELS_FILE
    mine = logs.Threshold("mta-1", logging.INFO, file)
    assert written(mine) == ["info", "warning", "error"]

    file.write_text(json.dumps({"mta-1": {"level": "debug", "until": time.time() + 3600}}))
    assert written(mine) == ["debug", "info", "warning", "error"]
    assert written(logs.Threshold("mta-2", logging.WARNING, file)) == ["warning", "error"]

    file.write_text(json.dumps({"mta-1": {"level": "debug", "until": time.time() - 1}}))
    assert written(mine) == ["info", "warning", "error"]
    file.write_text("{")  # what a crash left
    assert written(mine) == ["info", "warning", "error"]


OF_THE_SERVER = """
from granian.log import LogLevels, configure_logging, logger
from ops.processes import api

configure_logging(LogLevels.info, api.LOG_LINES)
logger.info("Spawning worker-1 with PID: %s", 12)
try:
    raise RuntimeError("it broke")
except RuntimeError:
    logger.exception("Application callable raised an exception")
"""


def test_the_http_server_writes_lines_as_all_others_do() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OF_THE_SERVER], check=True, capture_output=True, text=True, cwd=ROOT, timeout=30
    )
    spawned, failed = (json.loads(line) for line in done.stdout.splitlines())

    assert spawned.keys() == {"event", "level", "logger", "process", "at"}
    assert (spawned["event"], spawned["logger"], spawned["process"]) == (
        "Spawning worker-1 with PID: 12",
        "granian",
        "api",
    )
    assert spawned["at"].endswith("Z")
    assert "it broke" in failed["exception"]
