"""Run one part of a proof as a command of its own, and make its record from what the command prints.

A part that hangs, dies or prints no result is a failed record with the last lines of its log.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from engine.base import clock
from engine.base.settings import PREFIX
from loadtests.drill.report import DrillReport
from loadtests.proof.record import BenchRecord, DrillRecord, counts_of
from loadtests.proof.sets import ProofPart
from ops.host import launch
from ops.host.process_specs import ROOT
from ops.host.state import tail

LIMIT_S: Final = 900.0  # for one part: several times what the longest takes
_STOP_S: Final = 90.0  # for a part to stop its service after a signal
_LOG_LINES: Final = 5
Record = DrillRecord | BenchRecord


class _Finished(Struct, frozen=True):
    """The exit status of a command (None: stopped at the limit), its JSON value, and the end of its log."""

    status: int | None
    value: Any
    log: str


class _DrillOutput(Struct, frozen=True):
    drills: tuple[DrillReport, ...]


def run_part(part: ProofPart, seed: int, folder: Path, *, limit_s: float = LIMIT_S) -> Record:
    """Run a part and return its record; its output stays in the folder. Call from the main thread."""
    words = part.words(seed)
    started_at, began = clock.iso(clock.now()), time.monotonic()
    done = _finished(words, folder / f"{part.name}.out", folder / f"{part.name}.log", limit_s)
    told: dict[str, Any] = {
        "name": part.name, "about": part.about, "command": f"python3 -m ops {' '.join(words)}",
        "started_at": started_at, "took_s": round(time.monotonic() - began, 1),
        "load_average": round(os.getloadavg()[0], 2),
    }  # fmt: skip
    return _drill_record(told, done) if part.tool == "drill" else _bench_record(told, done)


def _drill_record(told: dict[str, Any], done: _Finished) -> DrillRecord:
    try:
        # A command that ignores interrupts, as its parent did, may end well after its limit.
        [report] = msgspec.convert(None if done.status is None else done.value, _DrillOutput).drills
    except (msgspec.ValidationError, ValueError):
        return DrillRecord(**told, verdict="failed", failure=_failure(done))
    return DrillRecord(**told, **counts_of(report))


def _bench_record(told: dict[str, Any], done: _Finished) -> BenchRecord:
    if done.status is None or not isinstance(done.value, dict) or "checked" not in done.value:
        return BenchRecord(**told, verdict="failed", failure=_failure(done))
    figures = {name: value for name, value in done.value.items() if name != "logs"}
    return BenchRecord(**told, verdict="passed" if figures["checked"] else "failed", figures=figures)


def _failure(done: _Finished) -> str:
    ended = "was stopped at its time limit" if done.status is None else f"ended with status {done.status}"
    return f"The command {ended}. {done.log}".strip()


def _finished(words: list[str], output: Path, log: Path, limit_s: float) -> _Finished:
    """Run `ops` with these words, without settings of the service; an interrupt stops it before it is raised."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    command = launch.command([sys.executable, "-m", "ops", *words, "--json"], death_signal=signal.SIGINT)
    with output.open("wb") as out, log.open("wb") as errors:
        child = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True
        )
        try:
            status: int | None = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _stop(child)
    return _Finished(status, _value_of(output.read_bytes()), tail(log, _LOG_LINES))


def _stop(child: "subprocess.Popen[bytes]") -> None:
    """Interrupt the command if it still runs, so that it stops its service; kill it if that takes too long."""
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGINT)
    try:
        child.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _value_of(text: bytes) -> Any:
    """Return the JSON value of an output; None if it is none."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
