"""Run modules as forks of one process that has imported them: the forks share its memory and start in milliseconds.

`python -m ops.host.fork_server FD MODULE…` imports the modules and serves on the socket FD. A request names a module
and passes descriptors; the server forks, and the child runs `python -m MODULE` with `runpy`, in a session of its own.
The server ends when the other end of the socket closes, and its children with it. Linux only.
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
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ops.host import launch

MAX_REQUEST: Final = 128 * 1024  # octets; the environment variables are most of it
MAX_FDS: Final = 16
NUMBER: Final = struct.Struct("!i")  # what the server sends to a requester: the pid, later the exit status
_RESERVED: Final = range(launch.FIRST, launch.FIRST + MAX_FDS)
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


def main(control: int, modules: Iterable[str], prepare: Callable[[], None] | None = None) -> None:
    """Import the modules and serve; in a forked process, run the module of its request."""
    ending = Ending()
    control = _reserve(control)
    for name in modules:
        importlib.import_module(name)
    if prepare is not None:
        prepare()
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy the pages of these objects
    request = _serve(socket.socket(fileno=control))
    if request is not None:
        ending.run(request)


def _reserve(control: int) -> int:
    """Keep the first descriptors for those of a request; return the new one of `control`.

    Imported modules may keep files open, such as those of metrics, and a forked process must not replace these.
    """
    moved = fcntl.fcntl(control, fcntl.F_DUPFD_CLOEXEC, _RESERVED.stop)
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


def _serve(control: socket.socket) -> Request | None:
    """Fork for each request until the other end closes (None); in a forked process, return its request."""
    links: dict[int, socket.socket] = {}
    woken, waking = socket.socketpair()
    waking.setblocking(False)  # noqa: FBT003 - positional there
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
        content, fds, _, _ = socket.recv_fds(control, MAX_REQUEST, MAX_FDS)
        if not content:
            return None
        link = socket.socket(fileno=fds[0])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for one in (control, woken, waking, link, *links.values()):
                one.close()
            request = msgspec.msgpack.decode(content, type=Request)
            _become(request, fds, server)
            return request
        links[pid] = link
        link.send(NUMBER.pack(pid))
        for fd in fds[1:]:
            os.close(fd)


def _reap(links: dict[int, socket.socket]) -> None:
    while links:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with links.pop(pid) as link:
            try:
                link.send(NUMBER.pack(os.waitstatus_to_exitcode(status)))
            except OSError:
                continue  # the requester has closed its end


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
    main(int(sys.argv[1]), sys.argv[2:])
