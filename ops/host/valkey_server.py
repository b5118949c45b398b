"""The embedded Valkey server."""

import signal
import socket
import time
from pathlib import Path

from ops.host import server_paths
from ops.host.embedded import RESTART_WINDOW_S, Server
from ops.host.server_paths import CannotServe


class ValkeyServer(Server):
    """Valkey (the Redis protocol) on a unix socket with an append-only file synced each second.

    Valkey holds only hints and counters: after a crash, hints of the lost second are recovered from PostgreSQL.
    """

    name = "valkey"
    stop_signal = signal.SIGTERM

    _program: Path

    @property
    def socket(self) -> Path:
        """Return the path of the unix socket."""
        return self.socket_folder() / "valkey.sock"

    @property
    def url(self) -> str:
        """Return the URL for redis-py."""
        return f"unix://{self.socket}"

    def prepare(self) -> None:
        """Find the program, and create the data folder if it is missing; raises CannotServe."""
        self._program = server_paths.valkey_program(self.paths)
        server_paths.own_folder(self.paths, "valkey")

    def argv(self) -> list[str]:
        """Return the command line with all settings; there is no configuration file."""
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.paths.base / "valkey"),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            # A refused write is reported and harmless (the queue row suffices); an evicted hint would go unnoticed.
            "maxmemory-policy": "noeviction",
            "maxmemory": "64mb" if self._small else "512mb",
            "daemonize": "no",
        }
        return [str(self._program), *(word for name, value in options.items() for word in (f"--{name}", value))]

    def ready(self, pid: int) -> bool:  # noqa: ARG002 - no other server can listen on this socket
        """Return True if the server answers PING with PONG, which it does once the append-only file is loaded."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(1.0)
            try:
                link.connect(str(self.socket))
                link.sendall(b"PING\r\n")
                return link.recv(16).startswith(b"+PONG")
            except OSError:
                return False

    def clear_leftovers(self) -> None:
        """Wait until a predecessor has exited: two writers would corrupt the append-only file. Raises CannotServe."""
        deadline = time.monotonic() + RESTART_WINDOW_S
        while self.ready(0) and time.monotonic() < deadline:
            time.sleep(0.05)  # a predecessor is no child of this process
        if self.ready(0):
            raise CannotServe(f"Another Valkey answers at {self.socket}; stop it first.")
