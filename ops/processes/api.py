"""The `api` process: Granian with the configured number of workers, each running `api.app`.

Its workers accept from one socket that the supervisor owns, or that this process binds when nobody hands one over.
Granian itself would bind a socket for each worker (SO_REUSEPORT), whose waiting connections die with the worker.
"""

import asyncio
import os
import resource
import socket
import sys
from contextlib import suppress
from typing import Any

from engine.store.database_errors import DatabaseUnavailable
from granian import net
from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.server.mp import MPServer

from api import app
from api.app import App
from engine.base.settings import Settings, load, variable
from engine.store import migrate, socket_activation
from ops import launch, sockets

CONNECTIONS = 10_000  # one worker serves at once: by default as many as the backlog, which live tails alone would fill
_NET: Any = net  # its stub knows neither the holder nor its arguments: descriptor, is a unix socket, backlog
MAX_HEAD_BYTES = 64 * 1024  # of a request; Granian's default of 408 KiB has it parsed anew after each of many reads
HEADER_TIMEOUT_MS = 30_000  # Postfix cuts at 300 s; a request's head is far smaller than a dialogue


class SharedQueue(MPServer):
    """Granian on a socket that listens already.

    Inside, Granian knows both kinds: a specification that each worker binds, and a holder of one descriptor that all
    share, which it uses for unix sockets. It has no public way to say the second for TCP, so this says it inside.
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
    """Falcon middleware, the last of all: tells the supervisor that this worker is about to accept."""

    async def process_startup(self, scope: Any, event: Any) -> None:  # noqa: ARG002
        """After every other start."""
        socket_activation.tell_ready()


def create_app() -> App:
    """The application, in a worker that ends with Granian whatever kills it: a fork forgets the tie of `ops.launch`,
    and a worker left behind would go on serving the port beside the next one, even after the service has stopped."""
    launch.tie(os.getppid())
    made = app.create_app()
    made.add_middleware(Ready())
    return made


def main() -> int:
    """Serve until SIGTERM; requests under way are finished within the drain time."""
    settings = load(os.environ).settings
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is a file, and shells allow 1,024
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
        http=HTTPModes.http1,  # what load balancers speak by default; one parser and one set of limits
        websockets=False,  # an upgrade to one comes to the application as a request, which refuses it in its envelope
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
    """Here, and not in the workers: Granian would start one that refuses again and again."""
    with suppress(DatabaseUnavailable, OSError):  # the workers wait for a database that is away
        if settings.database_url is not None:
            await migrate.require_at(settings.database_url)


def _listener(settings: Settings) -> socket.socket:
    found = socket_activation.take().get(sockets.HTTP)
    listener = found[0] if found else sockets.bind(settings.api_host, settings.api_port, variable("api_port"))
    sockets.with_options(listener)
    return listener


if __name__ == "__main__":
    raise SystemExit(main())
