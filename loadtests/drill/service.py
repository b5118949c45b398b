"""Run a separate service for a drill: `ops up` as a child process in its own folder, and the pids behind it.

Linux only: processes are found through /proc.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from engine.base.settings import PREFIX, Settings, load
from loadtests.ports import reserve_ports
from ops.host import launch
from ops.host.attach import attach
from ops.host.embedded import END_GRACE_S
from ops.host.first_run import FILE as FIRST_RUN
from ops.host.process_specs import ROOT
from ops.host.server_paths import SHARED
from ops.host.state import tail

START_TIMEOUT_S = 90.0
STOP_GRACE_S = 60.0
_PORTS = ("API_PORT", "METRICS_PORT", "SINK_PORT", "DNS_PORT", "SUBMISSION_PORT", "SUBMISSION_TLS_PORT", "MX_PORT")
_TRIES = 3  # another program of this machine may have taken a reserved port meanwhile
_READY_TEXT = "Waybill is ready"
_POLL_S = 0.05
_PREFIX = "waybill-drill-"


class ServicePart(StrEnum):
    """A kind of process; the value is a regular expression for its command line."""

    API = r"-m ops\.processes\.api"  # Granian itself; `Service.api_workers` are its children
    MTA = r"-m mta\.process"
    RELAY = r"-m ops\.processes\.relay"
    MX = r"-m ops\.processes\.mx"
    WORKER = r"-m ops\.processes\.worker"
    POSTGRES = r"/postgres -D "
    VALKEY = r"(valkey|redis)-server"
    DNS = r"-m ops\.local\.dns"
    SINK = r"-m ops\.local\.sink"


class ServiceNotReady(RuntimeError):  # noqa: N818 - named for what happened
    """`ops up` ended or was not ready in time; the text holds its output."""


class Service:
    """One `ops up` in `folder`, on free ports, with `more` settings (names without prefix).

    A context manager: entering starts it and waits until it is ready, leaving ends it, by force if necessary. The
    folder stays, so that `start` after `stop` continues with the same data.
    """

    def __init__(self, folder: Path, more: Mapping[str, str] | None = None) -> None:
        self.state = folder / "state"
        self.output = folder / "up.log"
        self._folder = folder
        self._more = dict(more or {})
        self._ports: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    # -- life ----------------------------------------------------------------------------------

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start it and wait for its ready line; raises ServiceNotReady. Call from the main thread."""
        for last in (False,) * (_TRIES - 1) + (True,):
            self._ports = self._ports or _free_ports()
            if self._begin(time.monotonic() + timeout_s):
                return
            output = self.output_text()
            self.kill()
            if last or "is in use by another program" not in output:
                raise ServiceNotReady(f"ops up did not get ready:\n{output}\n{tail(self.state / 'log' / 'api.log')}")
            self._ports = {}

    def begin(self) -> None:
        """Start it without waiting for anything; `kill` or `wait` ends it."""
        self._ports = self._ports or _free_ports()
        self._spawn()

    def running(self) -> bool:
        """Return True until `ops up` has ended."""
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout_s: float = STOP_GRACE_S) -> int:
        """Wait until `ops up` has ended; return its exit status. Raises TimeoutExpired."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def stop(self, grace_s: float = STOP_GRACE_S) -> int:
        """Send SIGTERM and wait for the drain; return the exit status. Raises TimeoutExpired after `grace_s`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait(grace_s)

    def kill(self) -> None:
        """Kill it and everything that it started; idempotent.

        PostgreSQL receives SIGQUIT first: it saves as little as after SIGKILL, but removes its shared memory.
        """
        if self._process is None:
            return
        began = time.monotonic()
        if self._process.poll() is None:
            _kill(self._process.pid)
        self._process.wait()
        while (left := self.everything()) and (waited := time.monotonic() - began) < STOP_GRACE_S:
            for pid in left:
                _kill(pid, quit_first=waited < END_GRACE_S)
            time.sleep(_POLL_S)

    def _begin(self, deadline: float) -> bool:
        at = self.output.stat().st_size if self.output.exists() else 0
        self._spawn()
        while time.monotonic() < deadline and self.running():
            with self.output.open("rb") as output:
                output.seek(at)
                if _READY_TEXT.encode() in output.read():
                    return True
            time.sleep(_POLL_S)
        return False

    def _spawn(self) -> None:
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                launch.command([sys.executable, "-m", "ops", "up"], death_signal=signal.SIGTERM),
                env=self.environ, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    # -- where and who -------------------------------------------------------------------------

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment for `ops up` and for operator commands on this service."""
        own = {"STATE": str(self.state), **self._ports, **self._more}
        outside = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        return outside | {PREFIX + name: value for name, value in own.items()}

    def set(self, name: str, text: str) -> None:
        """Change a setting (name without prefix) for the next start."""
        self._more[name] = text

    @property
    def settings(self) -> Settings:
        """Return its settings with the URLs of its database and Valkey; only while it runs."""
        return attach(load(self.environ))

    @property
    def base_url(self) -> str:
        """Return the base URL of its API."""
        return f"http://127.0.0.1:{self._ports['API_PORT']}"

    @property
    def sink_port(self) -> int:
        """Return the port of its sink, which receives all its mail."""
        return int(self._ports["SINK_PORT"])

    @property
    def submission_tls_port(self) -> int:
        """Return the port of its relay with TLS from the first octet."""
        return int(self._ports["SUBMISSION_TLS_PORT"])

    @property
    def dns_port(self) -> int:
        """Return the port of its DNS responder."""
        return int(self._ports["DNS_PORT"])

    @property
    def first_run(self) -> dict[str, Any]:
        """Return what the first start created: `accountId`, `apiKey`, `domain`, …"""
        found: dict[str, Any] = json.loads((self.state / FIRST_RUN).read_text("utf-8"))
        return found

    @property
    def sink(self) -> Path:
        """Return the folder of the sink's store."""
        return self.state / "sink"

    def output_text(self) -> str:
        """Return the last 64 KiB of output of `ops up`."""
        with contextlib.suppress(OSError):
            return self.output.read_bytes()[-65_536:].decode("utf-8", "replace")
        return ""

    def readiness(self) -> dict[str, Any]:
        """Return the answer of `/readyz`, whatever its status; raises OSError without an answer."""
        try:
            with urllib.request.urlopen(f"{self.base_url}/readyz", timeout=10) as answer:  # noqa: S310 - our own
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                return dict(json.load(error))

    # -- processes -----------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Return the pid of `ops up`."""
        assert self._process is not None
        return self._process.pid

    def pids(self, part: ServicePart) -> list[int]:
        """Return the running children of `ops up` of this kind."""
        return [pid for pid in child_pids(self.pid) if re.search(part, _words(pid))]

    def api_workers(self) -> list[int]:
        """Return the pids of the API workers."""
        return [
            pid
            for main in self.pids(ServicePart.API)
            for pid in child_pids(main)
            if re.search(ServicePart.API, _words(pid))
        ]

    def backends(self) -> list[int]:
        """Return the pids of the service's sessions in its embedded PostgreSQL."""
        found = [pid for main in self.pids(ServicePart.POSTGRES) for pid in child_pids(main)]
        return [pid for pid in found if re.match(r"postgres: \S+ \S+ \[local\]", _words(pid))]

    def everything(self) -> list[int]:
        """Return all processes with this state folder in their environment, command line or working directory."""
        mark = os.fsencode(self.state)
        found = []
        for pid in _living():
            with contextlib.suppress(OSError):
                folder = Path("/proc", str(pid))
                texts = (folder.joinpath(name).read_bytes() for name in ("environ", "cmdline"))
                where = os.fsencode((folder / "cwd").readlink())
                if pid != os.getpid() and (any(_names(text, mark) for text in texts) or where.startswith(mark + b"/")):
                    found.append(pid)
        return found


