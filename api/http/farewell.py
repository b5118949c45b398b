"""How a worker takes its leave: nobody new comes in, every answer says that the connection ends, and only then it does.

The order matters. A server that closes an idle connection may do so while a request is on its way, and the client
can't tell whether that was read (RFC 9112 9.5). So connections get time to end with an answer that says so, and new
ones are left in the queue for whoever accepts next; what is still idle after that is closed by the server.
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

LINGER_S: Final = 2.0  # for keep-alive clients to send once more; those that send seldom are seldom hit
_LOOK_S: Final = 0.02
_LOOK_SHARE: Final = 20  # a look at ten thousand descriptors takes time: so many times that until the next

_CLOSE: Final = (b"connection", b"close")
_OPEN_FILES: Final = Path("/proc/self/fd")


class Farewell:
    """Of this process: `begun` is read on the way of every answer."""

    begun = False


def closing(message: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """ASGI's start of an answer, with the word that the connection ends (RFC 9112 9.6; left out in HTTP/2)."""
    if message["type"] != "http.response.start":
        return message
    return {**message, "headers": [*message.get("headers", ()), _CLOSE]}


def before_stopping(act: Callable[[], None], linger_s: float) -> None:
    """At SIGTERM call `act` (streams would never end by themselves), then take leave for up to `linger_s`, and only
    then let the server stop: it waits for the requests under way and closes what is idle.

    The server's own handling follows by way of SIGINT, which means the same to it (Granian registers one handler
    for both); a second SIGTERM ends the leave-taking. Outside a main thread there are no signals to hear, and
    nobody waits.
    """
    loop = asyncio.get_running_loop()
    leaving: list[asyncio.Task[None]] = []  # kept: the loop itself holds tasks weakly

    def heard() -> None:
        if leaving:
            signal.raise_signal(signal.SIGINT)
            return
        Farewell.begun = True
        act()
        leaving.append(loop.create_task(_leave(linger_s)))

    with suppress(ValueError, RuntimeError, NotImplementedError):
        loop.add_signal_handler(signal.SIGTERM, heard)


async def _leave(linger_s: float) -> None:
    ends = time.monotonic() + linger_s
    ports = stop_accepting()
    while ports and time.monotonic() < ends:
        began = time.monotonic()
        if not _anyone(ports):
            break
        await asyncio.sleep(max(_LOOK_S, (time.monotonic() - began) * _LOOK_SHARE))
    signal.raise_signal(signal.SIGINT)


def stop_accepting() -> set[int]:
    """Put a socket that nobody calls in the place of each listening one; returns their ports.

    The server would go on accepting until it closes idle connections in the same moment, and has no way to be told
    only the first. The listening socket itself is shared with other processes and stays as it is; connections that
    come are theirs. What the server was woken for it does not find, and waits on.
    """
    ports = set()
    with suppress(OSError):
        for fd, one in sockets():
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                ports.add(one.getsockname()[1])
                with socket.socket(socket.AF_UNIX) as nobody:
                    nobody.settimeout(0)
                    nobody.bind("")  # a name of the kernel's choice (unix(7))
                    nobody.listen(1)
                    os.dup2(nobody.fileno(), fd, inheritable=False)
    return ports


def sockets() -> Iterator[tuple[int, socket.socket]]:
    """The internet sockets of this process (Linux), each on a descriptor of ours that is closed behind it; with the
    server's own descriptor."""
    for entry in _OPEN_FILES.iterdir():
        with suppress(OSError):
            if not str(entry.readlink()).startswith("socket:"):
                continue
            fd = int(entry.name)
            with socket.socket(fileno=os.dup(fd)) as one:
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    yield fd, one


def _anyone(ports: set[int]) -> bool:
    """True while a connection to one of these ports is open."""
    with suppress(OSError):
        return any(one.getsockname()[1] in ports for _, one in sockets())
    return False
