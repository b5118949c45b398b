"""Run a separate service: `ops up` as a child process in its own folder and on free ports. Linux only."""

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
from collections.abc import AsyncIterator, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import asyncpg

from engine.base.local_mode import FIRST_RUN
from engine.base.settings import PREFIX, Settings, load
from loadtests.kit.processes import child_pids, command_line, kill, living, works_in
from loadtests.ports import reserve_ports
from ops.host import launch, rolling
from ops.host.attach import attach
from ops.host.control import NoSupervisor, Refused
from ops.host.embedded import END_GRACE_S
from ops.host.process_specs import ROOT
from ops.host.server_paths import SHARED
from ops.host.state import tail

START_TIMEOUT_S: Final = 90.0
STOP_GRACE_S: Final = 60.0
PORTS: Final = (
    "API_PORT",
    "METRICS_PORT",
    "SINK_PORT",
    "DNS_PORT",
    "SUBMISSION_PORT",
    "SUBMISSION_TLS_PORT",
    "MX_PORT",
)
_TRIES: Final = 3  # another program of this machine may have taken a reserved port meanwhile
_READY_TEXT: Final = b"Waybill is ready"
_POLL_S: Final = 0.05
_QUERY_S: Final = 60.0


class ServicePart(StrEnum):
    """A part of the service; the value is a regular expression for the command line of its own process.

    In the small profile all but API, POSTGRES and VALKEY are in the process `host` (`Service.process_kind`).
    """

    API = r"-m ops\.processes\.api"  # Granian itself; `Service.api_workers` are its children
    MTA = r"-m mta\.process"
    RELAY = r"-m ops\.processes\.relay"
    MX = r"-m ops\.processes\.mx"
    WORKER = r"-m ops\.processes\.worker"
    POSTGRES = r"/postgres -D "
    VALKEY = r"(valkey|redis)-server"
    DNS = r"-m ops\.local\.dns"
    SINK = r"-m ops\.local\.sink"


