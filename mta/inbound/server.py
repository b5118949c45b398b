"""The server for incoming mail of one process: its port, its sessions, and the services that they share."""

import socket

from engine.base.memory_pool import MemoryPool
from engine.base.settings import Settings
from mta.inbound import counters
from mta.inbound.limits import UnknownRecipientLimit, UnsolicitedMailLimit
from mta.inbound.receive import IncomingMessages
from mta.inbound.session import InboundSession, RecipientFinder
from mta.smtp.server.certificates import ServerCertificate
from mta.smtp.server.listener import open_listener
from mta.smtp.server.smtp_server import SmtpServer


class InboundServer(SmtpServer):
    """All incoming SMTP sessions of one process, with the services that they share."""

    def __init__(
        self,
        settings: Settings,
        *,
        certificate: ServerCertificate,
        recipients: RecipientFinder,
        messages: IncomingMessages,
        unknown: UnknownRecipientLimit,
        unsolicited: UnsolicitedMailLimit,
    ) -> None:
        super().__init__(
            certificate=certificate,
            max_sessions=settings.mx_sessions,
            max_sessions_each=settings.mx_sessions_each,
            proxy_networks=settings.proxy_networks,
        )
        self.settings = settings
        self.recipients = recipients
        self.messages = messages
        self.unknown = unknown
        self.unsolicited = unsolicited
        self.memory = MemoryPool.for_accounts(settings.inbound_max_inflight_bytes, largest=settings.inbound_max_bytes)

    def new_session(self, _connection: socket.socket, address: str, client: str, *, secured: bool) -> InboundSession:
        """Return a session for a connection from `address`."""
        return InboundSession(self, address, client, secured=secured)

    def own_sockets(self) -> list[tuple[socket.socket, bool]]:
        """Open the port. Raises OSError."""
        return [(open_listener(self.settings.mx_host, self.settings.mx_port), False)]

    def count_connection(self, result: str) -> None:
        """Count a connection by its result: `opened`, `full`, `proxy` or `handshake`."""
        counters.SESSIONS.labels(result).inc()

    def count_open(self, change: int) -> None:
        """Count open sessions: 1 for a new one, -1 for one that ended."""
        counters.SESSIONS_OPEN.inc(change)
