"""The commands of an SMTP session with the relay: STARTTLS, AUTH, and messages.

Method names are those by which aiosmtpd finds commands.
"""
# ruff: noqa: N802 - smtp_MAIL and its like are aiosmtpd's names

import binascii
from base64 import b64decode, b64encode
from typing import Any, Final

import structlog
from aiosmtpd.smtp import MISSING, AuthResult, LoginPassword
from engine.store.database_errors import DatabaseUnavailable

from engine.areas.api_keys.keyring import Caller
from engine.areas.emails.types import MAX_RECIPIENTS
from engine.base.errors import ErrorType, Refusal, unavailable
from engine.base.plans import CAPS, Plan
from engine.base.transfer_rate import TransferRate
from engine.mail.address import BadAddress, canonical, parse_mailbox
from engine.store import rate_limits
from mta.smtp.server import commands
from mta.smtp.server.commands import BadCommand
from mta.smtp.server.reader import ClientGone, ContentDropped, ReceivedContent
from mta.submission import metrics, replies
from mta.submission.auth import LoginRefused
from mta.submission.session import SubmissionSession
from mta.submission.submit import SubmittedEnvelope

MAX_RCPT: Final = 1_000  # RCPT commands in one transaction, those answered 452 among them
HANDSHAKE_S: Final = 30.0

_log = structlog.get_logger("relay")


