"""The commands that every SMTP server of this service answers alike: EHLO, STARTTLS, RSET, NOOP, QUIT and their like.

The methods `smtp_VERB` carry the names by which aiosmtpd finds commands.
"""
# ruff: noqa: N802 - smtp_EHLO and its like are aiosmtpd's names

import ssl
from abc import abstractmethod
from typing import Final, Protocol

from engine.base.memory_pool import Reservation
from engine.base.transfer_rate import TransferRate
from mta.smtp.server import commands
from mta.smtp.server.aiosmtpd_session import AiosmtpdSession
from mta.smtp.server.commands import BadCommand
from mta.smtp.server.reader import ReceivedContent

STARTTLS: Final = "STARTTLS"


class SessionServer(Protocol):
    """The parts of `SmtpServer` that a session uses."""

    @property
    def tls_context(self) -> ssl.SSLContext:
        """Return the TLS context for new handshakes."""

    def count_connection(self, result: str) -> None:
        """Count a connection by its result, such as `handshake` for one that failed."""

    def session_ended(self, session: "EsmtpSession") -> None:
        """Free the seat of a session."""


class EsmtpSession(AiosmtpdSession):
    """A session with the commands that carry no message; a subclass adds MAIL, RCPT and DATA.

    `helo` is the name that the client gave with EHLO or HELO, "" before; `extended`: it was EHLO.
    """

    __slots__ = ("_max_idle_s", "_max_message_bytes", "_smtp_server", "extended", "helo")

    def __init__(
        self,
        server: SessionServer,
        *,
        hostname: str,
        max_message_bytes: int,
        address: str,
        secured: bool,
        session_s: float,
        idle_s: float,
    ) -> None:
        self._smtp_server = server
        self._max_message_bytes = max_message_bytes
        self._max_idle_s = idle_s
        self.helo = ""
        self.extended = False
        self.forget_transaction()
        super().__init__(hostname=hostname, address=address, secured=secured, session_s=session_s, idle_s=idle_s)

    @abstractmethod
    def forget_transaction(self) -> None:
        """Discard the message in progress."""

    def extensions(self) -> list[str]:
        """Return the lines of the reply to EHLO after the host name; STARTTLS once (RFC 3207 4.2)."""
        offered = ["PIPELINING", f"SIZE {self._max_message_bytes}", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"]
        return offered if self.secured else [*offered, STARTTLS]

    def session_ended(self) -> None:
        """Free the session's seat."""
        self._smtp_server.session_ended(self)

    async def read_content(self, reservation: Reservation, *, min_bytes_per_s: float) -> ReceivedContent:
        """Ask for the message and read it up to the final dot, at `min_bytes_per_s` or faster. Raises ClientGone."""
        self.say("354 End with a dot on a line of its own")
        pace = TransferRate(self.loop.time(), deadline_s=self.session_s, min_bytes_per_s=min_bytes_per_s)

        def allow(size: int) -> None:
            allowed_s = min(self._max_idle_s, pace.timeout_s(size, self.loop.time()))
            self.allow(max(allowed_s, 0.001))

        content = await self.reader.content(self._max_message_bytes, reservation, allow)
        self.allow()
        return content

    async def smtp_EHLO(self, hostname: str) -> None:
        """Greet the client and list the extensions (RFC 5321 4.1.1.1)."""
        self.helo = commands.parse_host(hostname)
        self.extended = True
        self.forget_transaction()
        lines = [self.hostname, *self.extensions()]
        for line in lines[:-1]:
            self.say(f"250-{line}")
        self.say(f"250 {lines[-1]}")

    async def smtp_HELO(self, hostname: str) -> None:
        """Greet a client that uses no extensions."""
        self.helo = commands.parse_host(hostname)
        self.extended = False
        self.forget_transaction()
        self.say(f"250 {self.hostname}")

    async def smtp_STARTTLS(self, argument: str) -> None:
        """Negotiate TLS, then discard the earlier commands of the client (RFC 3207 4.2)."""
        if self.secured:
            raise BadCommand("503 5.5.1 TLS is on already")
        if argument:
            raise BadCommand("501 5.5.4 STARTTLS takes nothing")
        if not await self.upgrade_to_tls(self._smtp_server.tls_context):
            self._smtp_server.count_connection("handshake")
            return
        self.helo, self.extended = "", False
        self.forget_transaction()

    async def smtp_RSET(self, argument: str) -> None:
        """Forget the message in progress."""
        if argument:
            raise BadCommand("501 5.5.4 RSET takes nothing")
        self.forget_transaction()
        self.say("250 2.0.0 ok")

    async def smtp_NOOP(self, _: str) -> None:
        """Do nothing, as RFC 5321 4.1.1.9 defines NOOP."""
        self.say("250 2.0.0 ok")

    async def smtp_VRFY(self, _: str) -> None:
        """Answer without telling whether an address exists (RFC 5321 7.3)."""
        self.say("252 2.5.0 Send a message and see")

    async def smtp_EXPN(self, _: str) -> None:
        """Refuse EXPN: there are no mailing lists."""
        raise BadCommand("502 5.5.1 EXPN is not for this server")

    async def smtp_QUIT(self, _: str) -> None:
        """End the session."""
        self.say("221 2.0.0 Bye")
        self.closing = True
