"""Start `python -m MODULE` as a fork of a process that has imported the project already.

Importing the API takes 0.8 s of CPU, a command of `ops` 0.4 s, and the suite starts some hundreds of them. A run has
one fork server, which its workers share. It ends with the last of them, and its children with it; the processes of a
worker that dies are killed.

Linux only: elsewhere `start` creates an ordinary process, as it does where LD_PRELOAD names a library.
"""

import atexit
import functools
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

import msgspec

from ops.host import launch
from ops.host.process_specs import ROOT
from tests.harness import rsa_keys

_IMPORTED = (
    "granian.cli", "mta.process", "ops.admin", "ops.cli", "ops.commands.account", "ops.commands.explain",
    "ops.commands.messages", "ops.commands.queue", "ops.commands.service", "ops.commands.shards", "ops.commands.site",
    "ops.commands.sink", "ops.doctor", "ops.processes.api", "ops.processes.worker", "tests.harness.served",
)  # fmt: skip
_MAX_REQUEST = 128 * 1024  # octets; the environment variables are most of it
_NUMBER = struct.Struct("!i")


class _Request(msgspec.Struct, array_like=True):
    module: str
    arguments: list[str]
    environ: dict[str, str]


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
        found = self._link.recv(_NUMBER.size)
        if not found:
            raise RuntimeError("The fork server has ended, and its processes with it.")
        return int(_NUMBER.unpack(found)[0])


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
    request = msgspec.msgpack.encode(_Request(module, list(arguments), dict(environ)))
    assert len(request) < _MAX_REQUEST
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


# -- the server --------------------------------------------------------------------------------


class _Ending:
    """End a forked process whose program has ended without freeing its objects.

    To free all that the project's modules hold takes 0.5 s of CPU, as each freed page of the server is copied first.
    Exceptions other than SystemExit end the process as usual.
    """

    def __init__(self) -> None:
        self._status: int | None = None

    def run(self, request: _Request) -> None:
        """Run the program of a request and note its exit status."""
        try:
            _run(request)
        except SystemExit as end:
            self._status = end.code if isinstance(end.code, int) else int(end.code is not None)
            raise
        self._status = 0

    def end(self) -> None:
        """Write out what is buffered and end, if the status is known; the last of the functions that run at the end.

        Where coverage is measured, its own function comes later and writes its figures.
        """
        if self._status is not None and "COVERAGE_PROCESS_START" not in os.environ:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._status & 0xFF)


def main() -> None:
    """Import the project and serve; in a forked process, run the module of its request."""
    ending = _Ending()
    atexit.register(ending.end)  # before the imports: the function that was registered first runs last
    for name in _IMPORTED:
        importlib.import_module(name)
    rsa_keys.install()
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy the pages of these objects
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        ending.run(request)


def _run(request: _Request) -> None:
    if request.module == "-c":
        sys.argv[:] = ["-c", *request.arguments[1:]]
        exec(request.arguments[0], {"__name__": "__main__"})
    else:
        sys.argv[1:] = request.arguments
        sys.modules.pop(request.module, None)  # runpy warns of a module that was imported before
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)


def _serve(control: socket.socket) -> _Request | None:
    """Fork for each request until the other end closes (None); in a forked process, return its request.

    Each requester is sent the pid of its process, and later the exit status.
    """
    links: dict[int, socket.socket] = {}
    woken, waking = socket.socketpair()
    waking.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    server = os.getpid()
    while True:
        ready, _, _ = select.select([control, woken, *links.values()], [], [])
        if woken in ready:
            woken.recv(4096)
            _reap(links)
        for pid in [pid for pid, link in links.items() if link in ready]:  # its requester has ended
            os.killpg(pid, signal.SIGKILL)
        if control not in ready:
            continue
        content, fds, _, _ = socket.recv_fds(control, _MAX_REQUEST, 3)
        if not content:
            return None
        link = socket.socket(fileno=fds[0])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for one in (control, woken, waking, link, *links.values()):
                one.close()
            request = msgspec.msgpack.decode(content, type=_Request)
            _become(request, fds[1], fds[2], server)
            return request
        links[pid] = link
        link.send(_NUMBER.pack(pid))
        os.close(fds[1])
        os.close(fds[2])


def _reap(links: dict[int, socket.socket]) -> None:
    while links:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with links.pop(pid) as link:
            try:
                link.send(_NUMBER.pack(os.waitstatus_to_exitcode(status)))
            except OSError:
                continue  # the requester has closed its end


def _become(request: _Request, stdout: int, stderr: int, server: int) -> None:
    """Give the forked process its signals, session, streams and environment variables."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    os.setsid()
    launch.tie(server)
    for source, target in ((stdout, 1), (stderr, 2)):
        os.dup2(source, target)
        os.close(source)
    os.environ.clear()
    os.environ.update(request.environ)


if __name__ == "__main__":
    main()