class SubmissionSession(SubmissionSession):
    """One client's session."""

    async def smtp_EHLO(self, hostname: str) -> None:
        """Greeting with extensions (RFC 5321 4.1.1.1)."""
        commands.parse_host(hostname)
        self._greeted = True
        self._extended = True
        self._forget_transaction()
        lines = [
            self.hostname, "PIPELINING", f"SIZE {self._desk.settings.max_message_bytes}", "8BITMIME", "SMTPUTF8",
            "ENHANCEDSTATUSCODES",
        ]  # fmt: skip
        # RFC 4954 4, RFC 3207 4.2: passwords only over TLS, and TLS once.
        lines.append("AUTH PLAIN LOGIN" if self._secured else "STARTTLS")
        for line in lines[:-1]:
            self._say(f"250-{line}")
        self._say(f"250 {lines[-1]}")

    async def smtp_HELO(self, hostname: str) -> None:
        """Greeting without extensions."""
        commands.parse_host(hostname)
        self._greeted = True
        self._extended = False
        self._forget_transaction()
        self._say(f"250 {self.hostname}")

    async def smtp_STARTTLS(self, argument: str) -> None:
        """TLS from here on; what was said before counts no more (RFC 3207 4.2)."""
        if self._secured:
            raise BadCommand("503 5.5.1 TLS is on already")
        if argument:
            raise BadCommand("501 5.5.4 STARTTLS takes nothing")
        wire = self._wire
        if wire is None:
            raise ClientGone
        wire.pause_reading()  # until the handshake reads: nothing in clear can slip in between
        self._say("220 2.0.0 Go ahead")
        await self._flush()
        self._reset_timeout(HANDSHAKE_S)
        try:
            secured = await self.loop.start_tls(
                wire, self, self._desk.context, server_side=True, ssl_handshake_timeout=HANDSHAKE_S
            )
        except OSError as error:  # ssl.SSLError is one
            metrics.SESSIONS.labels("handshake").inc()
            _log.info("handshake failed", peer=self._address, error=str(error)[:200])
            self._closing = True
            wire.abort()
            self._desk.left(self)  # the handshake took our place as the one who hears of the end
            return
        if secured is None:  # the client left in the middle of it
            raise ClientGone
        self.transport = secured
        self._writer._transport = secured  # type: ignore[attr-defined]  # noqa: SLF001 - as aiosmtpd does itself
        self._over_ssl = True  # of asyncio.StreamReaderProtocol: eof closes
        self._secured = True
        self._greeted = self._extended = False
        self._forget_transaction()

    async def smtp_AUTH(self, argument: str) -> None:
        """PLAIN and LOGIN, over TLS only; the user name says nothing, the password is an API key."""
        if not self._secured:
            raise BadCommand("538 5.7.11 Say STARTTLS first; a password sent in clear should be revoked")
        if self._login is not None:
            raise BadCommand("503 5.5.1 You are logged in already")
        if not self._extended:
            raise BadCommand("503 5.5.1 Say EHLO first")
        words = argument.split()
        method = self._auth_methods.get(words[0].upper()) if words else None
        if method is None or len(words) > 2:
            raise BadCommand("504 5.5.4 Use AUTH PLAIN or AUTH LOGIN")
        if words[1:] == ["="]:  # RFC 4954 4: an initial response of no octets
            words[1] = ""
        result: AuthResult = await method.method(self, words)
        if isinstance(result.auth_data, LoginPassword):
            await self._log_in(result.auth_data)
        else:  # the mechanism has said why: ended, or no base64
            self._count_fault()

    async def _log_in(self, presented: LoginPassword) -> None:
        try:
            self._login = await self._desk.logins.login(presented.password, self._address)
        except LoginRefused as failed:
            if failed.too_often:
                self._say("421 4.7.0 [rate_limited] Too many failed logins; try again later")
                self._closing = True
            else:
                self._fault(
                    "535 5.7.8 [unauthorized] The password must be a valid API key with the scope emails:send; any "
                    "user name will do"
                )
            return
        except (DatabaseUnavailable, OSError) as error:
            _log.warning("login unavailable", error=repr(error))
            self._say("454 4.7.0 [unavailable] Logins can't be checked just now; try again shortly")
            return
        self._may_last(self._desk.settings.relay_session_s)
        self._reset_timeout()
        self._errors = self._idling = 0
        self._say("235 2.7.0 Welcome")

    async def challenge_auth(self, challenge: str | bytes, *_: Any, **__: Any) -> Any:
        """One question and answer of an AUTH mechanism (RFC 4954 4); MISSING when there is no usable answer."""
        octets = challenge.encode() if isinstance(challenge, str) else challenge
        await self.push(b"334 " + b64encode(octets))
        line = await self._inbox.line(_longest_answer)
        self._reset_timeout()
        if line.flaw is not None or line.octets == b"*":
            await self.push("501 5.7.0 AUTH was ended")
            return MISSING
        try:
            return b64decode(line.octets, validate=True)
        except binascii.Error:
            await self.push("501 5.5.2 That is not base64")
            return MISSING

    async def smtp_MAIL(self, argument: str) -> None:
        """Begin a message. The sender is checked for its form alone: bounces come to us, and From decides who may
        send."""
        if not self._greeted:
            raise BadCommand("503 5.5.1 Say EHLO first")
        if self._sender is not None:
            raise BadCommand("503 5.5.1 A message is under way; say RSET to begin another")
        asked = commands.parse_mail(argument, extended=self._extended, most=self._desk.settings.max_message_bytes)
        refusal = await self._unfit()
        if refusal is not None:
            self._say(replies.refusal_reply(refusal))
            return
        self._sender = asked.sender
        self._smtputf8 = asked.smtputf8
        self._say("250 2.1.0 ok")

    async def _unfit(self) -> Refusal | None:
        """Why this session may send no message now: its key has ended, or its rate is exceeded."""
        try:
            caller = await self._caller()
            rate = self._desk.settings.request_rate or CAPS[Plan(caller.plan)].requests_per_second
            standing = await self._desk.limits.check(f"key:{caller.key_id}", rate)
        except Refusal as refusal:
            self._closing = True  # nothing that this client could say will be answered otherwise
            return refusal
        except (DatabaseUnavailable, OSError):
            return unavailable()
        return None if standing.allowed else rate_limits.refusal(standing)

    async def _caller(self) -> Caller:
        assert self._login is not None
        return await self._desk.logins.again(self._login)

    async def smtp_RCPT(self, argument: str) -> None:
        """Another recipient; the same one twice counts once."""
        if self._sender is None:
            raise BadCommand("503 5.5.1 Say MAIL first")
        self._rcpts += 1
        if self._rcpts > MAX_RCPT:
            self._say("421 4.7.0 Too many recipients")
            self._closing = True
            return
        address = commands.parse_rcpt(argument, smtputf8=self._smtputf8, extended=self._extended)
        try:
            mailbox = parse_mailbox(address)
            key = canonical(mailbox.address)
        except BadAddress as error:
            raise BadCommand(replies.reply_line("553 5.1.3", ErrorType.INVALID_ADDRESS, str(error))) from None
        if key not in self._recipients and len(self._recipients) == MAX_RECIPIENTS:
            # RFC 5321 4.5.3.1.10: the client sends to these now and to the others with another transaction.
            self._overflowed = True
            self._say(f"452 4.5.3 A message goes to at most {MAX_RECIPIENTS} recipients at once")
            return
        self._recipients.setdefault(key, mailbox)
        self._say("250 2.1.5 ok")

    async def smtp_DATA(self, argument: str) -> None:
        """The message itself, and what becomes of it."""
        if self._sender is None:
            raise BadCommand("503 5.5.1 Say MAIL first")
        if not self._recipients:
            raise BadCommand("554 5.5.1 There is no valid recipient")
        if argument:
            raise BadCommand("501 5.5.4 DATA takes nothing")
        self._say("354 End with a dot on a line of its own")
        settings = self._desk.settings
        pace = TransferRate(
            self.loop.time(), deadline_s=settings.relay_session_s, min_bytes_per_s=settings.body_min_bytes_per_s
        )
        assert self._login is not None
        caller = self._login.caller
        reservation = self._desk.memory.open(caller.account_id, caller.key_id)
        try:
            content = await self._inbox.content(
                settings.max_message_bytes, reservation, lambda size: self._patience(pace, size)
            )
            self._reset_timeout()
            self._say(await self._taken(content))
        finally:
            reservation.release()
            self._forget_transaction()

    def _patience(self, pace: TransferRate, size: int) -> None:
        """How long the next octets may take: no longer than ever, and the content has to grow at its pace."""
        allowed = min(self._desk.settings.relay_idle_s, pace.patience_s(size, self.loop.time()))
        self._reset_timeout(max(allowed, 0.001))

    async def _taken(self, content: ReceivedContent) -> str:
        if content.dropped is ContentDropped.SIZE:
            most = self._desk.settings.max_message_bytes
            return replies.reply_line("552 5.3.4", ErrorType.PAYLOAD_TOO_LARGE, f"The message may have {most} octets.")
        if content.dropped is ContentDropped.MEMORY:
            return replies.reply_line(
                "452 4.3.1", ErrorType.UNAVAILABLE, "The server is busy receiving large messages; try again shortly."
            )
        envelope = SubmittedEnvelope(tuple(self._recipients.values()), self._smtputf8, self._overflowed)
        try:
            caller = await self._caller()
        except Refusal as refusal:
            self._closing = True
            return replies.refusal_reply(refusal)
        except (DatabaseUnavailable, OSError):
            return replies.refusal_reply(unavailable())
        reply = await self._desk.intake.take(caller, envelope, content.octets)
        if reply.startswith("2"):
            self._errors = self._idling = 0
        return reply

    async def smtp_RSET(self, argument: str) -> None:
        """Forget the message under way."""
        if argument:
            raise BadCommand("501 5.5.4 RSET takes nothing")
        self._forget_transaction()
        self._say("250 2.0.0 ok")

    async def smtp_NOOP(self, _: str) -> None:
        """Nothing."""
        self._say("250 2.0.0 ok")

    async def smtp_VRFY(self, _: str) -> None:
        """Tells nothing of anybody (RFC 5321 7.3)."""
        self._say("252 2.5.0 Send a message and see")

    async def smtp_EXPN(self, _: str) -> None:
        """There are no lists here."""
        raise BadCommand("502 5.5.1 EXPN is not for this server")

    async def smtp_HELP(self, _: str) -> None:
        """Where to read on."""
        self._say("214 2.0.0 Log in with any user name and an API key as the password")

    async def smtp_QUIT(self, _: str) -> None:
        """Goodbye."""
        self._say("221 2.0.0 Bye")
        self._closing = True


def _longest_answer(_line: bytes) -> int:
    return commands.MAX_AUTH_LINE
