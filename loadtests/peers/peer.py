"""Run another mail server with a configuration of ours, in a folder of its own.

An instance that the system runs is left alone: configuration, queue and ports are private, and everything that was
started ends with the context.
"""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from ops.host import launch
from ops.host.process_specs import ROOT

CONFIGURATIONS: Final = ROOT / "loadtests" / "peers" / "configurations"
_SYSTEM_PROGRAMS: Final = "/usr/sbin:/usr/libexec/opensmtpd"
_READY_S: Final = 30.0
_STOP_S: Final = 10.0
_POLL_S: Final = 0.1


class PeerNotReady(RuntimeError):  # noqa: N818 - named for what happened
    """A peer did not answer in time; the text holds what it printed."""


class PeerPlace(Struct, frozen=True):
    """The folder, the ports and the DKIM key of one peer, and the port of the sink that it delivers to."""

    folder: Path
    smtp_port: int
    sink_port: int
    milter_port: int
    key: Path  # PEM, RSA-2048
    dns_port: int = 0  # of the DNS responder, where there is one

    def filled(self, text: str, more: Mapping[str, str] | None = None) -> str:
        """Return a configuration with its @NAMES@ replaced; `more` adds names."""
        names = {
            "FOLDER": str(self.folder), "SMTP_PORT": str(self.smtp_port), "SINK_PORT": str(self.sink_port),
            "MILTER_PORT": str(self.milter_port), "KEY": str(self.key), "DNS_PORT": str(self.dns_port),
            **(more or {}),
        }  # fmt: skip
        for name, value in names.items():
            text = text.replace(f"@{name}@", value)
        return text

    def configuration(self, name: str, more: Mapping[str, str] | None = None) -> str:
        """Return a file of the folder `configurations` with its @NAMES@ replaced."""
        return self.filled((CONFIGURATIONS / name).read_text("utf-8"), more)


Processes = dict[str, list[int]]


class Peer(Struct, frozen=True, kw_only=True):
    """A mail server with one way to sign."""

    name: str
    about: str
    signs: bool
    missing: Callable[[], str | None]  # what to install; None: nothing
    has_milter: bool = False  # listens on the place's milter port
    awaits: bool = True  # its processes await their children, whose CPU is counted then
    prepare: Callable[[PeerPlace], list[list[str]]]  # writes the configuration; returns the commands, the server's last


def program(name: str) -> str | None:
    """Return the path of an installed program, also of one that only root has on its PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PROGRAMS}")


def installed(name: str) -> str:
    """Return the path of a program that `missing` found."""
    path = program(name)
    assert path is not None, name
    return path


def owned_folder(folder: Path, user: str) -> None:
    """Make a folder that only `user` can open."""
    folder.mkdir(mode=0o700)
    owner = pwd.getpwnam(user)
    os.chown(folder, owner.pw_uid, owner.pw_gid)


@asynccontextmanager
async def running(peer: Peer, place: PeerPlace) -> AsyncIterator[Processes]:
    """Start a peer and yield its main processes by name once it takes mail. Raises PeerNotReady."""
    processes: list[asyncio.subprocess.Process] = []
    log = place.folder / "peer.log"
    try:
        with log.open("wb") as output:
            for words in await asyncio.to_thread(peer.prepare, place):
                process = await asyncio.create_subprocess_exec(
                    *launch.command(words, death_signal=signal.SIGTERM), cwd=place.folder, stdin=subprocess.DEVNULL,
                    stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
                processes.append(process)
        if peer.has_milter:
            await _until(partial(_accepts, place.milter_port), processes, log)
        await _until(partial(_greets, place.smtp_port), processes, log)
        yield {peer.name: [process.pid for process in processes]}
    finally:
        for process in reversed(processes):
            await _end(process)


async def _until(probe: Callable[[], Awaitable[bool]], processes: list[asyncio.subprocess.Process], log: Path) -> None:
    """Wait until `probe` returns True; raises PeerNotReady when that takes too long or a process ends."""
    deadline = asyncio.get_running_loop().time() + _READY_S
    while asyncio.get_running_loop().time() < deadline and all(one.returncode is None for one in processes):
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                if await probe():
                    return
        await asyncio.sleep(_POLL_S)
    text = await asyncio.to_thread(log.read_text, "utf-8", "replace")
    raise PeerNotReady(f"The server did not get ready:\n{text[-2_000:]}")


async def _accepts(port: int) -> bool:
    """Return True when a server takes connections."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    return True


async def _greets(port: int) -> bool:
    """Return True when an SMTP server greets with 220."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    greeting = await reader.readline()
    writer.close()
    return greeting.startswith(b"220")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Send SIGTERM, then SIGKILL, to a process and its children: it leads a session of its own."""
    for number, patience_s in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, _STOP_S)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await process.wait()
                break
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
