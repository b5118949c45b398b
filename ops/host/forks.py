"""Start supervised processes as forks of a fork server (`ops.host.fork_server`), and watch them.

A process that is replaced must run the code now on disk, so `refresh` starts another server for all later forks; the
old one ends with its last process.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ops.host import launch
from ops.host.fork_server import MAX_REQUEST, NUMBER, Request

START_S: Final = 30.0  # to import the project on a busy machine


class ForkedChild:
    """A forked process, with the attributes of `asyncio.subprocess.Process` that the supervisor uses."""

    def __init__(self, pid: int, link: socket.socket, server: "_Server") -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._link = link
        self._ended = asyncio.Event()
        server.children.add(self)
        self._server = server
        asyncio.get_running_loop().add_reader(link, self._read)

    async def wait(self) -> int:
        """Wait for the end and return the exit status (negative: ended by that signal)."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal; raises ProcessLookupError if the process has ended."""
        os.kill(self.pid, number)

    def _read(self) -> None:
        found = self._link.recv(NUMBER.size)
        # Without a server there is no status: the kernel has killed its processes with it.
        self.returncode = int(NUMBER.unpack(found)[0]) if found else -signal.SIGKILL
        asyncio.get_running_loop().remove_reader(self._link)
        self._link.close()
        self._server.children.discard(self)
        self._server.close_if_left()
        self._ended.set()


class ForkServer:
    """Starts processes with a copy of the memory of a server that has imported `modules`."""

    def __init__(self, modules: Sequence[str], environ: Mapping[str, str], cwd: Path, log: Path) -> None:
        self._command = (modules, environ, cwd, log)
        self._current: _Server | None = None

    def start(self) -> None:
        """Start the server now, so that it imports while other things start."""
        if self._current is None or not self._current.lives():
            self._current = _Server(*self._command)

    def refresh(self) -> None:
        """Let later forks have the code now on disk."""
        if self._current is not None:
            self._current.left = True
            self._current.close_if_left()
        self._current = None

    async def fork(self, request: Request, fds: Sequence[int]) -> ForkedChild:
        """Start the process of a request, whose `fds` follow the link; raises OSError if the server does not answer."""
        self.start()
        assert self._current is not None
        return await self._current.fork(request, fds)


class _Server:
    def __init__(self, modules: Sequence[str], environ: Mapping[str, str], cwd: Path, log: Path) -> None:
        self.children: set[ForkedChild] = set()
        self.left = False  # another server has taken over
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [sys.executable, "-m", "ops.host.fork_server", str(theirs.fileno()), "-", *modules]
        with theirs, log.open("ab") as output:
            self._process = subprocess.Popen(
                launch.command(words), env=dict(environ), cwd=cwd, pass_fds=[theirs.fileno()],
                start_new_session=True, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def lives(self) -> bool:
        return self._process.poll() is None

    def close_if_left(self) -> None:
        if self.left and not self.children:
            self._control.close()
            self._process.returncode = 0  # it ends by itself now; unset, the destructor would warn of that

    async def fork(self, request: Request, fds: Sequence[int]) -> ForkedChild:
        content = msgspec.msgpack.encode(request)
        if len(content) > MAX_REQUEST:
            raise OSError(f"the environment of {request.module} has {len(content)} octets")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._control, [content], [theirs.fileno(), *fds])
        ours.setblocking(False)  # noqa: FBT003 - positional there
        try:
            async with asyncio.timeout(START_S):
                found = await asyncio.get_running_loop().sock_recv(ours, NUMBER.size)
        except BaseException:
            ours.close()
            raise
        if not found:
            ours.close()
            raise ConnectionResetError("the fork server has ended")
        return ForkedChild(int(NUMBER.unpack(found)[0]), ours, self)
