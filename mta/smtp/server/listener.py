"""Accept connections within limits, learn the client's address from a load balancer, and drain.

The listener accepts connections one by one instead of through asyncio's server, so that a connection over the limit
costs no TLS handshake, and so that a PROXY header can be read before one.
"""

import asyncio
import errno
import resource
import socket
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Final, Protocol

import structlog

from mta.smtp.server.proxy_protocol import BadProxyHeader, ProxyHeader, parse_proxy_header
from mta.smtp.server.seats import ConnectionSeats, IpAddress, client_key, peer_address

BACKLOG: Final = 1_024
MAX_AT_ONCE: Final = 16  # connections accepted in one turn of the loop
HEADER_S: Final = 5.0  # for the whole PROXY header
CANCEL_S: Final = 2.0  # for tasks that were cancelled
PAUSE_S: Final = 0.1  # when the system has no more descriptors
_PEEKED: Final = 16 + 4_096
_BUSY: Final = b"421 4.3.2 Too many connections; try again shortly\r\n"
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_log = structlog.get_logger("smtp")


class ConnectionHandler(Protocol):
    """The server behind a listener."""

    async def open_session(self, connection: socket.socket, address: str, client: str, *, secured: bool) -> None:
        """Run a session over `connection`; frees the seat of `client` when the session ends or fails to start."""

    def count_connection(self, result: str) -> None:
        """Count a connection that was not served: `full` or `proxy` (no valid PROXY header)."""

    def count_open(self, change: int) -> None:
        """Count open connections: 1 for one that took a seat, -1 for one that freed it."""


class ConnectionListener:
    """The listening sockets of one server and the connections that they accept.

    Clients in `proxy_networks` are load balancers: they must begin with a PROXY header.
    """

    def __init__(
        self, handler: ConnectionHandler, seats: ConnectionSeats, proxy_networks: Sequence[IPv4Network | IPv6Network]
    ) -> None:
        self.seats = seats
        self.draining = False
        self._handler = handler
        self._proxy_networks = proxy_networks
        self._sockets: dict[socket.socket, bool] = {}  # and whether TLS begins with the first octet
        self._tasks: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()

    def listen(self, listening: Sequence[tuple[socket.socket, bool]]) -> None:
        """Accept from these sockets, each with True for TLS from the first octet."""
        for listener, secured in listening:
            listener.settimeout(0)
            self._sockets[listener] = secured
            self._watch(listener)

    def free(self, client: str) -> None:
        """Give back the seat of `client`."""
        self.seats.free(client)
        self._handler.count_open(-1)
        if not self.seats:
            self._empty.set()

    def stop(self) -> None:
        """Close the listening sockets; connections that are being introduced are turned away."""
        self.draining = True
        loop = asyncio.get_running_loop()
        for listener in self._sockets:
            loop.remove_reader(listener)
            listener.close()
        self._sockets.clear()

    async def wait_empty(self, timeout_s: float) -> None:
        """Wait until no connection is open, for at most `timeout_s` seconds."""
        if not self.seats:
            return
        self._empty.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()

    async def cancel_tasks(self, others: Sequence["asyncio.Task[None]"]) -> None:
        """Cancel all tasks of the listener, and `others`, and wait a moment for their end."""
        ending = {*self._tasks, *others}
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending, timeout=CANCEL_S)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in a task that `cancel_tasks` cancels."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish_task)

    def _watch(self, listener: socket.socket) -> None:
        if listener in self._sockets:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Accept waiting connections. There is no await between accept and seat, so that a drain loses none."""
        loop = asyncio.get_running_loop()
        for _ in range(MAX_AT_ONCE):
            try:
                connection, peer = listener.accept()
            except (BlockingIOError, InterruptedError):  # another process was faster
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    _log.error("can't accept connections", error=str(error))
                    loop.remove_reader(listener)
                    loop.call_later(PAUSE_S, self._watch, listener)
                return
            connection.settimeout(0)
            address, secured = peer_address(peer[0]), self._sockets[listener]
            if any(address in network for network in self._proxy_networks):
                self.spawn(self._introduce(connection, address, secured=secured))
            else:
                self._seat(connection, address, secured=secured)

    async def _introduce(self, connection: socket.socket, peer: IpAddress, *, secured: bool) -> None:
        """Read the client's address from the load balancer's PROXY header, then seat the client."""
        try:
            async with asyncio.timeout(HEADER_S):
                header = await _read_proxy_header(connection)
        except (OSError, TimeoutError, BadProxyHeader) as error:
            self._handler.count_connection("proxy")
            _log.warning("no valid PROXY header", peer=str(peer), error=str(error) or "time-out")
            connection.close()
            return
        self._seat(connection, peer if header.client is None else header.client, secured=secured)

    def _seat(self, connection: socket.socket, address: IpAddress, *, secured: bool) -> None:
        """Open a session, or turn the client away when a limit is reached."""
        client = client_key(address)
        if self.draining or not self.seats.take(client):
            self._handler.count_connection("full")
            if not secured:  # a client that waits for a handshake can't read a reply
                with suppress(OSError):
                    connection.send(_BUSY)
            connection.close()
            return
        self._handler.count_open(1)
        self.spawn(self._handler.open_session(connection, str(address), client, secured=secured))

    def _finish_task(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("connection task failed", error=repr(error))


def open_listener(host: str, port: int) -> socket.socket:
    """Return a listening socket; several processes may share the port. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.settimeout(0)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def allow_descriptors(sessions: int) -> None:
    """Raise the soft limit of open files, as far as allowed, so that each session can have a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = sessions + 256
    if soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


async def _read_proxy_header(connection: socket.socket) -> ProxyHeader:
    """Read the PROXY header and not an octet more: what follows may be a TLS handshake."""
    loop = asyncio.get_running_loop()
    seen = -1
    while True:
        await _readable(loop, connection)
        octets = connection.recv(_PEEKED, socket.MSG_PEEK)
        if not octets:
            raise BadProxyHeader("the connection was closed")
        header = parse_proxy_header(octets)
        if header is not None:
            connection.recv(header.length)
            return header
        if len(octets) == seen:  # the kernel calls peeked octets readable: don't spin on them
            await asyncio.sleep(0.01)
        seen = len(octets)


async def _readable(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    ready = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(connection, tell)
    try:
        await ready
    finally:
        loop.remove_reader(connection)
