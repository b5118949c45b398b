"""The relay's doors: accepts connections within bounds, learns of clients behind a load balancer, drains.

Connections are accepted one by one instead of by asyncio's server, so that a full house costs no TLS handshake,
and so that a PROXY header can be read before one.
"""

import asyncio
import errno
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any, Final

import structlog

from engine.base.memory_pool import MemoryPool
from engine.base.settings import Settings
from engine.store.rate_limits import RateLimiter
from mta.smtp.server import proxy_protocol
from mta.smtp.server.certificates import ServerCertificate
from mta.submission import metrics
from mta.submission.auth import SubmissionAuth
from mta.submission.session import HANDSHAKE_S, SubmissionSession
from mta.submission.submit import Submitter

BACKLOG: Final = 1_024
MAX_AT_ONCE: Final = 16  # connections taken in one turn of the loop
HEADER_S: Final = 5.0  # for the whole PROXY header
END_S: Final = 2.0  # for tasks that were cancelled
PAUSE_S: Final = 0.1  # when the system has no more descriptors
_PEEKED: Final = 16 + 4_096
_BUSY: Final = b"421 4.3.2 Too many connections; try again shortly\r\n"
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Address = IPv4Address | IPv6Address

_log = structlog.get_logger("relay")


class SubmissionServer:
    """All sessions of one process; the desk at which they ask for what they share."""

    def __init__(
        self,
        settings: Settings,
        *,
        certificates: ServerCertificate,
        logins: SubmissionAuth,
        limits: RateLimiter,
        intake: Submitter,
    ) -> None:
        self.settings = settings
        self.logins = logins
        self.limits = limits
        self.intake = intake
        self.memory = MemoryPool.for_accounts(settings.max_inflight_bytes, largest=settings.max_message_bytes)
        self._certificates = certificates
        self._listeners: dict[socket.socket, bool] = {}  # and whether TLS begins with the first octet
        self._tasks: set[asyncio.Task[None]] = set()
        self._places: dict[SubmissionSession, str] = {}
        self._by_address: Counter[str] = Counter()
        self._empty = asyncio.Event()
        self._draining = False

    @property
    def context(self) -> ssl.SSLContext:
        """The TLS context for new handshakes."""
        return self._certificates.context

    @property
    def sessions(self) -> int:
        """Connections now open."""
        return self._by_address.total()

    def start(self, given: Sequence[tuple[socket.socket, bool]] = ()) -> None:
        """Accept from the sockets in `given`, each with True for TLS from the first octet; without any open both
        ports. Several processes may share a port: the kernel divides new connections among them."""
        _allow_descriptors(self.settings.relay_sessions)
        for listener, secured in given or self._own_listeners():
            listener.settimeout(0)
            self._listeners[listener] = secured
            self._listen(listener)
        self._spawn(self._certificates.watch())

    def left(self, session: SubmissionSession) -> None:
        """A session is over."""
        address = self._places.pop(session, None)
        if address is not None:
            self._leave(address)

    async def drain(self, grace_s: float) -> None:
        """Take nobody in any more, let messages under way end within `grace_s`, then cut off."""
        self._draining = True
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener)
            listener.close()
        self._listeners.clear()
        for session in list(self._places):
            session.drain()
        if self.sessions:
            self._empty.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._empty.wait()
        ending = set(self._tasks)
        for session in list(self._places):
            session.abort()
            if session.task is not None:
                ending.add(session.task)
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending, timeout=END_S)

    # -- accepting -----------------------------------------------------------------------------------

    def _own_listeners(self) -> list[tuple[socket.socket, bool]]:
        host = self.settings.submission_host
        ports = ((self.settings.submission_port, False), (self.settings.submission_tls_port, True))
        return [(_listening(host, port), secured) for port, secured in ports]

    def _listen(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Take who waits: no await lies between taking and seating, so that a drain can't lose anybody."""
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
                    loop.call_later(PAUSE_S, self._listen, listener)
                return
            connection.settimeout(0)
            address, secured = _address(peer[0]), self._listeners[listener]
            if any(address in network for network in self.settings.proxy_networks):
                self._spawn(self._introduce(connection, address, secured=secured))
            else:
                self._welcome(connection, address, secured=secured)

    async def _introduce(self, connection: socket.socket, peer: Address, *, secured: bool) -> None:
        """Have the load balancer say who is there."""
        try:
            async with asyncio.timeout(HEADER_S):
                header = await _header(connection)
        except (OSError, TimeoutError, proxy_protocol.BadProxyHeader) as error:
            metrics.SESSIONS.labels("proxy").inc()
            _log.warning("no PROXY header", peer=str(peer), error=str(error) or "time-out")
            connection.close()
            return
        self._welcome(connection, peer if header.client is None else header.client, secured=secured)

    def _welcome(self, connection: socket.socket, address: Address, *, secured: bool) -> None:
        """Seat a client, or turn it away when the house is full."""
        place = _place(address)
        full = self.sessions >= self.settings.relay_sessions
        if self._draining or full or self._by_address[place] >= self.settings.relay_sessions_each:
            metrics.SESSIONS.labels("full").inc()
            if not secured:  # a client that waits for a handshake can't be told
                with suppress(OSError):
                    connection.send(_BUSY)
            connection.close()
            return
        self._by_address[place] += 1
        metrics.SESSIONS_OPEN.inc()
        self._spawn(self._open(connection, str(address), place, secured=secured))

    async def _open(self, connection: socket.socket, address: str, place: str, *, secured: bool) -> None:
        """Make a session of a connection; TLS from the first octet where `secured`."""
        session = SubmissionSession(self, address, secured=secured)
        self._places[session] = place
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: session,
                connection,
                ssl=self.context if secured else None,
                ssl_handshake_timeout=HANDSHAKE_S if secured else None,
            )
        except OSError as error:  # ssl.SSLError is one
            metrics.SESSIONS.labels("handshake").inc()
            _log.info("handshake failed", peer=address, error=str(error)[:200])
            self.left(session)
            return
        except BaseException:
            self.left(session)
            raise
        metrics.SESSIONS.labels("opened").inc()
        if self._draining:  # it was on its way in when the others were told
            session.drain()

    def _leave(self, place: str) -> None:
        self._by_address[place] -= 1
        if not self._by_address[place]:
            del self._by_address[place]
        metrics.SESSIONS_OPEN.dec()
        if not self._by_address:
            self._empty.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("relay task failed", error=repr(error))


def _address(peer: str) -> Address:
    """A peer's address: IPv4 as itself where it came through an IPv6 socket."""
    found = ip_address(peer.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def _place(address: Address) -> str:
    """What counts as one client: an IPv4 address, or the /64 that one IPv6 customer has at least."""
    return str(IPv6Network((address, 64), strict=False)) if isinstance(address, IPv6Address) else str(address)


async def _header(connection: socket.socket) -> proxy_protocol.ProxyHeader:
    """Read the PROXY header and not an octet more: what follows may be a TLS handshake."""
    loop = asyncio.get_running_loop()
    seen = -1
    while True:
        await _readable(loop, connection)
        octets = connection.recv(_PEEKED, socket.MSG_PEEK)
        if not octets:
            raise proxy_protocol.BadProxyHeader("the connection was closed")
        header = proxy_protocol.parse_proxy_header(octets)
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


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket; raises OSError."""
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


def _allow_descriptors(sessions: int) -> None:
    """Each session takes a descriptor; raise the soft limit as far as it must go and may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = sessions + 256
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
