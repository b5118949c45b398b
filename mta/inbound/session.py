"""An incoming SMTP session: STARTTLS, recipients, messages. There is no AUTH: this server relays for nobody.

The methods `smtp_VERB` carry the names by which aiosmtpd finds commands.
"""
# ruff: noqa: N802 - smtp_MAIL and its like are aiosmtpd's names

from typing import Final, Protocol

import structlog

from engine.base.memory_pool import MemoryPool
from engine.base.settings import Settings
from engine.receiving.receive_reports import MAILBOXES, report_addresses
from engine.receiving.types import InboundRecipient, ReceivedEnvelope, RecipientRefusal
from engine.store import metrics
from engine.store.database_errors import DatabaseError
from mta.inbound import counters, replies
from mta.inbound.limits import UnknownRecipientLimit, UnsolicitedMailLimit
from mta.inbound.receive import MAX_HANDLING_S, IncomingMessages
from mta.inbound.replies import MessageResult
from mta.smtp.server import commands
from mta.smtp.server.commands import BadCommand
from mta.smtp.server.esmtp_session import EsmtpSession, SessionServer
from mta.smtp.server.reader import ContentDropped, ReceivedContent

MAX_RCPT: Final = 1_000  # RCPT commands in one transaction, refused ones among them
REPLY_MARGIN_S: Final = 30.0  # between the longest handling of a message and the end of its session

_log = structlog.get_logger("mx")


class RecipientFinder(Protocol):
    """The part of `engine.receiving.recipients.RecipientLookup` that is used here."""

    async def find(self, address: str) -> InboundRecipient | RecipientRefusal:
        """Return what the address of a RCPT command is."""


class InboundSessionServer(SessionServer, Protocol):
    """The parts of `InboundServer` that a session uses."""

    settings: Settings
    recipients: RecipientFinder
    messages: IncomingMessages
    unknown: UnknownRecipientLimit
    unsolicited: UnsolicitedMailLimit
    memory: MemoryPool


