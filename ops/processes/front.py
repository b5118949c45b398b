"""The `front` process: Granian with the configured number of workers, each running `api.front.app`."""

import os
import sys

from api.front import app
from api.front.app import FrontApp
from engine.base import scheduling
from engine.base.settings import load
from engine.store import socket_activation
from ops.host import launch, sockets
from ops.processes.api import allow_connections, listening, serve


def create_app() -> FrontApp:
    """Return the application, and make the kernel kill this worker when Granian's main process dies."""
    launch.tie(os.getppid())
    return app.create_app()


def main() -> int:
    """Serve until SIGTERM, then finish pending requests within the drain time; return the exit status."""
    scheduling.yield_to_running()
    settings = load(os.environ).settings
    allow_connections()
    try:
        listener = listening(settings)
    except (sockets.PortTaken, socket_activation.WrongSockets) as error:
        print(error, file=sys.stderr)
        return 1
    serve(listener, "front", settings)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
