"""The `api` process: Granian with the configured number of workers, each running `api.app`.

All workers accept from one socket that the supervisor passes on, or that this process binds if there is none.
By default Granian binds a socket for each worker (SO_REUSEPORT), and pending connections are lost with the worker.
"""

import asyncio
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

import uvloop
from granian import net
from granian.constants import HTTPModes, Interfaces, Loops, RuntimeModes
from granian.http import HTTP1Settings
from granian.server.common import AbstractServer
from granian.server.embed import Server as EmbeddedServer
from granian.server.mp import MPServer

from api import app
from api.routes import App
from engine.base import logs, scheduling
from engine.base.server_versions import UnsupportedServer
from engine.base.settings import Settings, is_small, load, variable
from engine.store import large_mail, migrate, socket_activation
from engine.store import redis as redis_store
from engine.store.database_errors import DatabaseUnavailable
from engine.store.replica_pool import StrangerReplica, refuse_strangers
from ops.host import launch, sockets

CONNECTIONS = 10_000  # per worker at once; Granian's default is the backlog, which live tails alone would fill
_NET: Any = net  # its type stub lacks SocketHolder(descriptor, is_unix_socket, backlog)
MAX_HEAD_BYTES = 64 * 1024  # of a request; Granian, which parses the head again after each read, allows 408 KiB
# Granian's logger writes JSON lines, as all others do; the rest of its configuration is not used.
LOG_LINES: dict[str, Any] = {
    "formatters": {},
    "handlers": {"json": {"()": logs.standard_handler, "process": "api"}},
    "loggers": {"_granian": {"handlers": ["json"], "propagate": False}},
}
HEADER_TIMEOUT_MS = 30_000  # Postfix allows 300 s, but a request's head is far smaller than an SMTP dialogue


_OPTIONS: dict[str, Any] = {
    "factory": True,
    "interface": Interfaces.ASGI,
    "http": HTTPModes.http1,  # the default of load balancers; only one parser and one set of limits to maintain
    "websockets": False,  # an upgrade request reaches the application, which rejects it with a JSON error
    "backlog": sockets.QUEUE,
    "backpressure": CONNECTIONS,
    "http1_settings": HTTP1Settings(header_read_timeout=HEADER_TIMEOUT_MS, max_buffer_size=MAX_HEAD_BYTES),
    "log_dictconfig": LOG_LINES,
    "log_access": False,
}


class _OnSocket(AbstractServer[Any]):
    """Granian server on one socket that is already listening, for the two kinds of servers below.

    Granian can bind a socket itself, or share a descriptor, which it does for unix sockets only. It has no public
    option to take over a TCP socket, so this class overrides a private method.
    """

    def __init__(self, listener: socket.socket, target: Any, **options: Any) -> None:
        address, port = listener.getsockname()[:2]
        super().__init__(target, address=address, port=port, **options)
        self._listener = listener

    def _init_shared_socket(self) -> None:
        self._ssp = self._sfd = None
        self._shd = _NET.SocketHolder(self._listener.fileno(), False, sockets.QUEUE)  # noqa: FBT003 - positional there
        self._sso = self._listener


class SharedQueue(_OnSocket, MPServer):  # type: ignore[misc]  # Granian declares the same attribute in both
    """Server whose workers are processes; they share the socket."""


class OneWorker(_OnSocket, EmbeddedServer):
    """Server that serves in this process's event loop, for the small profile: no process of Granian's beside it."""


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
    return made()


def made() -> App:
    """Return the application; it tells the supervisor when it is ready."""
    large_mail.give_way()
    application = app.create_app()
    application.add_middleware(Ready())
    return application


def main() -> int:
    """Serve until SIGTERM, then finish pending requests within the drain time; return the exit status."""
    scheduling.yield_to_running()
    settings = load(os.environ).settings
    allow_connections()
    try:
        asyncio.run(_check_stores(settings))
        listener = listening(settings)
    except (
        sockets.PortTaken, socket_activation.WrongSockets, migrate.MigrationError, StrangerReplica, UnsupportedServer,
    ) as error:  # fmt: skip
        print(error, file=sys.stderr)
        return 1
    if is_small(settings):
        uvloop.run(_serve_here(listener, _OPTIONS, settings.drain_s))
        return 0
    serve(listener, "api", settings)
    return 0


def serve(listener: socket.socket, process: str, settings: Settings) -> None:
    """Run workers that serve the application that `create_app` of a process's module returns, until SIGTERM."""
    lines = LOG_LINES | {"handlers": {"json": {"()": logs.standard_handler, "process": process}}}
    SharedQueue(
        listener,
        f"ops.processes.{process}:create_app",
        loop=Loops.uvloop,
        runtime_mode=RuntimeModes.st,  # one Rust thread per worker, so its scheduler for several is not needed
        workers=settings.api_workers,
        respawn_failed_workers=True,
        respawn_interval=0.5,
        workers_kill_timeout=max(1, round(settings.drain_s)),
        **_OPTIONS | {"log_dictconfig": lines},
    ).serve()


async def _serve_here(listener: socket.socket, options: dict[str, Any], drain_s: float) -> None:
    """Serve in this event loop; the application's shutdown turns SIGTERM into SIGINT once clients have left."""
    server = OneWorker(listener, made, **options)
    server.workers_kill_timeout = max(1, round(drain_s))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.stop)
    await server.serve()


def allow_connections() -> None:
    """Let this process and its workers open as many descriptors as they may: each connection needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # shells allow 1,024


async def _check_stores(settings: Settings) -> None:
    """Raise UnsupportedServer or MigrationError if a server or the schema is too old, StrangerReplica for a replica of
    another system; Granian would restart workers that check it in a loop.
    """
    if settings.redis_url is not None:
        await redis_store.refuse_old(settings.redis_url)
    with suppress(DatabaseUnavailable, OSError):  # the workers wait until the database is available
        if settings.database_url is not None:
            await migrate.require_at(settings.database_url)
            await refuse_strangers(settings)


def listening(settings: Settings) -> socket.socket:
    """Return the socket that the supervisor passed on, or bind one. Raises PortTaken, WrongSockets."""
    found = socket_activation.take().get(sockets.HTTP)
    listener = found[0] if found else sockets.bind(settings.api_host, settings.api_port, variable("api_port"))
    sockets.with_options(listener)
    return listener


if __name__ == "__main__":
    raise SystemExit(main())
