"""Reserve loopback ports for servers that drills, benches and tests start.

The kernel may give a port that it chose for one socket to another before its server listens, or between two starts of
a server. These ports lie below the kernel's range for outgoing connections, and a lock on each block of ports keeps
other processes that use this module away.
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
    """Return `count` different ports, free on TCP and UDP, reserved for this process until it ends; raises NoPort."""
    found: list[int] = []
    while len(found) < count:
        if not _UNUSED:
            _UNUSED.extend(_new_block())
        port = _UNUSED.popleft()
        if _is_free(port):
            found.append(port)
    return found


def reserve_port() -> int:
    """Return one port as `reserve_ports` does."""
    return reserve_ports(1)[0]


def _new_block() -> range:
    """Lock a block that no other process of this network namespace has locked; raises NoPort."""
    blocks = range(_LOWEST // _BLOCK, _lowest_local() // _BLOCK)
    for number in random.sample(blocks, len(blocks)):
        if _lock(number):
            return range(number * _BLOCK, (number + 1) * _BLOCK)
    raise NoPort(f"all ports from {_LOWEST} to {_lowest_local()} are reserved by other processes of this service")


def _lock(block: int) -> bool:
    """Lock a block by binding a name in Linux's abstract unix socket namespace (unix(7)); True on other systems."""
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
    """Return the lowest port of the kernel's range for outgoing connections, or a default if that is unusable."""
    try:
        lowest = int(_LOCAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_LOWEST_LOCAL
    return lowest if lowest > _LOWEST + 2_000 else _DEFAULT_LOWEST_LOCAL


def _is_free(port: int) -> bool:
    """Return True if a server can listen on this port now."""
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
