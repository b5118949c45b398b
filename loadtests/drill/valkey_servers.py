"""Valkey servers on loopback: the primaries of a cluster, or a primary and its replicas, with sentinels or without.

They keep no data on disk and end with the process that started them.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import redis

from loadtests.kit.service import make_folder
from loadtests.ports import reserve_ports
from ops.host import launch, server_paths

SLOTS: Final = 16_384
READY_S: Final = 20.0
NODE_TIMEOUT_MS: Final = 2_000  # how long a primary is missed before its replicas may take over
WATCHED: Final = "mymaster"
SENTINEL_PASSWORD: Final = "of-the-sentinels"  # noqa: S105 - of servers on loopback
_POLL_S = 0.02


class Valkey:
    """A Valkey server on 127.0.0.1; with `bus_port`, a node of a cluster that talks to the others on that port."""

    def __init__(self, folder: Path, port: int, *, bus_port: int | None = None) -> None:
        self.port = port
        self.bus_port = bus_port
        self.password: str | None = None
        self._paths = server_paths.find_paths(folder)
        self._folder = server_paths.own_folder(self._paths, f"valkey-{port}")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Return `host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Return the pid of the current or last server process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it answers; a cluster node and a sentinel keep their configuration."""
        with (self._folder / "valkey.log").open("ab") as log:
            self._process = subprocess.Popen(
                launch.command(self._argv(), identity=self._paths.identity, death_signal=signal.SIGKILL),
                env=server_paths.QUIET_ENV, cwd="/", start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        until(self.answers, READY_S, f"Valkey on port {self.port} did not answer")

    def _argv(self) -> list[str]:
        options = {
            "bind": "127.0.0.1", "port": str(self.port), "dir": str(self._folder), "save": "", "appendonly": "no",
            "maxmemory-policy": "noeviction", "daemonize": "no", "repl-diskless-sync-delay": "0",
        }  # fmt: skip
        if self.bus_port is not None:
            options |= {
                "cluster-enabled": "yes", "cluster-config-file": "nodes.conf",
                "cluster-node-timeout": str(NODE_TIMEOUT_MS), "cluster-require-full-coverage": "no",
                "cluster-port": str(self.bus_port),
            }  # fmt: skip
        words = [str(server_paths.valkey_program(self._paths))]
        return words + [word for name, value in options.items() for word in (f"--{name}", value)]

    def kill(self) -> None:
        """Kill the server, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP, to the server."""
        assert self._process is not None
        self._process.send_signal(number)

    def answers(self) -> bool:
        """Return True if it answers a PING."""
        try:
            return bool(self.command("PING"))
        except (redis.RedisError, OSError):
            return False

    def command(self, *words: Any) -> Any:
        """Execute one command and return its answer; raises RedisError."""
        with redis.Redis(
            host="127.0.0.1", port=self.port, password=self.password, socket_timeout=5, decode_responses=True
        ) as client:
            return client.execute_command(*words)

    def info(self, field: str, section: str = "replication") -> str:
        """Return one field of INFO."""
        return str(self.command("INFO", section)[field])


@contextlib.contextmanager
def valkey_servers(count: int, *, clustered: bool = False) -> Iterator[list[Valkey]]:
    """Start `count` independent servers in a temporary folder. Enter from the main thread."""
    folder = make_folder("waybill-valkeys-")
    # Without a bus port of its own a node takes its port + 10,000, which the kernel may give to an outgoing connection.
    buses = reserve_ports(count) if clustered else [None] * count
    servers = [Valkey(folder, port, bus_port=bus) for port, bus in zip(reserve_ports(count), buses, strict=True)]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.kill()
        shutil.rmtree(folder, ignore_errors=True)


class Sentinel(Valkey):
    """A sentinel that watches `primary` under the name WATCHED, with a password of its own.

    Two sentinels must agree before they replace it. It writes what it learns into its configuration.
    """

    def __init__(self, folder: Path, port: int, primary: Valkey) -> None:
        super().__init__(folder, port)
        self.password = SENTINEL_PASSWORD
        self._primary = primary

    def _argv(self) -> list[str]:
        configuration = self._folder / "sentinel.conf"
        if not configuration.exists():
            configuration.write_text(
                f"bind 127.0.0.1\nport {self.port}\ndir {self._folder}\nrequirepass {self.password}\n"
                f"sentinel sentinel-pass {self.password}\n"
                f"sentinel monitor {WATCHED} 127.0.0.1 {self._primary.port} 2\n"
                f"sentinel down-after-milliseconds {WATCHED} {NODE_TIMEOUT_MS}\n"
                f"sentinel failover-timeout {WATCHED} {5 * NODE_TIMEOUT_MS}\n",
                "utf-8",
            )
            if self._paths.identity is not None:
                os.chown(configuration, self._paths.identity.uid, self._paths.identity.gid)
        return [str(server_paths.valkey_program(self._paths)), str(configuration), "--sentinel"]


@contextlib.contextmanager
def watched_servers() -> Iterator[tuple[list[Valkey], list[Sentinel]]]:
    """Start a primary, two replicas and three sentinels that know each other. Enter from the main thread."""
    with valkey_servers(3) as servers:
        folder = make_folder("waybill-sentinels-")
        sentinels = [Sentinel(folder, port, servers[0]) for port in reserve_ports(3)]
        try:
            for replica in servers[1:]:
                replica.command("REPLICAOF", "127.0.0.1", servers[0].port)
            until(lambda: all(map(linked, servers[1:])), READY_S, "a replica did not follow")
            for sentinel in sentinels:
                sentinel.start()
            until(lambda: all(map(_sees_all, sentinels)), READY_S, "the sentinels did not find each other")
            yield servers, sentinels
        finally:
            for sentinel in sentinels:
                sentinel.kill()
            shutil.rmtree(folder, ignore_errors=True)


def sentinel_url(sentinels: Sequence[Sentinel]) -> str:
    """Return the URL for a service."""
    hosts = ",".join(one.address for one in sentinels)
    return f"redis+sentinel://{hosts}/{WATCHED}?sentinel_password={SENTINEL_PASSWORD}"


def _sees_all(sentinel: Sentinel) -> bool:
    """Return True if the sentinel knows two others and two replicas."""
    words = sentinel.command("SENTINEL", "MASTER", WATCHED)
    seen = words if isinstance(words, dict) else dict(zip(words[::2], words[1::2], strict=True))
    return int(seen["num-other-sentinels"]) == 2 and int(seen["num-slaves"]) == 2


def form_cluster(primaries: Sequence[Valkey], replicas: Sequence[Valkey] = ()) -> None:
    """Divide the slots among the primaries and let replica n follow primary n; return when all agree."""
    first = primaries[0]
    each = SLOTS // len(primaries)
    for number, server in enumerate(primaries):
        last = SLOTS - 1 if server is primaries[-1] else (number + 1) * each - 1
        server.command("CLUSTER", "ADDSLOTSRANGE", number * each, last)
        server.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    for server in [*primaries[1:], *replicas]:
        server.command("CLUSTER", "MEET", "127.0.0.1", first.port, first.bus_port)
    count = len(primaries) + len(replicas)
    servers = [*primaries, *replicas]
    until(lambda: all(_known(one) == count for one in servers), READY_S, "the servers did not find each other")
    for primary, replica in zip(primaries, replicas, strict=False):
        replica.command("CLUSTER", "REPLICATE", primary.command("CLUSTER", "MYID"))
    until(lambda: all(_well(one) for one in servers), READY_S, "the cluster did not come up")
    # A server passes publications on only by links that are up, and the state is `ok` before all of them are.
    until(lambda: all(_links(one) == 2 * (count - 1) for one in servers), READY_S, "a link of the cluster is missing")
    until(lambda: all(linked(one) for one in replicas), READY_S, "a replica did not follow")


def move_slot(slot: int, source: Valkey, target: Valkey, *, max_keys: int = 1_000) -> int:
    """Move a slot with its keys under load, as an operator's tool does; return the number of keys moved."""
    source_id, target_id = source.command("CLUSTER", "MYID"), target.command("CLUSTER", "MYID")
    target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
    source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
    moved = 0
    while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, max_keys):
        source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *keys)
        moved += len(keys)
    for server in (target, source):
        server.command("CLUSTER", "SETSLOT", slot, "NODE", target_id)
    return moved


def linked(replica: Valkey) -> bool:
    """Return True if the replica follows a primary and its first synchronisation has ended."""
    return replica.answers() and replica.command("INFO", "replication").get("master_link_status") == "up"


def until(rule: Any, within_s: float, otherwise: str) -> None:
    """Wait until `rule` returns a true value; raises TimeoutError with the text `otherwise` after `within_s`."""
    ends = time.monotonic() + within_s
    while not rule():
        if time.monotonic() > ends:
            raise TimeoutError(otherwise)
        time.sleep(_POLL_S)


def _known(server: Valkey) -> int:
    return int(_cluster_info(server)["cluster_known_nodes"])


def _links(server: Valkey) -> int:
    """Return the number of open cluster links, in both directions."""
    return len(server.command("CLUSTER", "LINKS"))


def _well(server: Valkey) -> bool:
    info = _cluster_info(server)
    return info["cluster_state"] == "ok" and info["cluster_slots_ok"] == str(SLOTS)


def _cluster_info(server: Valkey) -> dict[str, str]:
    answer = server.command("CLUSTER", "INFO")
    return dict(answer) if isinstance(answer, dict) else dict(line.split(":", 1) for line in answer.split())
