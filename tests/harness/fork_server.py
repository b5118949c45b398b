"""Start `python -m MODULE` as a fork of a process that has imported the project already.

Importing the API takes 0.8 s of CPU, a command of `ops` 0.4 s, and the suite starts some hundreds of them. A run has
one fork server, which its workers share. It ends with the last of them, and its children with it; the processes of a
worker that dies are killed.

Linux only: elsewhere `start` creates an ordinary process, as it does where LD_PRELOAD names a library.
"""

import atexit
import functools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

import msgspec

from ops.host import fork_server
from ops.host.fork_server import MAX_REQUEST, NUMBER, Request
from ops.host.process_specs import ROOT
from tests.harness import rsa_keys

_IMPORTED = (
    "granian.cli", "mta.process", "ops.admin", "ops.cli", "ops.commands.account", "ops.commands.explain",
    "ops.commands.messages", "ops.commands.queue", "ops.commands.service", "ops.commands.shards", "ops.commands.site",
    "ops.commands.sink", "ops.doctor", "ops.processes.api", "ops.processes.worker", "tests.harness.served",
)  # fmt: skip


class ForkedProcess:
    """A process of the fork server, with the methods of `subprocess.Popen` that tests use; it leads its own session."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._lock = threading.Lock()
        self.args: Sequence[str] = ()
        self.pid = self._number()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        return self._status(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status; raises TimeoutExpired."""
        status = self._status(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL unless the process has ended."""
        self.send_signal(signal.SIGKILL)

    def _status(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._is_readable(timeout):
            with self._lock:  # another thread may wait, too
                if self.returncode is None:
                    self.returncode = self._number()
                    self._link.close()
        return self.returncode

    def _is_readable(self, timeout: float | None) -> bool:
        waiting = select.poll()  # unlike select, it takes descriptors above 1,023
        waiting.register(self._link, select.POLLIN)
        return bool(waiting.poll(None if timeout is None else timeout * 1_000))

    def _number(self) -> int:
        """Read a number; raises RuntimeError if the server has ended."""
        found = self._link.recv(NUMBER.size)
        if not found:
            raise RuntimeError("The fork server has ended, and its processes with it.")
        return int(NUMBER.unpack(found)[0])


Started = ForkedProcess | subprocess.Popen[bytes]


def start(
    module: str, arguments: Sequence[str], *, environ: Mapping[str, str], stdout: IO[bytes], stderr: IO[bytes]
) -> Started:
    """Run `python -m MODULE ARGUMENTS` in the checkout, in a session of its own and without standard input.

    With "-c" for the module, the first argument is the program, as with `python -c`.
    """
    if sys.platform != "linux" or "LD_PRELOAD" in environ:
        words = [sys.executable, *(["-c"] if module == "-c" else ["-m", module]), *arguments]
        return subprocess.Popen(
            words, env=dict(environ), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            start_new_session=True,
        )  # fmt: skip
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    plain = {name: str(text) for name, text in environ.items()}  # msgpack takes no subclass of str
    request = msgspec.msgpack.encode(Request(module, list(arguments), plain))
    assert len(request) < MAX_REQUEST
    with theirs:
        socket.send_fds(_server(), [request], [theirs.fileno(), stdout.fileno(), stderr.fileno()])
    return ForkedProcess(ours)


def begin() -> None:
    """Start the server now, so that it imports the project meanwhile; processes forked later use the same one."""
    if sys.platform == "linux":
        _server()


@functools.cache
def _server() -> socket.socket:
    """Start the server of this test process; it ends when the socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
        )  # fmt: skip
    process.returncode = 0  # it ends after this process; unset, the destructor would warn of that
    atexit.register(ours.close)
    return ours


if __name__ == "__main__":
    fork_server.main(int(sys.argv[1]), _IMPORTED, rsa_keys.install)
