"""The SMTP submission server of one process: its two ports, its sessions, and the services that they share."""

import socket

from engine.base.local_mode import sends_without_login
from engine.base.memory_pool import MemoryPool
from engine.base.settings import Settings
from engine.store.rate_limits import RateLimiter
from mta.smtp.server.certificates import ServerCertificate
from mta.smtp.server.listener import open_listener
from mta.smtp.server.seats import is_on_loopback
from mta.smtp.server.smtp_server import SmtpServer
from mta.submission import counters
from mta.submission.auth import SubmissionAuth
from mta.submission.session import SubmissionSession
from mta.submission.submit import Submitter


class SubmissionServer(SmtpServer):
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
        super().__init__(
            certificate=certificate,
            max_sessions=settings.relay_sessions,
            max_sessions_each=settings.relay_sessions_each,
            proxy_networks=settings.proxy_networks,
        )
        self.settings = settings
        self.auth = auth
        self.limits = limits
        self.submitter = submitter
        self._is_open = sends_without_login(settings)
        self.memory = MemoryPool.for_accounts(settings.max_inflight_bytes, largest=settings.max_message_bytes)

    def new_session(self, connection: socket.socket, address: str, _client: str, *, secured: bool) -> SubmissionSession:
        """Return a session for a connection; programs of this machine need no login if the port is open to them."""
        return SubmissionSession(
            self, address, secured=secured, needs_login=not (self._is_open and is_on_loopback(connection))
        )

    def count_connection(self, result: str) -> None:
        """Count a connection by its result: `opened`, `full`, `proxy` or `handshake`."""
        counters.SESSIONS.labels(result).inc()

    def count_open(self, change: int) -> None:
        """Count open sessions: 1 for a new one, -1 for one that ended."""
        counters.SESSIONS_OPEN.inc(change)

    def own_sockets(self) -> list[tuple[socket.socket, bool]]:
        """Open both ports. Raises OSError."""
        host = self.settings.submission_host
        ports = ((self.settings.submission_port, False), (self.settings.submission_tls_port, True))
        return [(open_listener(host, port), secured) for port, secured in ports]
