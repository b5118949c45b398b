"""Start a private Waybill for tests, or use the one that another test run has started."""

import contextlib
import errno
import fcntl
import json
import os
import random
import shlex
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

START_S: Final = 180.0  # the first start installs database servers
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
    with (folder / "users").open("a") as users, (folder / "turn").open("a") as turn:
        with _locked(turn):
            fcntl.flock(users, fcntl.LOCK_SH)
            service = _known(folder) or _start(folder)
        try:
            yield service
        finally:
            with _locked(turn):
                if not os.environ.get("WAYBILL_TWIN_KEEP") and _is_last(users):
                    _run(_environ(folder, None), "stop", "--now")


def _folder() -> Path:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    folder = Path(tempfile.gettempdir()) / f"waybill-twin-{os.getuid()}{worker and '-' + worker}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "belongs to another user", str(folder))
    return folder


@contextlib.contextmanager
def _locked(file: Any) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _is_last(users: Any) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _known(folder: Path) -> TwinService | None:
    """Return the service of this folder if it runs and is healthy."""
    try:
        service = TwinService(**json.loads((folder / "service.json").read_text("utf-8")))
        return service if httpx.get(f"{service.base_url}/health", timeout=5).status_code == 200 else None
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
