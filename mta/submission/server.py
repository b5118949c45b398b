"""The SMTP submission server of one process: its two ports, its sessions, and the services that they share."""

import asyncio
import socket
import ssl
from collections.abc import Sequence

import structlog

from engine.base.memory_pool import MemoryPool
from engine.base.settings import Settings
from engine.store.rate_limits import RateLimiter
from mta.smtp.server.aiosmtpd_session import HANDSHAKE_S
from mta.smtp.server.certificates import ServerCertificate
from mta.smtp.server.listener import ConnectionListener, allow_descriptors, open_listener
from mta.smtp.server.seats import ConnectionSeats
from mta.submission import counters
from mta.submission.auth import SubmissionAuth
from mta.submission.session import SubmissionSession
from mta.submission.submit import Submitter

_log = structlog.get_logger("relay")


class SubmissionServer:
    """All SMTP submission sessions of one process, with the services that they share."""

    def __init__(
        self,
        settings: Settings,
        *,
        certificate: ServerCertificate,
        auth: SubmissionAuth,
        limits: RateLimiter,
        submitter: Submitter,
    ) -> None:
        self.settings = settings
        self.auth = auth
        self.limits = limits
        self.submitter = submitter
        self.memory = MemoryPool.for_accounts(settings.max_inflight_bytes, largest=settings.max_message_bytes)
        self._certificate = certificate
        seats = ConnectionSeats(settings.relay_sessions, settings.relay_sessions_each)
        self._listener = ConnectionListener(self, seats, settings.proxy_networks)
        self._clients: dict[SubmissionSession, str] = {}

    @property
    def tls_context(self) -> ssl.SSLContext:
        """Return the TLS context for new handshakes."""
        return self._certificate.context

    @property
    def sessions(self) -> int:
        """Return the number of open connections."""
        return len(self._listener.seats)

    def start(self, given: Sequence[tuple[socket.socket, bool]] = ()) -> None:
        """Accept from the sockets in `given`, each with True for TLS from the first octet; without any, open both
        ports. Several processes may share a port: the kernel divides new connections among them."""
        allow_descriptors(self.settings.relay_sessions)
        self._listener.listen(given or self._own_sockets())
        self._listener.spawn(self._certificate.watch())

    def session_ended(self, session: SubmissionSession) -> None:
        """Free the seat of a session; called once or more."""
        client = self._clients.pop(session, None)
        if client is not None:
            self._listener.free(client)

    async def drain(self, grace_s: float) -> None:
        """Accept no more connections, wait up to `grace_s` for messages in progress, then disconnect the rest."""
        self._listener.stop()
        for session in list(self._clients):
            session.drain()
        await self._listener.wait_empty(grace_s)
        running = []
        for session in list(self._clients):
            session.abort()
            if session.task is not None:
                running.append(session.task)
        await self._listener.cancel_tasks(running)

    async def open_session(self, connection: socket.socket, address: str, client: str, *, secured: bool) -> None:
        """Create the session of a connection; `secured`: TLS from the first octet."""
        session = SubmissionSession(self, address, secured=secured)
        self._clients[session] = client
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: session,
                connection,
                ssl=self.tls_context if secured else None,
                ssl_handshake_timeout=HANDSHAKE_S if secured else None,
            )
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

    def count_connection(self, result: str) -> None:
        """Count a connection by its result: `opened`, `full`, `proxy` or `handshake`."""
        counters.SESSIONS.labels(result).inc()

    def count_open(self, change: int) -> None:
        """Count open sessions: 1 for a new one, -1 for one that ended."""
        counters.SESSIONS_OPEN.inc(change)

    def _own_sockets(self) -> list[tuple[socket.socket, bool]]:
        host = self.settings.submission_host
        ports = ((self.settings.submission_port, False), (self.settings.submission_tls_port, True))
        return [(open_listener(host, port), secured) for port, secured in ports]
