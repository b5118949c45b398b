"""Run modules as forks of one process that has imported them: the forks share its memory and start in milliseconds.

`python -m ops.host.fork_server FD - MODULE…` imports the modules and serves on the socket FD; a request is served as
soon as its module has been imported. It names the module and passes descriptors; the server forks, and the child runs
`python -m MODULE` with `runpy`, in a session of its own.
The server ends when the other end of the socket closes, and its children with it. Linux only.

After `REST_S` without a request it executes itself anew, to free the memory that its children no longer share: the pid
and the children stay, and the modules are imported again at the next request.
"""

import atexit
import fcntl
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import msgspec

from ops.host import launch

MAX_REQUEST: Final = 128 * 1024  # octets; the environment variables are most of it
MAX_FDS: Final = 16
NUMBER: Final = struct.Struct("!i")  # what the server sends to a requester: the pid, later the exit status
_RESERVED: Final = range(launch.FIRST, launch.FIRST + MAX_FDS)
REST_S: Final = 10.0
_NOTHING: Final = "-"
_STREAMS: Final = 3  # the link to the requester, standard output, standard error


class Request(msgspec.Struct, array_like=True):
    """A process to start. With "-c" for the module, the first argument is the program, as with `python -c`.

    Its descriptors are the link, standard output and standard error, then one for each of `sockets` (listening sockets
    by name), then the pipe of `READY_FD` if `announces`.
    """

    module: str
    arguments: list[str]
    environ: dict[str, str]
    sockets: list[str] = []
    announces: bool = False


class Ending:
    """End a forked process whose program has ended without freeing its objects.

    To free all that the project's modules hold takes 0.5 s of CPU, as each freed page of the server is copied first.
    Exceptions other than SystemExit end the process as usual.
    """

    def __init__(self) -> None:
        self._status: int | None = None
        atexit.register(self._end)  # before the imports: the function that was registered first runs last

    def run(self, request: Request) -> None:
        """Run the program of a request and note its exit status."""
        try:
            _run(request)
        except SystemExit as end:
            self._status = end.code if isinstance(end.code, int) else int(end.code is not None)
            raise
        self._status = 0

    def _end(self) -> None:
        """Write out what is buffered and end, if the status is known.

        Where coverage is measured, its own function comes later and writes its figures.
        """
        if self._status is not None and "COVERAGE_PROCESS_START" not in os.environ:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._status & 0xFF)


def main(control: int, modules: Sequence[str], prepare: Callable[[], None] | None = None) -> None:
    """Import the modules and serve for good; in a forked process, run the module of its request."""
    ending = Ending()
    server = Server(_reserve(control), modules)
    server.load()
    if prepare is not None:
        prepare()
    if (request := server.serve()) is not None:
        ending.run(request)


def rest(control: int, links: str, modules: Sequence[str]) -> None:
    """Serve as `main`, with the children of the program before ("-": none), and rest after `REST_S`."""
    ending = Ending()
    server = Server(_reserve(control), modules, rests=True)
    if links != _NOTHING:
        server.take_over(links)
    if (request := server.serve()) is not None:
        ending.run(request)


def _reserve(control: int) -> int:
    """Keep the first descriptors for those of a request; return the new one of `control`.

    Imported modules may keep files open, such as those of metrics, and a forked process must not replace these.
    """
    moved = fcntl.fcntl(control, fcntl.F_DUPFD_CLOEXEC, _RESERVED.stop)
    os.close(control)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in _RESERVED:
        os.dup2(nothing, fd)
    return moved


def _run(request: Request) -> None:
    if request.module == "-c":
        sys.argv[:] = ["-c", *request.arguments[1:]]
        exec(request.arguments[0], {"__name__": "__main__"})  # noqa: S102 - the requester is our own parent
    else:
        sys.argv[1:] = request.arguments
        sys.modules.pop(request.module, None)  # runpy warns of a module that was imported before
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)


