"""Serve the metrics of all processes of this host on a separate port.

The worker serves them itself; hosts without a worker run this module as the `metrics` process.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector

from engine.base.settings import Settings, load
from engine.store import socket_activation, stopping


@contextmanager
def shown(settings: Settings) -> Iterator[None]:
    """Serve `/metrics` from a separate thread until the context ends."""
    registry = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    server, thread = start_http_server(settings.metrics_port, addr=settings.api_host, registry=registry)
    try:
        yield
    finally:
        server.shutdown()
        thread.join(5)


async def run(settings: Settings, stop: asyncio.Event | None = None) -> None:
    """Serve until `stop` is set (default: at SIGTERM or SIGINT)."""
    stop = stop or stopping.stop_event()
    with shown(settings):
        socket_activation.tell_ready()
        await stop.wait()


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    asyncio.run(run(load(os.environ).settings))


if __name__ == "__main__":
    main()
