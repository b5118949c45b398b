"""The hosts of `ops hosts` and their processes: two with api and relay, three with mta, one worker, stores, DNS and
sink.

Each service host runs `ops up` with its own state folder; all share the database and Redis URLs and the key pepper.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from engine.base.settings import PREFIX
from loadtests.hosts import network, store

CLIENT: Final = "client"  # runs no process; for clients of the service
STORE: Final = "store"
WORLD: Final = "world"
API_PORT: Final = 8080
SUBMISSION_PORT: Final = 2587
SUBMISSION_TLS_PORT: Final = 2465
DNS_PORT: Final = 53
SINK_PORT: Final = 25
METRICS_PORT: Final = 9090
LEASE_S: Final = 6.0
_SETTINGS: Final = {"RETRY_LADDER_S": "1,2,4,8", "REQUEST_RATE": "100000", "LEASE_S": f"{LEASE_S:g}"}


class NamespaceHost(Struct, frozen=True):
    """A host; `processes` is empty for hosts without `ops up`."""

    name: str
    number: int
    processes: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Return the IPv4 address."""
        return network.address(self.number)


HOSTS: Final = (
    NamespaceHost(STORE, 10),
    NamespaceHost(WORLD, 11),
    NamespaceHost("api1", 21, ("api", "relay")),
    NamespaceHost("api2", 22, ("api", "relay")),
    NamespaceHost("mta1", 31, ("mta",)),
    NamespaceHost("mta2", 32, ("mta",)),
    NamespaceHost("mta3", 33, ("mta",)),
    NamespaceHost("worker1", 41, ("worker",)),
    NamespaceHost(CLIENT, 100),
)


def host(name: str) -> NamespaceHost:
    """Return the host of this name; raises KeyError."""
    return {one.name: one for one in HOSTS}[name]


def running(process: str) -> list[NamespaceHost]:
    """Return the hosts that run this kind of process."""
    return [one for one in HOSTS if process in one.processes]


def state_of(folder: Path, one: NamespaceHost) -> Path:
    """Return the state folder of a host."""
    return folder / one.name


def environ(folder: Path, one: NamespaceHost, pepper: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of `ops up` on that host; `more` are settings without the prefix."""
    settings = {
        "STATE": str(state_of(folder, one)),
        "PROCESSES": ",".join(one.processes),
        "DATABASE_URL": store.database_url(host(STORE).address),
        "REDIS_URL": store.redis_url(host(STORE).address),
        "KEY_PEPPER": pepper,
        "API_HOST": one.address,
        "API_PORT": str(API_PORT),
        "METRICS_PORT": str(METRICS_PORT),
        "SUBMISSION_HOST": one.address,
        "SUBMISSION_PORT": str(SUBMISSION_PORT),
        "SUBMISSION_TLS_PORT": str(SUBMISSION_TLS_PORT),
        "MTA_WORKERS": "1",
        "DNS_SERVERS": f"{host(WORLD).address}:{DNS_PORT}",
        "SINK_PORT": str(SINK_PORT),
        "ALLOW_PRIVATE_MX": "true",
        **_SETTINGS,
        **(more or {}),
    }
    if not one.processes:  # of commands beside the service
        del settings["PROCESSES"]
    outside = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
    return outside | {PREFIX + name: text for name, text in settings.items()}


def commands(folder: Path, one: NamespaceHost) -> list[list[str]]:
    """Return the commands to start on that host, in order."""
    python = [sys.executable, "-m"]
    if one.name == STORE:
        where = ["--state", str(state_of(folder, one)), "--address", one.address]
        return [[*python, "loadtests.hosts.store", *where, "--network", f"{network.NETWORK}.0/24"]]
    if one.name == WORLD:
        names = ["--host", one.address, "--port", str(DNS_PORT), "--sink-host", one.address]
        kept = ["--host", one.address, "--port", str(SINK_PORT), "--store", str(folder / "sink")]
        return [[*python, "ops.local.dns", *names], [*python, "ops.local.sink", *kept]]
    return [[*python, "ops", "up"]] if one.processes else []
