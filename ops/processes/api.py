"""The `api` process: Granian with the configured number of workers, each running `api.app`.

All workers accept from one socket that the supervisor passes on, or that this process binds if there is none.
By default Granian binds a socket for each worker (SO_REUSEPORT), and pending connections are lost with the worker.
"""

import asyncio
import os
import resource
import socket
import sys
from contextlib import suppress
from typing import Any

from granian import net
from granian.constants import HTTPModes, Interfaces, Loops, RuntimeModes
from granian.http import HTTP1Settings
from granian.server.mp import MPServer

from api import app
from api.routes import App
from engine.base import scheduling
from engine.base.settings import Settings, load, variable
from engine.store import migrate, socket_activation
from engine.store.database_errors import DatabaseUnavailable
from ops.host import launch, sockets

CONNECTIONS = 10_000  # per worker at once; Granian's default is the backlog, which live tails alone would fill
_NET: Any = net  # its type stub lacks SocketHolder(descriptor, is_unix_socket, backlog)
MAX_HEAD_BYTES = 64 * 1024  # of a request; Granian, which parses the head again after each read, allows 408 KiB
HEADER_TIMEOUT_MS = 30_000  # Postfix allows 300 s, but a request's head is far smaller than an SMTP dialogue


class SharedQueue(MPServer):
    """Granian server whose workers share one socket that is already listening.

    Granian can bind a socket in each worker, or share one descriptor among all workers, which it does for unix
    sockets only. It has no public option to share a TCP socket, so this class overrides a private method.
    """

    def __init__(self, listener: socket.socket, **options: Any) -> None:
        address, port = listener.getsockname()[:2]
        super().__init__("ops.processes.api:create_app", address=address, port=port, **options)
        self._listener = listener

    def _init_shared_socket(self) -> None:
        self._ssp = self._sfd = None
        self._shd = _NET.SocketHolder(self._listener.fileno(), False, sockets.QUEUE)  # noqa: FBT003 - positional there
        self._sso = self._listener


class Ready:
    """Falcon middleware, added last: tells the supervisor that this worker is about to accept connections."""

    async def process_startup(self, scope: Any, event: Any) -> None:  # noqa: ARG002
        """Tell the supervisor; runs after the start-up of all other middleware."""
        socket_activation.tell_ready()


def create_app() -> App:
    """Return the application, and make the kernel kill this worker when Granian's main process dies.

    A fork loses the parent-death signal that `ops.host.launch` requests. An orphaned worker would keep serving
    the port, even after the service has stopped.
    """
    launch.tie(os.getppid())
    made = app.create_app()
    made.add_middleware(Ready())
    return made


def main() -> int:
    """Serve until SIGTERM, then finish pending requests within the drain time; return the exit status."""
    scheduling.yield_to_running()
    settings = load(os.environ).settings
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection needs a descriptor, and shells allow 1,024
    try:
        asyncio.run(_check_schema(settings))
        listener = _listener(settings)
    except (sockets.PortTaken, socket_activation.WrongSockets, migrate.MigrationError) as error:
        print(error, file=sys.stderr)
        return 1
    SharedQueue(
        listener,
        factory=True,
        interface=Interfaces.ASGI,
        loop=Loops.uvloop,
        runtime_mode=RuntimeModes.st,  # one Rust thread per worker, so its scheduler for several is not needed
        http=HTTPModes.http1,  # the default of load balancers; only one parser and one set of limits to maintain
        websockets=False,  # an upgrade request reaches the application, which rejects it with a JSON error
        workers=settings.api_workers,
        backlog=sockets.QUEUE,
        backpressure=CONNECTIONS,
        respawn_failed_workers=True,
        respawn_interval=0.5,
        workers_kill_timeout=max(1, round(settings.drain_s)),
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_TIMEOUT_MS, max_buffer_size=MAX_HEAD_BYTES),
        log_enabled=True,
        log_access=False,
    ).serve()
    return 0


async def _check_schema(settings: Settings) -> None:
    """Raise MigrationError if the schema is outdated; Granian would restart workers that check it in a loop."""
    with suppress(DatabaseUnavailable, OSError):  # the workers wait until the database is available
        if settings.database_url is not None:
            await migrate.require_at(settings.database_url)


def _listener(settings: Settings) -> socket.socket:
    found = socket_activation.take().get(sockets.HTTP)
    listener = found[0] if found else sockets.bind(settings.api_host, settings.api_port, variable("api_port"))
    sockets.with_options(listener)
    return listener


if __name__ == "__main__":
    raise SystemExit(main())
