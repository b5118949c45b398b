"""Set up, start, check and stop an embedded server as a child process: what PostgreSQL and Valkey have in common.

Both listen on unix sockets only, in a folder that no other user can enter.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar

from ops.host import launch, server_paths
from ops.host.server_paths import CannotServe, ServerPaths
from ops.host.state import bound_log, tail

MAX_SOCKET_FOLDER = 80  # sun_path, which includes the socket's name, holds 108 bytes on Linux, 104 on macOS
START_TIMEOUT_S = 60.0  # long enough to recover a few gigabytes of WAL after a crash
RESTART_WINDOW_S = 5.0  # backends may hold shared memory briefly after the postmaster was killed
STOP_GRACE_S = 30.0
END_GRACE_S = 10.0  # PostgreSQL kills those of its processes that are left 5 s after SIGQUIT


class Server(ABC):
    """An embedded server. Start it from the main thread: it is killed when the thread that started it ends."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    last_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, state: Path, *, durable: bool = True, small: bool = False) -> None:
        self._state = state
        self._small = small
        self._durable = durable
        self._paths: ServerPaths | None = None
        self._sockets: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def paths(self) -> ServerPaths:
        """Return the paths of the server's folders, found on first use."""
        if self._paths is None:
            self._paths = server_paths.find_paths(self._state)
        return self._paths

    @property
    def log(self) -> Path:
        """Return the path of the server's log file."""
        return self.paths.state / "log" / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """Return the process id of the server, or None if `start` has not run."""
        return self._process.pid if self._process else None

    @property
    def death_signal(self) -> signal.Signals:
        """Return the signal that the server receives when the process that started it is killed."""
        return self.stop_signal if self._durable else self.last_signal

    @abstractmethod
    def prepare(self) -> None:
        """Create the folders and data if missing (blocks, about 1 s the first time); raises CannotServe."""

    @abstractmethod
    def clear_leftovers(self) -> None:
        """Wait for processes of a killed predecessor and remove its files; called before every start."""

    @abstractmethod
    def argv(self) -> list[str]:
        """Return the server's command line, program path first."""

    @abstractmethod
    def ready(self, pid: int) -> bool:
        """Return True if the server with process id `pid` accepts connections."""

    @property
    def beside(self) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Return the coroutine function to run while the server is ready, until it is cancelled; None for none."""
        return None

    def command(self) -> list[str]:
        """Return `argv`, wrapped to run as the servers' user and to end with this process."""
        return launch.command(self.argv(), identity=self.paths.identity, death_signal=self.death_signal, batch=True)

    def start(self) -> None:
        """Prepare and start the server, and wait until it accepts connections.

        Also restarts a server that was killed. Raises CannotServe with the end of the log.
        """
        self._reap()
        self.prepare()
        began = time.monotonic()
        while True:
            self.clear_leftovers()
            self._spawn()
            if self._wait_ready(began + START_TIMEOUT_S):
                return
            waited = time.monotonic() - began
            if self.alive() or waited > RESTART_WINDOW_S:
                self.kill()
                raise CannotServe(f"{self.name} did not start. The end of {self.log}:\n{tail(self.log)}")
            time.sleep(0.2)  # until the killed predecessor has freed its shared memory

    def alive(self) -> bool:
        """Return True while the process that `start` created is running."""
        return self._process is not None and self._process.poll() is None

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Shut the server down, by force after `grace_s` seconds; idempotent."""
        self._signal(self.stop_signal, grace_s)
        self.end()

    def end(self) -> None:
        """End the server at once, without saving anything; idempotent.

        PostgreSQL removes its shared memory. After SIGKILL that stays until the next start with the same data, or until
        a reboot, and the kernel has room for 4,096 segments (shmmni).
        """
        self._signal(self.last_signal, END_GRACE_S)
        self.kill()
        self.forget_sockets()

    def kill(self) -> None:
        """Kill the server with SIGKILL and wait for its exit."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def forget_sockets(self) -> None:
        """Remove the socket folder if it is outside the data folder."""
        if self._sockets is not None and self._sockets != self.paths.base / "run":
            shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None

    def socket_folder(self) -> Path:
        """Return the folder of the sockets (mode 0700, a short path); create it if missing."""
        if self._sockets is None:
            folder = self.paths.base / "run"
            if len(os.fsencode(folder)) <= MAX_SOCKET_FOLDER:
                self._sockets = server_paths.own_folder(self.paths, "run")
            else:
                self._sockets = Path(tempfile.mkdtemp(prefix="waybill-", dir=short_temp()))
                if self.paths.identity is not None:
                    os.chown(self._sockets, self.paths.identity.uid, self.paths.identity.gid)
        return self._sockets

    def _signal(self, number: signal.Signals, patience_s: float) -> None:
        if self._process is not None and self.alive():
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)

    def _reap(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(1.0)
            except subprocess.TimeoutExpired:
                raise CannotServe(f"{self.name} runs already (process {self._process.pid})") from None

    def _spawn(self) -> None:
        bound_log(self.log)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), env=server_paths.QUIET_ENV, cwd="/", start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def _wait_ready(self, deadline: float) -> bool:
        while time.monotonic() < deadline:
            if not self.alive() or self._process is None:
                return False
            if self.ready(self._process.pid):
                return True
            time.sleep(0.01)  # the server announces its readiness to nobody
        return False


def short_temp() -> Path:
    """Return the temporary folder, or /tmp if its path is too long for a unix socket."""
    usual = Path(tempfile.gettempdir())
    return usual if len(os.fsencode(usual)) <= MAX_SOCKET_FOLDER - 32 else Path("/tmp")  # noqa: S108 - mkdtemp follows