class Server:
    """Forks a process for each request on its socket, and tells the requesters how their processes ended."""

    def __init__(self, control: int, modules: Sequence[str], *, rests: bool = False) -> None:
        self._control = socket.socket(fileno=control)
        self._modules = modules
        self._rests = rests
        self._ahead = list(modules)  # to import
        self._awake = True  # imports them without being asked
        self._links: dict[int, socket.socket] = {}  # to the requester, by pid
        self._woken, self._waking = socket.socketpair()
        self._waking.setblocking(False)  # noqa: FBT003 - positional there
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)

    def load(self) -> None:
        """Import all modules."""
        while self._ahead:
            self._load_next()

    def _load_next(self) -> None:
        gc.disable()  # modules stay; to look through them ten times would take 0.2 s
        importlib.import_module(self._ahead.pop(0))
        gc.enable()
        gc.freeze()  # a collection in a forked process would copy the pages of these objects

    def take_over(self, links: str) -> None:
        """Watch the children of the program before ("PID:FD,PID:FD"), and import nothing before the next request."""
        self._awake = False
        for pid, fd in (one.split(":") for one in links.split(",")):
            os.set_inheritable(int(fd), False)  # noqa: FBT003 - positional there
            self._links[int(pid)] = socket.socket(fileno=int(fd))
        self._reap()

    def serve(self) -> Request | None:
        """Fork for each request until the other end closes (None); in a forked process, return its request."""
        while True:
            watched = [self._control, self._woken, *self._links.values()]
            ready, _, _ = select.select(watched, [], [], self._patience())
            if not ready:
                self._load_next() if self._ahead else self._rest()
            if self._woken in ready:
                self._woken.recv(4096)
                self._reap()
            for pid in [pid for pid, link in self._links.items() if link in ready]:  # its requester has ended
                os.killpg(pid, signal.SIGKILL)
            if self._control not in ready:
                continue
            content, fds, _, _ = socket.recv_fds(self._control, MAX_REQUEST, MAX_FDS)
            if not content:
                return None
            request = msgspec.msgpack.decode(content, type=Request)
            self._awake = True
            while request.module in self._ahead:
                self._load_next()
            if self._fork(request, fds):
                return request

    def _patience(self) -> float | None:
        """Return how long to wait for a request before the next module is imported, or before the rest."""
        if self._ahead:
            return 0 if self._awake else None
        return REST_S if self._rests and self._links else None

    def _fork(self, request: Request, fds: list[int]) -> bool:
        """Start the process of a request; return True in it."""
        server = os.getpid()
        link = socket.socket(fileno=fds[0])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for one in (self._control, self._woken, self._waking, link, *self._links.values()):
                one.close()
            _become(request, fds, server)
            return True
        self._links[pid] = link
        link.send(NUMBER.pack(pid))
        for fd in fds[1:]:
            os.close(fd)
        return False

    def _reap(self) -> None:
        while self._links:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._links.pop(pid) as link:
                try:
                    link.send(NUMBER.pack(os.waitstatus_to_exitcode(status)))
                except OSError:
                    continue  # the requester has closed its end

    def _rest(self) -> NoReturn:
        """Execute this program anew, with the socket and the children of now."""
        for one in (self._control, *self._links.values()):
            os.set_inheritable(one.fileno(), True)  # noqa: FBT003 - positional there
        links = ",".join(f"{pid}:{link.fileno()}" for pid, link in self._links.items())
        words = [sys.executable, "-m", "ops.host.fork_server", str(self._control.fileno()), links, *self._modules]
        os.execv(sys.executable, words)


def _become(request: Request, fds: list[int], server: int) -> None:
    """Give the forked process its signals, session, streams, environment variables and descriptors."""
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    os.setsid()
    launch.tie(server)
    for source, target in zip(fds[1:_STREAMS], (1, 2), strict=True):
        os.dup2(source, target)
        os.close(source)
    os.environ.clear()
    os.environ.update(request.environ)
    for fd in _RESERVED:
        os.close(fd)
    rest = fds[_STREAMS:]
    if request.announces:
        os.environ["READY_FD"] = str(rest[-1])
    launch.pass_sockets([(name, fd) for name, fd in zip(request.sockets, rest, strict=False)])


if __name__ == "__main__":
    rest(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
