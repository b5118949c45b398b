"""Run PostgreSQL and Valkey on one address until SIGTERM, for the host that all others share.

`python -m loadtests.hosts.store --state FOLDER --address ADDRESS --network NETWORK`; run by `ops hosts up`.
"""

import argparse
import signal
from pathlib import Path

from ops.host.postgres_server import PostgresServer
from ops.host.valkey_server import ValkeyServer

POSTGRES_PORT = 5432
VALKEY_PORT = 6379
_CONNECTIONS = "200"


class NetworkPostgres(PostgresServer):
    """The embedded PostgreSQL, which trusts every client of `network`."""

    def __init__(self, state: Path, address: str, network: str) -> None:
        super().__init__(state)
        self._address = address
        self._network = network

    def prepare(self) -> None:
        """Prepare as the embedded server does, and write the access rules."""
        super().prepare()
        self._rules.write_text(f"local all all trust\nhost all all {self._network} trust\n", "ascii")
        self._rules.chmod(0o644)

    @property
    def _rules(self) -> Path:
        return self.paths.base / "hosts_hba.conf"

    def _settings(self) -> dict[str, str]:
        more = {"listen_addresses": self._address, "hba_file": str(self._rules), "max_connections": _CONNECTIONS}
        return super()._settings() | more


class NetworkValkey(ValkeyServer):
    """The embedded Valkey, reachable at `address`."""

    def __init__(self, state: Path, address: str) -> None:
        super().__init__(state)
        self._address = address

    def argv(self) -> list[str]:
        """Return the command line; Valkey uses the last value of a repeated option."""
        return [*super().argv(), "--port", str(VALKEY_PORT), "--bind", self._address, "--protected-mode", "no"]


def database_url(address: str) -> str:
    """Return the URL of the PostgreSQL at this address."""
    return f"postgresql://postgres@{address}:{POSTGRES_PORT}/postgres"


def redis_url(address: str) -> str:
    """Return the URL of the Valkey at this address."""
    return f"redis://{address}:{VALKEY_PORT}"


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="loadtests.hosts.store")
    for name in ("state", "address", "network"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    wanted = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    servers = (
        NetworkPostgres(Path(given.state), given.address, given.network),
        NetworkValkey(Path(given.state), given.address),
    )
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, wanted)  # children keep the mask of their start
        for server in servers:
            server.start()
        signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
        print("store is ready", flush=True)
        signal.sigwait(wanted)
    finally:
        for server in reversed(servers):
            server.stop()
            server.forget_sockets()


if __name__ == "__main__":
    main()