_SERVERS: Final = frozenset({ServicePart.POSTGRES, ServicePart.VALKEY})
_OWN_PROCESS: Final = _SERVERS | {ServicePart.API}  # in the small profile


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
            at = self.output.stat().st_size if self.output.exists() else 0
            self.begin()
            if self._is_ready(at, time.monotonic() + timeout_s):
                return
            output = self.output_text()
            self.kill()
            if last or "is in use by another program" not in output:
                raise ServiceNotReady(f"ops up did not get ready:\n{output}\n{tail(self.state / 'log' / 'api.log')}")
            self._ports = {}

    def begin(self) -> None:
        """Start it without waiting for anything; `kill` or `wait` ends it."""
        self._ports = self._ports or dict(zip(PORTS, map(str, reserve_ports(len(PORTS))), strict=True))
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                launch.command([sys.executable, "-m", "ops", "up"], death_signal=signal.SIGTERM),
                env=self.environ, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

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
        if self.running():
            kill(self._process.pid)
        self._process.wait()
        while (left := self.everything()) and (waited := time.monotonic() - began) < STOP_GRACE_S:
            for pid in left:
                kill(pid, quit_first=waited < END_GRACE_S)
            time.sleep(_POLL_S)

    def _is_ready(self, at: int, deadline: float) -> bool:
        """Wait for the ready line behind the first `at` octets of output; False at the deadline or the end."""
        while time.monotonic() < deadline and self.running():
            if _READY_TEXT in self.output.read_bytes()[at:]:
                return True
            time.sleep(_POLL_S)
        return False

    # -- where ---------------------------------------------------------------------------------

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment for `ops up` and for operator commands on this service."""
        own = {"STATE": str(self.state), "PROFILE": "full", **self._ports, **self._more}
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
    def database_url(self) -> str:
        """Return the URL of its database; only while it runs."""
        return str(self.settings.database_url)

    @property
    def redis_url(self) -> str:
        """Return the URL of its Valkey; only while it runs."""
        return str(self.settings.redis_url)

    @property
    def base_url(self) -> str:
        """Return the base URL of its API."""
        return f"http://127.0.0.1:{self._ports['API_PORT']}"

    @property
    def sink_port(self) -> int:
        """Return the port of its sink, which receives all its mail."""
        return int(self._ports["SINK_PORT"])

    @property
    def submission_port(self) -> int:
        """Return the port of its relay with STARTTLS."""
        return int(self._ports["SUBMISSION_PORT"])

    @property
    def submission_tls_port(self) -> int:
        """Return the port of its relay with TLS from the first octet."""
        return int(self._ports["SUBMISSION_TLS_PORT"])

    @property
    def mx_port(self) -> int:
        """Return the port of its server for incoming mail."""
        return int(self._ports["MX_PORT"])

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

    # -- database ------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[asyncpg.Connection]:
        """Open a session with its database."""
        connection = await asyncpg.connect(self.database_url, timeout=10, command_timeout=_QUERY_S)
        try:
            yield connection
        finally:
            connection.terminate()

    async def rows(self, statement: str, *values: object) -> list[Any]:
        """Return the rows of one statement, in a session of its own."""
        async with self.session() as connection:
            return list(await connection.fetch(statement, *values))

    async def value(self, statement: str, *values: object) -> Any:
        """Return the first value of one statement; None without a row."""
        found = await self.rows(statement, *values)
        return found[0][0] if found else None

    # -- processes -----------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Return the pid of `ops up`."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_small(self) -> bool:
        """Return True if it runs in the small profile."""
        return self.environ[PREFIX + "PROFILE"] == "small"

    def process_kind(self, part: ServicePart) -> str:
        """Return the kind of the process that carries this part, as `ops restart` takes it."""
        own = not self.is_small or part in _OWN_PROCESS
        return part.name.lower() if own else "host"

    def pids(self, part: ServicePart) -> list[int]:
        """Return the running processes that carry this part.

        Processes of the small profile are forks whose command line does not tell them apart: its supervisor does.
        """
        if self.is_small and part not in _SERVERS:
            return self._named(self.process_kind(part))
        return [pid for pid in child_pids(self.pid) if re.search(part, command_line(pid))]

    def _named(self, kind: str) -> list[int]:
        try:
            rows = rolling.ask_status(self.state)
        except (OSError, NoSupervisor, Refused):  # it starts or ends
            return []
        alive = frozenset(living())  # the supervisor may not have seen the end of a process yet
        return [row["pid"] for row in rows if row["kind"] == kind and row["pid"] in alive]

    def with_children(self, part: ServicePart) -> list[int]:
        """Return the running processes of this kind and their children."""
        return [pid for main in self.pids(part) for pid in (main, *child_pids(main))]

    def api_workers(self) -> list[int]:
        """Return the pids of the API workers; in the small profile the API is one process."""
        if self.is_small:
            return self.pids(ServicePart.API)
        children = [pid for main in self.pids(ServicePart.API) for pid in child_pids(main)]
        return [pid for pid in children if re.search(ServicePart.API, command_line(pid))]

    def backends(self) -> list[int]:
        """Return the pids of the service's sessions in its embedded PostgreSQL."""
        found = self.with_children(ServicePart.POSTGRES)
        return [pid for pid in found if re.match(r"postgres: \S+ \S+ \[local\]", command_line(pid))]

    def everything(self) -> list[int]:
        """Return all processes with this state folder in their environment, command line or working directory."""
        mark = os.fsencode(self.state)
        return [pid for pid in living() if pid != os.getpid() and works_in(pid, mark)]


@contextlib.contextmanager
def temporary(more: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Run a service in a new temporary folder; both are removed at the end."""
    folder = make_folder()
    try:
        with Service(folder, more) as service:
            yield service
    finally:
        clear(folder)


def make_folder(prefix: str = "waybill-drill-") -> Path:
    """Create a temporary folder for servers."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o711)  # a root's servers run as another user, who passes through
    return folder


def clear(folder: Path) -> None:
    """Remove a service's folder, and its data if that lies elsewhere."""
    elsewhere = folder / "state" / "embedded"
    if elsewhere.is_symlink() and elsewhere.resolve().parent == SHARED:
        shutil.rmtree(elsewhere.resolve(), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
