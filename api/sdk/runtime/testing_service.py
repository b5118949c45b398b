"""Start a private Waybill for tests, or use the one that another process has started, in Python or JavaScript.

In its folder, `processes` has a file for each use, named after the process id; the last one stops the service. `lock`
is a directory: its owner, whose process id it holds, may start or stop the service. Node has no flock.
"""

import contextlib
import errno
import json
import os
import random
import secrets
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import httpx

START_S: Final = 180.0  # the first start installs database servers
_TURN_S: Final = 2 * START_S
_POLL_S: Final = 0.05
_PORTS: Final = 12  # in a row, which a service takes at most
_TRIES: Final = 5
_HOST: Final = "127.0.0.1"


class TwinService(NamedTuple):
    """A running service: its API, the key of its first account, and the port for mail from outside."""

    base_url: str
    api_key: str
    mx_port: int


@contextlib.contextmanager
def running_service() -> Iterator[TwinService]:
    """Run a service until the last process that uses it leaves this block.

    Test workers in parallel (pytest-xdist) have one each, since the clock is that of a service. WAYBILL_COMMAND is the
    command line that starts it (default: `waybill`). WAYBILL_TWIN_KEEP=1 lets it run for the next test run, which then
    begins at once; `waybill stop` ends it. Linux and macOS.
    """
    folder = _folder()
    user = folder / "processes" / f"{os.getpid()}-{secrets.token_hex(4)}"
    with _turn(folder):
        service = _known(folder) or _start(folder)
        user.touch()
    try:
        yield service
    finally:
        with _turn(folder):
            user.unlink(missing_ok=True)
            if not os.environ.get("WAYBILL_TWIN_KEEP") and not _is_used(folder):
                _run(_environ(folder, None), "stop", "--now")


def _folder() -> Path:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    folder = Path(tempfile.gettempdir()) / f"waybill-twin-{os.getuid()}{worker and '-' + worker}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "belongs to another user", str(folder))
    (folder / "processes").mkdir(exist_ok=True)
    return folder


def _is_used(folder: Path) -> bool:
    return any(_runs(int(user.name.partition("-")[0])) for user in (folder / "processes").iterdir())


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    turn, mine = folder / "lock", folder / f"lock-{os.getpid()}-{secrets.token_hex(4)}"
    ends = time.monotonic() + _TURN_S
    while not (_took(turn, mine) or _inherited(turn)):
        if time.monotonic() > ends:
            raise TimeoutError(f"Another process has held {turn} for {_TURN_S:g} s. End it, or remove the directory.")
        time.sleep(_POLL_S)  # a directory has no event that every system tells
    try:
        yield
    finally:
        turn.rename(mine)
        shutil.rmtree(mine)


def _took(turn: Path, mine: Path) -> bool:
    """Rename a directory with a file to `turn`; that fails as long as another process holds it."""
    mine.mkdir()
    (mine / "pid").write_text(str(os.getpid()))
    try:
        mine.rename(turn)
    except OSError as error:
        shutil.rmtree(mine)
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        return False
    return True


def _inherited(turn: Path) -> bool:
    """Take the turn of a process that has died. The directory `after-<pid>` lets one process do so."""
    owner = _owner(turn)
    if owner is None or _runs(owner):
        return False
    mark = turn / f"after-{owner}"
    try:
        mark.mkdir()
    except OSError:
        return False
    if _owner(turn) == owner:
        (turn / "pid").write_text(str(os.getpid()))
        return True
    mark.rmdir()
    return False


def _owner(turn: Path) -> int | None:
    try:
        return int((turn / "pid").read_text())
    except (OSError, ValueError):
        return None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


def _known(folder: Path) -> TwinService | None:
    """Return the service of this folder if it runs and is healthy."""
    try:
        service = TwinService(**json.loads((folder / "service.json").read_text("utf-8")))
        return service if httpx.get(f"{service.base_url}/readyz", timeout=5).status_code == 200 else None
    except (OSError, ValueError, TypeError, httpx.HTTPError):
        return None


def _start(folder: Path) -> TwinService:
    for last in (False,) * (_TRIES - 1) + (True,):
        environ = _environ(folder, _free_ports())
        done = _run(environ, "up", "--detach")
        if done.returncode == 0:
            break
        if "already runs" in done.stdout:  # it does not answer, or its tests were killed before they noted its address
            _run(environ, "stop", "--now")
        elif last or "in use" not in done.stdout:
            raise RuntimeError(f"Waybill did not start:\n{done.stdout[-4000:]}")
    first = json.loads((folder / "state" / "first-run.json").read_text("utf-8"))
    api, mx = (json.loads(_run(environ, "config", name, "--json").stdout)["value"] for name in ("api_port", "mx_port"))
    service = TwinService(f"http://{_HOST}:{api}", first["apiKey"], int(mx))
    (folder / "service.json").write_text(json.dumps(service._asdict()), "utf-8")
    return service


def _environ(folder: Path, ports: int | None) -> dict[str, str]:
    """Return the environment variables of the service: no settings of the caller's reach it."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("WAYBILL_")}
    own = {"WAYBILL_STATE": str(folder / "state"), "WAYBILL_PROFILE": "small", "WAYBILL_DURABLE": "false"}
    return kept | own | ({} if ports is None else {"WAYBILL_PORT_BASE": str(ports)})


def _run(environ: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    command = shlex.split(os.environ.get("WAYBILL_COMMAND", "waybill"))
    if shutil.which(command[0]) is None:
        raise RuntimeError(
            f"There is no command {command[0]}. Install Waybill (`pipx install waybill`), or set WAYBILL_COMMAND to the"
            " command line that runs it."
        )
    return subprocess.run(
        [*command, *words], env=environ, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=START_S, check=False,
    )  # fmt: skip


def _free_ports() -> int:
    """Return the first of some ports in a row that are free now."""
    for _ in range(100):
        base = random.randrange(20_000, 32_000)
        with contextlib.ExitStack() as stack:
            try:
                for port in range(base, base + _PORTS):
                    stack.enter_context(contextlib.closing(socket.create_server((_HOST, port))))
            except OSError:
                continue
            return base
    raise RuntimeError("no free ports were found for the service")
