"""The SMTP servers of a front: submission on two ports, and incoming mail on one."""

import socket
from typing import ClassVar

from engine.base.memory_pool import MemoryPool
from engine.base.settings import Settings
from mta.front import counters
from mta.front.inbound import FrontInboundSession
from mta.front.places import Places
from mta.front.session import FrontSession
from mta.front.submission import FrontSubmissionSession
from mta.smtp.server.certificates import ServerCertificate
from mta.smtp.server.listener import open_listener
from mta.smtp.server.smtp_server import SmtpServer


class FrontServer(SmtpServer):
    """Serve SMTP sessions, and hold what they share; a subclass says which door it is."""

    door: ClassVar[str]

    def __init__(
        self,
        settings: Settings,
        places: Places,
        certificate: ServerCertificate,
        memory: MemoryPool,
        *,
        max_sessions: int,
        max_sessions_each: int,
    ) -> None:
        super().__init__(
            certificate=certificate,
            max_sessions=max_sessions,
            max_sessions_each=max_sessions_each,
            proxy_networks=settings.proxy_networks,
        )
        self.settings = settings
        self.places = places
        self.memory = memory

    def count_connection(self, result: str) -> None:
        """Count a connection by its result: `opened`, `full`, `proxy` or `handshake`."""
        counters.SESSIONS.labels(self.door, result).inc()

    def count_open(self, change: int) -> None:
        """Count open sessions: 1 for a new one, -1 for one that ended."""
        counters.SESSIONS_OPEN.labels(self.door).inc(change)


class FrontSubmissionServer(FrontServer):
    """Sessions of programs that submit mail."""

    door = "submission"

    def __init__(self, settings: Settings, places: Places, certificate: ServerCertificate) -> None:
        memory = MemoryPool.for_accounts(settings.max_inflight_bytes, largest=settings.max_message_bytes)
        super().__init__(
            settings, places, certificate, memory, max_sessions=settings.relay_sessions,
            max_sessions_each=settings.relay_sessions_each,
        )  # fmt: skip

    def new_session(self, _connection: socket.socket, address: str, _client: str, *, secured: bool) -> FrontSession:
        """Return a session for a connection from `address`."""
        return FrontSubmissionSession(self, address, secured=secured)

    def own_sockets(self) -> list[tuple[socket.socket, bool]]:
        """Open both ports. Raises OSError."""
        host = self.settings.submission_host
        ports = ((self.settings.submission_port, False), (self.settings.submission_tls_port, True))
        return [(open_listener(host, port), secured) for port, secured in ports]


class FrontInboundServer(FrontServer):
    """Sessions of other mail servers."""

    door = "incoming"

    def __init__(self, settings: Settings, places: Places, certificate: ServerCertificate) -> None:
        memory = MemoryPool.for_accounts(settings.inbound_max_inflight_bytes, largest=settings.inbound_max_bytes)
        super().__init__(
            settings, places, certificate, memory, max_sessions=settings.mx_sessions,
            max_sessions_each=settings.mx_sessions_each,
        )  # fmt: skip

    def new_session(self, _connection: socket.socket, address: str, client: str, *, secured: bool) -> FrontSession:
        """Return a session for a connection from `address`."""
        return FrontInboundSession(self, address, client, secured=secured)

    def own_sockets(self) -> list[tuple[socket.socket, bool]]:
        """Open the port. Raises OSError."""
        return [(open_listener(self.settings.mx_host, self.settings.mx_port), False)]
