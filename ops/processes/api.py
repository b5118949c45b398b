"""The `api` process: Granian with the configured number of workers, each running `api.app`."""

import os
import resource

from granian import Granian
from granian.constants import Interfaces, Loops
from granian.http import HTTP1Settings

from api import app
from api.app import App
from engine.base.settings import load
from ops import launch

BACKLOG = 1024
CONNECTIONS = 10_000  # one worker serves at once: by default as many as the backlog, which live tails alone would fill
HEADER_TIMEOUT_MS = 30_000  # Postfix cuts at 300 s; a request's head is far smaller than a dialogue


def create_app() -> App:
    """The application, in a worker that ends with Granian whatever kills it: a fork forgets the tie of `ops.launch`,
    and a worker left behind would go on serving the port beside the next one, even after the service has stopped."""
    launch.tie(os.getppid())
    return app.create_app()


def main() -> None:
    """Serve until SIGTERM; requests under way are finished within the drain time."""
    settings = load(os.environ).settings
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is a file, and shells allow 1,024
    Granian(
        "ops.processes.api:create_app",
        factory=True,
        address=settings.api_host,
        port=settings.api_port,
        interface=Interfaces.ASGI,
        loop=Loops.uvloop,
        workers=settings.api_workers,
        backlog=BACKLOG,
        backpressure=CONNECTIONS,
        respawn_failed_workers=True,
        respawn_interval=0.5,
        workers_kill_timeout=max(1, round(settings.drain_s)),
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_TIMEOUT_MS),
        log_enabled=True,
        log_access=False,
    ).serve()


if __name__ == "__main__":
    main()