class InboundSession(EsmtpSession):
    """The session of one connection; `client` is its key for limits by network."""

    __slots__ = ("_client", "_rcpts", "_recipients", "_sender", "_server", "_smtputf8", "_unknown")

    def __init__(self, server: InboundSessionServer, address: str, client: str, *, secured: bool) -> None:
        settings = server.settings
        self._server = server
        self._client = client
        self._unknown = 0
        super().__init__(
            server,
            hostname=settings.mail_host,
            max_message_bytes=settings.inbound_max_bytes,
            address=address,
            secured=secured,
            session_s=settings.mx_session_s,
            idle_s=settings.mx_idle_s,
        )

    @property
    def in_transaction(self) -> bool:
        """Return True from MAIL until the message has its reply."""
        return self._sender is not None

    @property
    def may_end_early(self) -> bool:
        """Return True: senders of mail connect again."""
        return True

    def refusal_before(self, verb: str) -> str | None:
        """Refuse AUTH; everything else is allowed at any point, and its order is checked by the command itself."""
        return "502 5.5.1 This server takes mail for its own domains only, without AUTH" if verb == "AUTH" else None

    def forget_transaction(self) -> None:
        """Discard the message in progress."""
        self._sender: str | None = None  # as MAIL gave it
        self._smtputf8 = False
        self._recipients: dict[str, InboundRecipient] = {}  # by address as in RCPT
        self._rcpts = 0

    async def smtp_MAIL(self, argument: str) -> None:
        """Begin a message. The sender is not checked: SPF and DMARC judge it."""
        if not self.helo:
            raise BadCommand("503 5.5.1 Say EHLO first")
        if self._sender is not None:
            raise BadCommand("503 5.5.1 A message is under way; say RSET to begin another")
        asked = commands.parse_mail(
            argument, extended=self.extended, max_octets=self._server.settings.inbound_max_bytes
        )
        self._sender = asked.sender
        self._smtputf8 = asked.smtputf8
        self.say("250 2.1.0 ok")

    async def smtp_RCPT(self, argument: str) -> None:
        """Add a recipient; the same one twice counts once."""
        if self._sender is None:
            raise BadCommand("503 5.5.1 Say MAIL first")
        self._rcpts += 1
        if self._rcpts > MAX_RCPT:
            self._leave("421 4.7.0 Too many recipients")
            return
        address = commands.parse_rcpt(argument, smtputf8=self._smtputf8, extended=self.extended)
        if address in self._recipients:
            self.say("250 2.1.5 ok")
            return
        if len(self._recipients) == replies.MAX_RECIPIENTS:
            self.say(replies.TOO_MANY_RECIPIENTS)
            return
        try:
            found = await self._server.recipients.find(address)
        except (DatabaseError, OSError) as error:
            _log.warning("recipient not looked up: database unavailable", error=repr(error))
            self.say(replies.TEMPORARY)
            return
        if isinstance(found, RecipientRefusal):
            await self._refuse(found)
            return
        if (later := self._reason_to_wait(found)) is not None:
            self.say(later)
            return
        metrics.TALLY.add(counters.RECIPIENTS, found.purpose.value)
        self._recipients[address] = found
        self.say("250 2.1.5 ok")

    def _reason_to_wait(self, found: InboundRecipient) -> str | None:
        """Return the reply to a recipient that this message can't have now, None for one that it can."""
        if found.purpose in MAILBOXES:
            return replies.TEMPORARY if self._server.messages.mailboxes_must_wait else None
        reports = len(report_addresses(list(self._recipients.values())))
        return replies.TOO_MANY_REPORTS if reports == replies.MAX_REPORT_ADDRESSES else None

    async def _refuse(self, refusal: RecipientRefusal) -> None:
        """Answer a recipient that is refused; a client that tries out addresses must leave."""
        metrics.TALLY.add(counters.RECIPIENTS, refusal.value)
        if refusal is RecipientRefusal.UNKNOWN:
            self._unknown += 1
            if await self._server.unknown.is_exceeded(self._client, self._unknown):
                _log.warning("too many unknown recipients", peer=self.address, in_session=self._unknown)
                self._leave(replies.TOO_MANY_UNKNOWN)
                return
        if refusal is RecipientRefusal.NOT_OURS:
            self.fault(replies.BY_REFUSAL[refusal])
        else:
            self.say(replies.BY_REFUSAL[refusal])

    async def smtp_DATA(self, argument: str) -> None:
        """Read the message, and answer after its commit."""
        if self._sender is None:
            raise BadCommand("503 5.5.1 Say MAIL first")
        if not self._recipients:
            raise BadCommand("554 5.5.1 There is no valid recipient")
        if argument:
            raise BadCommand("501 5.5.4 DATA takes nothing")
        settings = self._server.settings
        reservation = self._server.memory.open(self._client)
        try:
            content = await self.read_content(reservation, min_bytes_per_s=settings.body_min_bytes_per_s)
            self.allow_handling(MAX_HANDLING_S + REPLY_MARGIN_S)
            result = await self._received(content)
            self.say(replies.reply(result, max_bytes=settings.inbound_max_bytes))
        finally:
            reservation.release()
            self.forget_transaction()
        self.allow()

    async def _received(self, content: ReceivedContent) -> MessageResult:
        dropped = {ContentDropped.SIZE: MessageResult.TOO_LARGE, ContentDropped.MEMORY: MessageResult.NO_MEMORY}
        if content.dropped is not None:
            return _counted(dropped[content.dropped])
        assert self._sender is not None
        envelope = ReceivedEnvelope(
            sender=self._sender,
            recipients=tuple(self._recipients.values()),
            remote_ip=self.address,
            helo=self.helo,
            tls=self.tls_version,
        )
        size = len(content.octets)
        refused = await self._server.unsolicited.refusal(self._client, envelope.recipients, size)
        if refused is not None:
            return _counted(refused)
        result = await self._server.messages.receive(envelope, content.octets)
        if result is MessageResult.STORED:
            self.errors = self.idle_commands = 0
        return result

    async def smtp_HELP(self, _: str) -> None:
        """Explain what this server is for."""
        self.say("214 2.0.0 This server takes mail for its own domains")

    def _leave(self, reply: str) -> None:
        self.say(reply)
        self.closing = True


def _counted(result: MessageResult) -> MessageResult:
    """Count a message that was refused before it was examined."""
    metrics.TALLY.add(counters.MESSAGES, result.value)
    return result