@contextlib.contextmanager
def temporary(more: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Run a service in a new temporary folder; both are removed at the end."""
    folder = make_folder()
    try:
        with Service(folder, more) as service:
            yield service
    finally:
        clear(folder)


def make_folder() -> Path:
    """Create a temporary folder for a service."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    folder.chmod(0o711)  # a root's servers run as another user, who passes through
    return folder


def clear(folder: Path) -> None:
    """Remove a service's folder, and its data if that lies elsewhere."""
    elsewhere = folder / "state" / "embedded"
    if elsewhere.is_symlink() and elsewhere.resolve().parent == SHARED:
        shutil.rmtree(elsewhere.resolve(), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _free_ports() -> dict[str, str]:
    return dict(zip(_PORTS, map(str, reserve_ports(len(_PORTS))), strict=True))


def _names(text: bytes, mark: bytes) -> bool:
    """Return True when `text` contains `mark` as a whole path or the beginning of one."""
    at = text.find(mark)
    return at >= 0 and text[at + len(mark) : at + len(mark) + 1] in (b"", b"/", b"\0")


def _living() -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _stat(int(entry.name))[:1] not in ([], ["Z"]):
            yield int(entry.name)


def child_pids(parent: int) -> list[int]:
    """Return the running children of a process."""
    return [pid for pid in _living() if _stat(pid)[1:2] == [str(parent)]]


def _stat(pid: int) -> list[str]:
    """Return state, parent and further fields of a process (proc(5)); [] when it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def _kill(pid: int, *, quit_first: bool = False) -> None:
    """Send SIGKILL; with `quit_first`, SIGQUIT if it is a process of PostgreSQL."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        quits = quit_first and Path("/proc", str(pid), "comm").read_text().strip() == "postgres"
        os.kill(pid, signal.SIGQUIT if quits else signal.SIGKILL)
