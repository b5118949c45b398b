"""Listening sockets of the service. The supervisor owns them, so restarting a process refuses no connection.

Sockets passed by systemd (socket activation; `LISTEN_FDNAMES` http, submission, submissions, smtp) are used as they
are; the others are bound here. Processes inherit them: during a restart, connections wait in the socket's queue until
the next process accepts them.
"""

import errno
import socket
from collections.abc import Iterable, Mapping
from typing import Final, Self

import msgspec

from engine.base.settings import Settings, variable
from engine.store import socket_activation
from engine.store.socket_activation import WrongSockets

QUEUE: Final = 4_096  # backlog: connections that wait for accept; the kernel limits it to net.core.somaxconn
HTTP: Final = "http"
SUBMISSION: Final = "submission"
SUBMISSIONS: Final = "submissions"
SMTP: Final = "smtp"
_ADDRESS_SETTINGS: Final = {  # name: the settings of host and port for a socket that systemd does not pass
    HTTP: ("api_host", "api_port"),
    SUBMISSION: ("submission_host", "submission_port"),
    SUBMISSIONS: ("submission_host", "submission_tls_port"),
    SMTP: ("mx_host", "mx_port"),
}
KNOWN: Final = tuple(_ADDRESS_SETTINGS)


class PortTaken(RuntimeError):  # noqa: N818 - named for what it says
    """A port can't be bound; the text names it and the setting to change."""


class ListeningSockets:
    """The listening sockets of one supervisor, by name; a context manager that closes them."""

    def __init__(self) -> None:
        self._sockets: dict[str, socket.socket] = {}
        self._given: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self) -> None:
        """Take the sockets that systemd passed to this process; raises WrongSockets for an unknown one."""
        for name, found in socket_activation.take().items():
            self._sockets[name] = found[0]
            self._given.add(name)
            if name not in _ADDRESS_SETTINGS:
                raise WrongSockets(
                    f"systemd passed a socket named {name or 'nothing'}. Set FileDescriptorName= to one of {_known()}."
                )
            if len(found) > 1:
                raise WrongSockets(
                    f"systemd passed {len(found)} sockets named {name}. Pass one; a socket on [::] serves IPv4 too."
                )

    def open(self, settings: Settings, names: Iterable[str]) -> None:
        """Bind a socket for each of `names` that systemd did not pass; raises PortTaken."""
        for name in names:
            if name not in self._sockets:
                host, port = (getattr(settings, field) for field in _ADDRESS_SETTINGS[name])
                self._sockets[name] = bind(host, port, variable(_ADDRESS_SETTINGS[name][1]))
            with_options(self._sockets[name])

    def fds(self, names: Iterable[str]) -> Mapping[str, int]:
        """Return the descriptors of these sockets by name, for `ops.host.launch`."""
        return {name: self._sockets[name].fileno() for name in names}

    def address(self, name: str) -> tuple[str, int]:
        """Return the address that a socket listens on; systemd's may differ from our settings."""
        host, port = self._sockets[name].getsockname()[:2]
        return str(host), int(port)

    def settled(self, settings: Settings) -> Settings:
        """Return the settings with the ports of the sockets that systemd passed."""
        ports = {_ADDRESS_SETTINGS[name][1]: self.address(name)[1] for name in self._given}
        return msgspec.structs.replace(settings, **ports)

    @property
    def given(self) -> frozenset[str]:
        """Names of the sockets that systemd passed."""
        return frozenset(self._given)

    def close(self) -> None:
        """Close the sockets; clients are refused once the processes have ended too. Idempotent."""
        for one in self._sockets.values():
            one.close()
        self._sockets.clear()


def address_settings(name: str) -> tuple[str, str]:
    """Return the names of the settings for host and port of this socket."""
    return _ADDRESS_SETTINGS[name]


def bind(host: str, port: int, name: str) -> socket.socket:
    """Return a listening socket; `name` is the variable of its port, for the error. Raises PortTaken.

    Without SO_REUSEPORT: it gives each process its own queue, and waiting connections would be lost with the process.
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
    """Make the socket non-blocking, and disable Nagle's algorithm for the connections that it accepts."""
    listener.settimeout(0)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def taken(host: str, port: int, name: str, error: OSError) -> PortTaken:
    """Return the exception for a port that could not be bound."""
    if error.errno == errno.EADDRINUSE:
        return PortTaken(
            f"Port {port} is in use by another program. Stop that program, set {name} to a free port, or move all ports"
            " with WAYBILL_PORT_BASE."
        )
    return PortTaken(f"Port {port} on {host} can't be opened ({error.strerror}). Change {name} or the address.")


def _known() -> str:
    return ", ".join(KNOWN)
