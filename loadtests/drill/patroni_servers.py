"""Three PostgreSQL servers under Patroni, and the etcd that they elect their primary with, all on loopback.

Patroni reads `ops/deploy/patroni/patroni.yml`, as on real hosts; names, ports and passwords are in its environment.
"""

import asyncio
import base64
import contextlib
import json
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import asyncpg

from engine.store.database_errors import DRIVER_ERRORS
from loadtests.drill.catalogue import PATRONI_PACKAGES
from loadtests.drill.valkey_servers import until
from loadtests.kit.processes import signal_all
from loadtests.kit.service import make_folder
from loadtests.ports import reserve_ports
from ops.host import launch, server_paths
from ops.host.postgres_server import working_in
from ops.host.process_specs import ROOT

CONFIGURATION: Final = ROOT / "ops/deploy/patroni/patroni.yml"
TTL_S: Final = 20.0  # `ttl` of the configuration
READY_S: Final = 60.0  # initdb, and two copies
ELECTED_S: Final = 90.0
_HOST: Final = "127.0.0.1"
_ASK_S: Final = 5.0
_DATABASE: Final = "waybill"
_FOLLOWING: Final = (
    "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('quorum', 'sync')"
)


class Etcd:
    """An etcd of one member; its data survive a kill."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._peer_port = reserve_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Return `host:port` for clients."""
        return f"{_HOST}:{self._port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        client, peer = f"http://{self.address}", f"http://{_HOST}:{self._peer_port}"
        words = [
            str(shutil.which("etcd")), "--name", "drill", "--data-dir", str(self._folder / "etcd"),
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"drill={peer}",
        ]  # fmt: skip
        self._process = _started(words, self._folder / "etcd.log", None, {})
        until(lambda: _answers(f"{client}/health"), READY_S, "etcd did not answer")

    def kill(self) -> None:
        """Kill it, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class PatroniNode:
    """Run Patroni, and the PostgreSQL that it starts, as a database host of its own."""

    def __init__(self, name: str, folder: Path, programs: Path, identity: launch.SystemUser | None) -> None:
        self.name = name
        self.port, self._rest_port = reserve_ports(2)
        self._folder = folder
        self._programs = programs
        self._identity = identity
        self._process: subprocess.Popen[bytes] | None = None
        self.password = ""

    @property
    def data(self) -> Path:
        """Return the data folder of its PostgreSQL."""
        return self._folder / "data"

    def start(self, etcd: Etcd, login: dict[str, str]) -> None:
        """Start Patroni, which starts PostgreSQL; `login` holds the passwords."""
        self.password = login["PATRONI_SUPERUSER_PASSWORD"]
        rest, postgres = f"{_HOST}:{self._rest_port}", f"{_HOST}:{self.port}"
        environ = login | {
            "PYTHONPATH": str(PATRONI_PACKAGES), "PYTHONDONTWRITEBYTECODE": "1",
            "PATRONI_NAME": self.name, "PATRONI_ETCD3_HOSTS": etcd.address,
            "PATRONI_RESTAPI_LISTEN": rest, "PATRONI_RESTAPI_CONNECT_ADDRESS": rest,
            "PATRONI_POSTGRESQL_LISTEN": postgres, "PATRONI_POSTGRESQL_CONNECT_ADDRESS": postgres,
            "PATRONI_POSTGRESQL_DATA_DIR": str(self.data), "PATRONI_POSTGRESQL_BIN_DIR": str(self._programs),
            "PATRONI_POSTGRESQL_PGPASS": str(self._folder / "pgpass"),
        }  # fmt: skip
        words = [sys.executable, "-m", "patroni", str(self._folder.parent / CONFIGURATION.name)]
        self._process = _started(words, self._folder.parent / f"{self.name}.log", self._identity, environ)

    def pids(self, *, postgres: bool = True) -> list[int]:
        """Return the processes of the host: Patroni, and with `postgres` those of PostgreSQL."""
        own = [self._process.pid] if self._process is not None and self._process.poll() is None else []
        return [*own, *(working_in(self.data) if postgres else [])]

    def kill_postgres(self) -> None:
        """Kill the postmaster, as the kernel does that runs out of memory; its backends end by themselves."""
        pid = int((self.data / "postmaster.pid").read_text("utf-8").split("\n", 1)[0])
        signal_all([pid], signal.SIGKILL)

    def kill(self) -> None:
        """Kill Patroni and PostgreSQL, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        signal_all(self.pids(), signal.SIGCONT)
        ends = time.monotonic() + ELECTED_S
        while (left := working_in(self.data)) and time.monotonic() < ends:
            signal_all(left, signal.SIGKILL)
            time.sleep(0.02)  # until the signals have taken effect; bounded by `ends`

    def signal(self, number: signal.Signals, *, postgres: bool = True) -> None:
        """Send a signal, such as SIGSTOP, to the processes of the host, or to Patroni alone."""
        signal_all(self.pids(postgres=postgres), number)

    def leads(self) -> bool:
        """Return True if Patroni says that this host is the primary and holds the leader key."""
        return _answers(f"http://{_HOST}:{self._rest_port}/primary")

    def switch_over(self, candidate: "PatroniNode", login: dict[str, str]) -> None:
        """Ask Patroni for a planned switchover, as `patronictl switchover` does."""
        user, password = login["PATRONI_RESTAPI_USERNAME"], login["PATRONI_RESTAPI_PASSWORD"]
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        body = json.dumps({"leader": self.name, "candidate": candidate.name}).encode()
        request = urllib.request.Request(
            f"http://{_HOST}:{self._rest_port}/switchover", body, {"Authorization": f"Basic {token}"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=ELECTED_S):  # noqa: S310 - our own
            pass

    def histories(self) -> dict[str, str]:
        """Return the history of each timeline that the server knows, by the name of its file."""
        return {file.name: file.read_text("utf-8") for file in (self.data / "pg_wal").glob("*.history")}

    def query(self, sql: str) -> Any:
        """Return the first value of one statement, run as superuser. Do not call inside an event loop."""
        return asyncio.run(self._query(sql))

    async def _query(self, sql: str) -> Any:
        connection = await asyncpg.connect(
            host=_HOST, port=self.port, user="postgres", password=self.password, database="postgres",
            timeout=_ASK_S, command_timeout=_ASK_S, ssl=False,
        )  # fmt: skip
        try:
            return await connection.fetchval(sql)
        finally:
            connection.terminate()


class PatroniCluster:
    """Three hosts and an etcd."""

    def __init__(self, folder: Path, programs: str | None) -> None:
        paths = server_paths.find_paths(folder)
        found = Path(programs) if programs else server_paths.postgres_programs(paths)[0]
        self._login = {
            "PATRONI_SUPERUSER_USERNAME": "postgres", "PATRONI_SUPERUSER_PASSWORD": secrets.token_hex(16),
            "PATRONI_REPLICATION_USERNAME": "replicator", "PATRONI_REPLICATION_PASSWORD": secrets.token_hex(16),
            "PATRONI_RESTAPI_USERNAME": "patroni", "PATRONI_RESTAPI_PASSWORD": secrets.token_hex(16),
        }  # fmt: skip
        self._password = secrets.token_hex(16)
        shutil.copy(CONFIGURATION, paths.base)
        (paths.base / CONFIGURATION.name).chmod(0o644)
        self.etcd = Etcd(paths.base)
        self.nodes = [
            PatroniNode(name, server_paths.own_folder(paths, name), found, paths.identity)
            for name in ("db1", "db2", "db3")
        ]

    @property
    def url(self) -> str:
        """Return the URL that a service is given: the names of all servers."""
        hosts = ",".join(f"{_HOST}:{node.port}" for node in self.nodes)
        return f"postgresql://{_DATABASE}:{self._password}@{hosts}/{_DATABASE}?sslmode=disable&target_session_attrs=read-write"

    def start(self) -> None:
        """Start all servers, and create the role and the database of the service."""
        self.etcd.start()
        for node in self.nodes:
            self.start_node(node)
        primary = self.primary(READY_S)
        primary.query(f"CREATE ROLE {_DATABASE} LOGIN PASSWORD '{self._password}'")
        primary.query(f"CREATE DATABASE {_DATABASE} OWNER {_DATABASE}")
        self.until_whole()

    def start_node(self, node: PatroniNode) -> None:
        """Start a host that is down."""
        node.start(self.etcd, self._login)

    def switch_over(self, primary: PatroniNode, candidate: PatroniNode) -> None:
        """Make `candidate` the primary, as an operator does."""
        primary.switch_over(candidate, self._login)

    def replicas(self) -> list[PatroniNode]:
        """Return the hosts that are not the primary."""
        primary = self.primary()
        return [node for node in self.nodes if node is not primary]

    def primary(self, within_s: float = ELECTED_S, *, other_than: PatroniNode | None = None) -> PatroniNode:
        """Return the primary; waits for one `other_than` the last. Raises TimeoutError."""
        found: list[PatroniNode] = []

        def elected() -> bool:
            found[:] = [node for node in self.nodes if node is not other_than and node.leads()]
            return bool(found)

        until(elected, within_s, "no primary was elected")
        return found[0]

    def until_whole(self) -> None:
        """Wait until the primary has two replicas whose confirmation counts. Raises TimeoutError."""

        def whole() -> bool:
            with contextlib.suppress(*DRIVER_ERRORS):
                return int(self.primary().query(_FOLLOWING)) == len(self.nodes) - 1
            return False

        until(whole, READY_S, "a replica did not follow")

    def stop(self) -> None:
        """End all servers; their data is not needed any more."""
        for node in self.nodes:
            node.kill()
        self.etcd.kill()


@contextlib.contextmanager
def patroni_cluster(programs: str | None = None) -> Iterator[PatroniCluster]:
    """Run a cluster in a temporary folder, with the PostgreSQL `programs` of a folder or the embedded ones.

    Enter from the main thread.
    """
    folder = make_folder("waybill-patroni-")
    servers = PatroniCluster(folder, programs)
    passed = False
    try:
        servers.start()
        yield servers
        passed = True
    finally:
        servers.stop()
        if passed:
            shutil.rmtree(server_paths.known_base(folder), ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)


def _started(
    words: list[str], log: Path, identity: launch.SystemUser | None, environ: dict[str, str]
) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            launch.command(words, identity=identity, death_signal=signal.SIGKILL),
            env=server_paths.QUIET_ENV | environ, cwd="/", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=_ASK_S) as answer:  # noqa: S310 - our own
        return bool(answer.status == 200)
    return False
