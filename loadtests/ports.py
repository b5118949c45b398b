"""Reserve ports of loopback for servers that start later: drills, benches and tests give them to processes they start.

A port that the kernel chose is not safe between the moment when it was found free and the moment when its server
listens, nor between two starts of one server: any outgoing connection of the machine may take it meanwhile. So these
ports lie below the range from which the kernel chooses, and a lock on a block of them keeps away other processes that
reserve here.
"""

import random
import socket
from collections import deque
from pathlib import Path

_LOCAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DEFAULT_LOWEST_LOCAL = 32_768  # Linux; macOS and the BSDs choose from 49152 upwards
_LOWEST = 10_240  # below are the ports of well-known servers
_BLOCK = 64  # ports to a lock: a lock takes a file descriptor
_UNUSED: deque[int] = deque()  # ports of the blocks that this process has locked


class NoPort(OSError):  # noqa: N818 - named for what it says
    """No port is left to reserve."""


def reserve_ports(count: int) -> list[int]:
    """Return ports that are free on TCP and UDP and that this process alone reserves until it ends, all different.

    Raises NoPort.
    """
    found: list[int] = []
    while len(found) < count:
        if not _UNUSED:
            _UNUSED.extend(_new_block())
        port = _UNUSED.popleft()
        if _is_free(port):
            found.append(port)
    return found


def reserve_port() -> int:
    """Return one such port."""
    return reserve_ports(1)[0]


def _new_block() -> range:
    """Lock a block that no other process of this network namespace has locked; raises NoPort."""
    blocks = range(_LOWEST // _BLOCK, _lowest_local() // _BLOCK)
    for number in random.sample(blocks, len(blocks)):
        if _lock(number):
            return range(number * _BLOCK, (number + 1) * _BLOCK)
    raise NoPort(f"all ports from {_LOWEST} to {_lowest_local()} are reserved by other processes of this service")


def _lock(block: int) -> bool:
    """Hold a name in the abstract namespace of unix sockets, where the kernel has one (unix(7): Linux)."""
    if not _LOCAL_RANGE.exists():
        return True
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        held.bind(f"\0waybill-ports-{block}")
    except OSError:
        held.close()
        return False
    held.detach()  # open until this process ends
    return True


def _lowest_local() -> int:
    """Return the lowest port that the kernel chooses for outgoing connections, or its default where it says none or
    one that leaves no room below it."""
    try:
        lowest = int(_LOCAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_LOWEST_LOCAL
    return lowest if lowest > _LOWEST + 2_000 else _DEFAULT_LOWEST_LOCAL


def _is_free(port: int) -> bool:
    """Return whether a server could listen on this port now."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram,
    ):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a former one may be in TIME-WAIT
        try:
            stream.bind(("127.0.0.1", port))
            datagram.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
