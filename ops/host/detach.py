"""Start `ops up` in the background, show its lines until it is ready, and stop it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from engine.base.version import COMMAND
from engine.store.socket_activation import READY_FD
from ops.host import control, rolling
from ops.host.state import bound_log, holder, make_state

LOG: Final = "up.log"
_LOOK_S: Final = 0.1
_TELL_EVERY_S: Final = 2.0


def start(folder: Path) -> int:
    """Start the service in the background; print its lines, and return 0 once it is ready, else its exit status."""
    state = make_state(folder)
    log = state / "log" / LOG
    bound_log(log)
    reading, writing = os.pipe()
    with log.open("ab") as output, log.open("rb") as lines:
        lines.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            [sys.executable, "-m", "ops", "up"], cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, "WAYBILL_STATE": str(state), READY_FD: str(writing)}, pass_fds=[writing],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        os.close(writing)
        os.set_blocking(reading, False)
        while process.poll() is None and not _is_ready(reading):
            _show(lines.read())
            time.sleep(_LOOK_S)  # for its next lines
        status = process.poll()
        _show(lines.read())
    os.close(reading)
    if status is not None:
        return status or 1
    print(
        f"It runs in the background as process {process.pid}. Its log: {COMMAND} logs -f; stop it: {COMMAND} stop",
        flush=True,
    )
    process.returncode = 0  # it goes on without this process; unset, the destructor would warn of that
    return 0


def stop(folder: Path, say: Callable[[str], None], *, now: bool) -> bool:
    """Stop the service on a state folder and wait for its end; return False if none runs there.

    `now` ends its processes at once, without finishing requests and deliveries. Raises PermissionError.
    """
    pid = holder(folder)
    if not pid:
        return False
    os.kill(pid, signal.SIGTERM)
    if now:
        time.sleep(_LOOK_S)  # so that it is the second signal
        os.kill(pid, signal.SIGTERM)
    told_at = time.monotonic()
    told: Sequence[str] = ()
    while holder(folder) == pid:
        time.sleep(_LOOK_S)  # nobody tells other processes that a lock is free
        if time.monotonic() > told_at + _TELL_EVERY_S:
            told_at = time.monotonic()
            waiting = _running(folder)
            if waiting != told and waiting:
                say(
                    f"Waiting for {', '.join(waiting)} to finish open requests and deliveries (at once: ops stop --now)"
                )
            told = waiting
    return True


def _running(folder: Path) -> list[str]:
    try:
        return [row["name"] for row in rolling.ask_status(folder) if row["pid"]]
    except (control.NoSupervisor, control.Refused, OSError):
        return []


def _is_ready(reading: int) -> bool:
    try:
        return bool(os.read(reading, 16))
    except BlockingIOError:
        return False


def _show(octets: bytes) -> None:
    sys.stdout.write(octets.decode("utf-8", "replace"))
    sys.stdout.flush()
