"""What a supervisor hands to one of its processes: listening sockets by name, and a pipe to say that it is ready.

Sockets come as systemd hands them over (sd_listen_fds(3)), whoever the supervisor is: descriptors from 3 on,
`LISTEN_FDS` how many, `LISTEN_FDNAMES` their names, `LISTEN_PID` whom they are for.
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
    """The sockets that were handed over can't be used; the text says what would be right."""


def take(environ: MutableMapping[str, str] = os.environ) -> dict[str, list[socket.socket]]:
    """The listening sockets meant for this process, by name; {} when there are none.

    Takes the variables out of `environ`, so that no child believes them to be its own. Raises WrongSockets.
    """
    found: dict[str, list[socket.socket]] = {}
    for fd, name in described(environ):
        found.setdefault(name, []).append(_listener(fd, name))
    for variable in _VARIABLES:
        environ.pop(variable, None)
    return found


def described(environ: Mapping[str, str]) -> list[tuple[int, str]]:
    """Descriptor and name of every socket that `environ` promises this process; raises WrongSockets."""
    pid, count = environ.get("LISTEN_PID", ""), environ.get("LISTEN_FDS", "")
    if pid != str(os.getpid()) or not count.isdigit() or not int(count):
        return []
    names = environ.get("LISTEN_FDNAMES", "").split(":") if environ.get("LISTEN_FDNAMES") else []
    if names and len(names) != int(count):
        raise WrongSockets(f"LISTEN_FDS tells of {count} sockets and LISTEN_FDNAMES names {len(names)}.")
    return [(FIRST + place, names[place] if names else "") for place in range(int(count))]


def tell_ready(environ: Mapping[str, str] = os.environ) -> None:
    """Say that this process serves; without a supervisor that listens, nothing happens. Repeating it does no harm."""
    fd = environ.get(READY_FD, "")
    if fd.isdigit():
        with suppress(OSError):  # the supervisor may have gone
            os.write(int(fd), b"R")


def _listener(fd: int, name: str) -> socket.socket:
    try:
        os.set_inheritable(fd, False)  # noqa: FBT003 - positional there
        found = socket.socket(fileno=fd)
        listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) if found.type == socket.SOCK_STREAM else 0
    except OSError as error:
        raise WrongSockets(f"Descriptor {fd}, handed over as {name or 'unnamed'}, is no socket: {error}.") from error
    if found.family not in (socket.AF_INET, socket.AF_INET6) or not listens:
        raise WrongSockets(f"The socket handed over as {name or 'unnamed'} does not listen for TCP connections.")
    return found
