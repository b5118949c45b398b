"""The listening sockets of a service: they belong to the supervisor, so that a restart of a process refuses nobody.

Those that systemd hands over (socket activation; `LISTEN_FDNAMES` of http, submission, submissions, smtp) are taken
as they are; the others are bound here. Processes inherit them: while one is being replaced, connections wait in the
socket's queue and are taken by whoever accepts next.
"""

import errno
import socket
from collections.abc import Iterable, Mapping
from typing import Final, Self

import msgspec

from engine.base.settings import Settings, variable
from engine.store import socket_activation
from engine.store.socket_activation import WrongSockets

QUEUE: Final = 4_096  # connections that wait while nobody accepts; the kernel cuts it to net.core.somaxconn
HTTP: Final = "http"
SUBMISSION: Final = "submission"
SUBMISSIONS: Final = "submissions"
SMTP: Final = "smtp"
_PLACES: Final = {  # name: the settings that say where it listens when nobody hands it over
    HTTP: ("api_host", "api_port"),
    SUBMISSION: ("submission_host", "submission_port"),
    SUBMISSIONS: ("submission_host", "submission_tls_port"),
    SMTP: ("submission_host", "mx_port"),
}
KNOWN: Final = tuple(_PLACES)


class PortTaken(RuntimeError):  # noqa: N818 - named for what it says
    """A port can't be had; the text names it and the variable that moves it."""


class ListeningSockets:
    """The sockets of one supervisor, by name; a context manager that closes them."""

    def __init__(self) -> None:
        self._sockets: dict[str, socket.socket] = {}
        self._given: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self) -> None:
        """Those that systemd handed to this process; raises WrongSockets for one we have no use for."""
        for name, found in socket_activation.take().items():
            self._sockets[name] = found[0]
            self._given.add(name)
            if name not in _PLACES:
                raise WrongSockets(f"A socket named {name or 'nothing'} was handed over; known are {_known()}.")
            if len(found) > 1:
                raise WrongSockets(
                    f"{len(found)} sockets are named {name}; hand over one of each name. One on [::] serves IPv4 too."
                )

    def open(self, settings: Settings, names: Iterable[str]) -> None:
        """Have a socket for each of `names`: what was not handed over is bound. Raises PortTaken."""
        for name in names:
            if name not in self._sockets:
                host, port = (getattr(settings, field) for field in _PLACES[name])
                self._sockets[name] = bind(host, port, variable(_PLACES[name][1]))
            with_options(self._sockets[name])

    def fds(self, names: Iterable[str]) -> Mapping[str, int]:
        """Descriptors of these, for `ops.launch`."""
        return {name: self._sockets[name].fileno() for name in names}

    def address(self, name: str) -> tuple[str, int]:
        """Where this one really listens: who handed it over may have chosen another place than our settings."""
        host, port = self._sockets[name].getsockname()[:2]
        return str(host), int(port)

    def settled(self, settings: Settings) -> Settings:
        """The settings with the ports of those that were handed to us."""
        ports = {_PLACES[name][1]: self.address(name)[1] for name in self._given}
        return msgspec.structs.replace(settings, **ports)

    @property
    def given(self) -> frozenset[str]:
        """Names of those that were handed to us; their ports are not ours to check."""
        return frozenset(self._given)

    def close(self) -> None:
        """Let go of them: once the processes are gone too, callers are refused. Idempotent."""
        for one in self._sockets.values():
            one.close()
        self._sockets.clear()


def place(name: str) -> tuple[str, str]:
    """The settings of host and port of this socket."""
    return _PLACES[name]


def bind(host: str, port: int, name: str) -> socket.socket:
    """A socket that listens on `host`; `name` is the variable of its port. Raises PortTaken.

    Not SO_REUSEPORT: with a queue of its own for each process, the connections in it die with the process.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(QUEUE)
    except OSError as error:
        listener.close()
        raise taken(host, port, name, error) from error
    return listener


def with_options(listener: socket.socket) -> None:
    """What accepted connections shall inherit: no waiting for more octets to send (Nagle)."""
    listener.settimeout(0)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def taken(host: str, port: int, name: str, error: OSError) -> PortTaken:
    """The refusal for a port that could not be bound."""
    if error.errno == errno.EADDRINUSE:
        return PortTaken(f"Port {port} is in use by another program. Stop that one, or set {name} to a free port.")
    return PortTaken(f"Port {port} on {host} can't be opened ({error.strerror}); see {name}.")


def _known() -> str:
    return ", ".join(KNOWN)
