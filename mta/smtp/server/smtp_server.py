"""Run the sessions of one SMTP server: its sockets, its certificate, its limits and its drain."""

import asyncio
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network

import structlog

from mta.smtp.server.aiosmtpd_session import DRAIN_HANDSHAKE_S, HANDSHAKE_S
from mta.smtp.server.certificates import ServerCertificate
from mta.smtp.server.esmtp_session import EsmtpSession
from mta.smtp.server.listener import ConnectionListener, allow_descriptors
from mta.smtp.server.seats import ConnectionSeats

_log = structlog.get_logger("smtp")


class SmtpServer(ABC):
    """All SMTP sessions of one process; a subclass creates and counts them."""

    def __init__(
        self,
        *,
        certificate: ServerCertificate,
        max_sessions: int,
        max_sessions_each: int,
        proxy_networks: Sequence[IPv4Network | IPv6Network],
    ) -> None:
        self._certificate = certificate
        self._max_sessions = max_sessions
        seats = ConnectionSeats(max_sessions, max_sessions_each)
        self._listener = ConnectionListener(self, seats, proxy_networks)
        self._clients: dict[EsmtpSession, str] = {}
        self._handshakes: set[asyncio.Task[None]] = set()  # that open a session with TLS from the first octet

    @abstractmethod
    def new_session(self, connection: socket.socket, address: str, client: str, *, secured: bool) -> EsmtpSession:
        """Return a session for a connection; `address` is its client's, `client` the key for limits (`client_key`)."""

    @abstractmethod
    def own_sockets(self) -> list[tuple[socket.socket, bool]]:
        """Open the ports that the settings name; True for TLS from the first octet. Raises OSError."""

    @abstractmethod
    def count_connection(self, result: str) -> None:
        """Count a connection by its result: `opened`, `full`, `proxy` or `handshake`."""

    @abstractmethod
    def count_open(self, change: int) -> None:
        """Count open sessions: 1 for a new one, -1 for one that ended."""

    @property
    def tls_context(self) -> ssl.SSLContext:
        """Return the TLS context for new handshakes."""
        return self._certificate.context

    @property
    def sessions(self) -> int:
        """Return the number of open connections."""
        return len(self._listener.seats)

    def start(self, given: Sequence[tuple[socket.socket, bool]] = ()) -> None:
        """Accept from the sockets in `given`, each with True for TLS from the first octet; without any, open the ports.
        Several processes may share a port: the kernel divides new connections among them."""
        allow_descriptors(self._max_sessions)
        self._listener.listen(given or self.own_sockets())
        self._listener.spawn(self._certificate.watch())

    def session_ended(self, session: EsmtpSession) -> None:
        """Free the seat of a session; called once or more."""
        client = self._clients.pop(session, None)
        if client is not None:
            self._listener.free(client)

    async def drain(self, grace_s: float) -> None:
        """Accept no more connections, wait up to `grace_s` for messages in progress, then disconnect the rest."""
        self._listener.stop()
        for session in list(self._clients):
            session.drain()
        for handshake in self._handshakes:
            asyncio.get_running_loop().call_later(DRAIN_HANDSHAKE_S, handshake.cancel)
        await self._listener.wait_empty(grace_s)
        running = []
        for session in list(self._clients):
            session.abort()
            if session.task is not None:
                running.append(session.task)
        await self._listener.cancel_tasks(running)

    async def open_session(self, connection: socket.socket, address: str, client: str, *, secured: bool) -> None:
        """Create the session of a connection; `secured`: TLS from the first octet."""
        session = self.new_session(connection, address, client, secured=secured)
        self._clients[session] = client
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await self._connect(session, connection, secured=secured)
        except OSError as error:  # ssl.SSLError is one
            self.count_connection("handshake")
            _log.info("TLS handshake failed", peer=address, error=str(error)[:200])
            self.session_ended(session)
            return
        except BaseException:
            self.session_ended(session)
            raise
        self.count_connection("opened")
        if self._listener.draining:  # the drain began while this session opened
            session.drain()

    async def _connect(self, session: EsmtpSession, connection: socket.socket, *, secured: bool) -> None:
        """Hand the connection to its session, after the TLS handshake if `secured`. Raises OSError."""
        loop = asyncio.get_running_loop()
        if not secured:
            await loop.connect_accepted_socket(lambda: session, connection)
            return
        task = asyncio.current_task()
        assert task is not None
        self._handshakes.add(task)
        try:
            await loop.connect_accepted_socket(
                lambda: session, connection, ssl=self.tls_context, ssl_handshake_timeout=HANDSHAKE_S
            )
        finally:
            self._handshakes.discard(task)
