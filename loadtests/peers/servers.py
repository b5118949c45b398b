"""Mail servers of others with the configurations of `loadtests/peers`, each in a folder of its own.

Nothing of an instance that the system runs is touched: configuration, queue and ports are private, and all that was
started ends with the context.
"""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from ops import launch
from ops.fleet import ROOT

CONFIGURATIONS: Final = ROOT / "loadtests" / "peers"
_READY_S: Final = 30.0
_STOP_S: Final = 10.0
_POLL_S: Final = 0.1


class DidNotStart(RuntimeError):  # noqa: N818 - named for what happened
    """A peer is not there in time; the text holds what it printed."""


class Place(Struct, frozen=True):
    """Where a peer lives, and where its mail goes."""

    folder: Path
    smtp_port: int
    sink_port: int
    milter_port: int
    key: Path  # PEM, RSA-2048

    def filled(self, text: str, more: Mapping[str, str] | None = None) -> str:
        """A configuration with its @NAMES@ filled in."""
        names = {
            "FOLDER": str(self.folder), "SMTP_PORT": str(self.smtp_port), "SINK_PORT": str(self.sink_port),
            "MILTER_PORT": str(self.milter_port), "KEY": str(self.key), **(more or {}),
        }  # fmt: skip
        for name, value in names.items():
            text = text.replace(f"@{name}@", value)
        return text


Processes = dict[str, list[int]]


class Peer(Struct, frozen=True):
    """One kind of mail server."""

    name: str
    about: str
    signs: bool
    missing: Callable[[], str | None]  # what to install, None: nothing
    prepare: Callable[[Place], list[list[str]]]  # writes the configuration; gives the commands, the server's last


@asynccontextmanager
async def running(peer: Peer, place: Place) -> AsyncIterator[Processes]:
    """The peer, ready to take mail; gives its main processes by name. Raises DidNotStart."""
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
        await _greets(place.smtp_port, processes, log)
        yield {peer.name: [process.pid for process in processes]}
    finally:
        for process in reversed(processes):
            await _end(process)


async def _greets(port: int, processes: list[asyncio.subprocess.Process], log: Path) -> None:
    deadline = asyncio.get_running_loop().time() + _READY_S
    while asyncio.get_running_loop().time() < deadline and all(one.returncode is None for one in processes):
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                greeting = await reader.readline()
                writer.close()
                if greeting.startswith(b"220"):
                    return
        await asyncio.sleep(_POLL_S)
    text = await asyncio.to_thread(log.read_text, "utf-8", "replace")
    raise DidNotStart(f"The server did not get ready:\n{text[-2_000:]}")


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM, then SIGKILL, to the process and what it forked: it leads a session of its own."""
    for number, patience_s in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, _STOP_S)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await process.wait()
                break
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


# -- Postfix ------------------------------------------------------------------------------------------


def _postfix_missing() -> str | None:
    if _postfix() is None:
        return "the Debian package postfix"
    return None if os.geteuid() == 0 else "root's rights: Postfix starts as root"


def _signed_missing() -> str | None:
    return _postfix_missing() or (None if _opendkim() is not None else "the Debian package opendkim")


def _postfix() -> str | None:
    return shutil.which("postfix", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def _opendkim() -> str | None:
    return shutil.which("opendkim", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def _prepare_postfix(place: Place, milter: str = "") -> list[list[str]]:
    config = place.folder / "config"
    config.mkdir()
    source = CONFIGURATIONS / "postfix"
    for name in ("main.cf", "master.cf"):
        text = place.filled((source / name).read_text("utf-8"), {"MILTER": milter})
        (config / name).write_text(text, "utf-8")
    (place.folder / "queue").mkdir(mode=0o755)
    data = place.folder / "data"
    data.mkdir(mode=0o700)
    owner = pwd.getpwnam("postfix")
    os.chown(data, owner.pw_uid, owner.pw_gid)
    program = _postfix()
    assert program is not None
    # `postfix start-fg` keeps a shell between us and the master, which would outlive us: `check` lays out the queue as
    # `start` would, and the master is ours.
    subprocess.run([program, "-c", str(config), "check"], check=True, capture_output=True, timeout=_READY_S)
    asked = [str(Path(program).with_name("postconf")), "-c", str(config), "-h", "daemon_directory"]
    folder = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=_READY_S).stdout.strip()
    return [[f"{folder}/master", "-c", str(config), "-s"]]


def _prepare_signed(place: Place) -> list[list[str]]:
    milter = place.filled((CONFIGURATIONS / "postfix" / "milter.cf").read_text("utf-8"))
    config = place.folder / "opendkim.conf"
    config.write_text(place.filled((CONFIGURATIONS / "opendkim" / "opendkim.conf").read_text("utf-8")), "utf-8")
    program = _opendkim()
    assert program is not None
    return [[program, "-f", "-x", str(config)], *_prepare_postfix(place, milter)]


# -- Haraka -------------------------------------------------------------------------------------------


def _haraka() -> Path | None:
    """The package's folder: from NODE_PATH, or behind the program on PATH."""
    for folder in filter(None, os.environ.get("NODE_PATH", "").split(":")):
        if (Path(folder) / "Haraka" / "bin" / "haraka").is_file():
            return Path(folder) / "Haraka"
    found = shutil.which("haraka")
    return None if found is None else Path(found).resolve().parent.parent


def _haraka_missing() -> str | None:
    if shutil.which("node") is None:
        return "the Debian package nodejs"
    package = _haraka()
    if package is None:
        return "the npm package Haraka (and its modules' folder in NODE_PATH)"
    plugin = "haraka-plugin-dkim"
    found = any((folder / plugin).is_dir() for folder in (package.parent, package / "node_modules"))
    return None if found else f"the npm package {plugin}, beside Haraka"


def _prepare_haraka(place: Place) -> list[list[str]]:
    source, target = CONFIGURATIONS / "haraka", place.folder / "haraka"
    node, package = shutil.which("node"), _haraka()
    assert node is not None
    assert package is not None
    shutil.copytree(package / "config", target / "config")  # as `haraka --install` does; ours on top
    for file in source.rglob("*"):
        if file.is_file():
            copy = target / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(place.filled(file.read_text("utf-8")), "utf-8")
    shutil.copy(place.key, target / "config" / "dkim" / "peer.test" / "private")
    return [[node, str(package / "bin" / "haraka"), "-c", str(target)]]


PEERS: Final = {
    one.name: one
    for one in (
        Peer("postfix-opendkim", "Postfix tuned, signing by OpenDKIM", True, _signed_missing, _prepare_signed),  # noqa: FBT003 - a field
        Peer("postfix", "Postfix tuned, unsigned", False, _postfix_missing, _prepare_postfix),  # noqa: FBT003
        Peer("haraka", "Haraka, 2 processes, dkim plugin", True, _haraka_missing, _prepare_haraka),  # noqa: FBT003
    )
}  # fmt: skip
