"""Take over listening sockets from the supervisor, and report to it when this process is ready.

Any supervisor passes sockets as systemd does (sd_listen_fds(3)): descriptors from 3 on, `LISTEN_FDS` their number,
`LISTEN_FDNAMES` their names, `LISTEN_PID` the receiving process.
"""

import os
import socket
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Final

FIRST: Final = 3  # SD_LISTEN_FDS_START
READY_FD: Final = "READY_FD"
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class WrongSockets(RuntimeError):  # noqa: N818 - named for what they are
    """The supervisor passed sockets that can't be used; the text says why."""


def take(environ: MutableMapping[str, str] = os.environ) -> dict[str, list[socket.socket]]:
    """Return the listening sockets for this process by name; {} if there are none.

    Removes the variables from `environ`, so that child processes do not use them. Raises WrongSockets.
    """
    found: dict[str, list[socket.socket]] = {}
    for fd, name in described(environ):
        found.setdefault(name, []).append(_listener(fd, name))
    for variable in _VARIABLES:
        environ.pop(variable, None)
    return found


def described(environ: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return descriptor and name of every socket that `environ` passes to this process. Raises WrongSockets."""
    pid, count = environ.get("LISTEN_PID", ""), environ.get("LISTEN_FDS", "")
    if pid != str(os.getpid()) or not count.isdigit() or not int(count):
        return []
    names = environ.get("LISTEN_FDNAMES", "").split(":") if environ.get("LISTEN_FDNAMES") else []
    if names and len(names) != int(count):
        raise WrongSockets(f"LISTEN_FDS is {count}, but LISTEN_FDNAMES has {len(names)} names.")
    return [(FIRST + place, names[place] if names else "") for place in range(int(count))]


def tell_ready(environ: Mapping[str, str] = os.environ) -> None:
    """Report to the supervisor that this process is ready. Does nothing without one; idempotent."""
    fd = environ.get(READY_FD, "")
    if fd.isdigit():
        with suppress(OSError):  # the supervisor may have ended
            os.write(int(fd), b"R")


def _listener(fd: int, name: str) -> socket.socket:
    try:
        os.set_inheritable(fd, False)  # noqa: FBT003 - positional there
        found = socket.socket(fileno=fd)
        listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) if found.type == socket.SOCK_STREAM else 0
    except OSError as error:
        raise WrongSockets(f"Descriptor {fd}, passed as {name or 'unnamed'}, is not a socket: {error}.") from error
    if found.family not in (socket.AF_INET, socket.AF_INET6) or not listens:
        raise WrongSockets(f"The socket passed as {name or 'unnamed'} does not listen for TCP connections.")
    return found
