"""Shut a worker down gracefully: stop accepting, announce the end of each connection, then let the server stop.

The order matters. A server that closes an idle connection may do so while a request is on its way, and the client can't
tell whether the request was read (RFC 9112 9.5). So clients get time to receive a response with `Connection: close`,
new connections stay in the queue for the other processes, and the server closes only what is idle after that.
"""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

LINGER_S: Final = 2.0  # time for keep-alive clients to send another request and read `Connection: close`
_POLL_S: Final = 0.02
_POLL_SHARE: Final = 20  # the pause is this many times the last poll: one over ten thousand descriptors takes long

_CLOSE: Final = (b"connection", b"close")
_OPEN_FILES: Final = Path("/proc/self/fd")


class Shutdown:
    """The shutdown state of this process; every response reads `begun`."""

    begun = False


def with_connection_close(message: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return ASGI's start of a response with `Connection: close` (RFC 9112 9.6)."""
    if message["type"] != "http.response.start":
        return message
    return {**message, "headers": [*message.get("headers", ()), _CLOSE]}


def install(end_streams: Callable[[], None], linger_s: float) -> None:
    """At SIGTERM call `end_streams`, wait up to `linger_s` for clients, then stop the server.

    The server stops by SIGINT, which it handles like SIGTERM (Granian registers one handler for both); a second SIGTERM
    skips the wait. Outside the main thread no signal handler can be set, and the server stops at once.
    """
    loop = asyncio.get_running_loop()
    running: list[asyncio.Task[None]] = []  # the loop keeps only weak references to tasks

    def on_sigterm() -> None:
        if running:
            signal.raise_signal(signal.SIGINT)
            return
        Shutdown.begun = True
        end_streams()
        running.append(loop.create_task(_drain(linger_s)))

    # The server keeps its own handler outside the main thread and in event loops without signals (asyncio's page on
    # `add_signal_handler`).
    with suppress(ValueError, RuntimeError, NotImplementedError):
        loop.add_signal_handler(signal.SIGTERM, on_sigterm)


async def _drain(linger_s: float) -> None:
    ends = time.monotonic() + linger_s
    ports = stop_accepting()
    while ports and time.monotonic() < ends:
        began = time.monotonic()
        if not _has_connections(ports):
            break
        await asyncio.sleep(max(_POLL_S, (time.monotonic() - began) * _POLL_SHARE))
    signal.raise_signal(signal.SIGINT)


def stop_accepting() -> set[int]:
    """Replace each listening socket by one that gets no connections; return the ports.

    The server has no way to stop accepting without closing its idle connections at the same time. The listening socket
    itself is shared with other processes, stays open for them, and they accept its connections. The server finds
    nothing to accept on the replaced descriptor and goes on waiting.
    """
    ports = set()
    with suppress(OSError):
        for fd, one in sockets():
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                ports.add(one.getsockname()[1])
                with socket.socket(socket.AF_UNIX) as unused:
                    unused.settimeout(0)
                    unused.bind("")  # the kernel chooses a name (unix(7))
                    unused.listen(1)
                    os.dup2(unused.fileno(), fd, inheritable=False)
    return ports


def sockets() -> Iterator[tuple[int, socket.socket]]:
    """Yield the internet sockets of this process (Linux) with the server's descriptor of each.

    Each socket is a duplicate that is closed when the iteration goes on.
    """
    for entry in _OPEN_FILES.iterdir():
        with suppress(OSError):
            if not str(entry.readlink()).startswith("socket:"):
                continue
            fd = int(entry.name)
            with socket.socket(fileno=os.dup(fd)) as one:
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    yield fd, one


def _has_connections(ports: set[int]) -> bool:
    """Return True while a connection to one of these ports is open."""
    with suppress(OSError):
        return any(one.getsockname()[1] in ports for _, one in sockets())
    return False
