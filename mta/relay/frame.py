"""The frame of an SMTP session: aiosmtpd's server with its reading, its loop and its bounds replaced.

aiosmtpd keeps the protocol, the table of commands and the AUTH mechanisms. Reading is ours (`inbox`), since
aiosmtpd takes a bare line feed for the end of a command and stores one within a message; so is the loop, which
answers pipelined commands in one write and holds every client to limits of number, size and time.
"""

import asyncio
import ssl
from typing import Final, Protocol, cast

import structlog
from aiosmtpd.smtp import SMTP, AuthResult

from engine.base.memory_pool import MemoryPool
from engine.base.settings import Settings
from engine.mail.address import Mailbox
from engine.store.rate_limits import RateLimiter
from mta.smtp.server import commands
from mta.smtp.server.commands import BadCommand
from mta.smtp.server.reader import ClientGone, LineFlaw, SmtpReader
from mta.submission.auth import SubmissionAuth, SubmissionLogin
from mta.submission.submit import Submitter

MAX_ERRORS: Final = 20  # commands answered 5yz in a row, as Postfix's smtpd_hard_error_limit
MAX_IDLING: Final = 100  # commands without a message among them, as Postfix's smtpd_junk_command_limit
MAX_UNSENT: Final = 64  # replies to pipelined commands that wait for each other
GREETING_PAUSE_S: Final = 0.005  # who speaks in it did not wait for the greeting
ENDING_S: Final = 5.0  # a client that does not read the last reply is cut off after it
SOFT_END: Final = 0.9  # of a session's time: from then on it ends between two messages

_IN_CLEAR: Final = frozenset({"EHLO", "HELO", "NOOP", "RSET", "STARTTLS", "AUTH", "HELP", "QUIT"})
_STRANGERS: Final = _IN_CLEAR  # what needs no AUTH
_LAST: Final = frozenset({"EHLO", "HELO", "STARTTLS", "AUTH", "DATA"})  # nothing may follow before their reply
_IDLING: Final = frozenset({"EHLO", "HELO", "NOOP", "RSET", "VRFY", "EXPN", "HELP"})

_log = structlog.get_logger("relay")


class Desk(Protocol):
    """What a session needs of its process."""

    settings: Settings
    logins: SubmissionAuth
    limits: RateLimiter
    intake: Submitter
    memory: MemoryPool

    @property
    def context(self) -> ssl.SSLContext:
        """The TLS context for new handshakes."""

    def left(self, session: "SubmissionSession") -> None:
        """A session is over."""


class _NoHooks:
    """aiosmtpd asks a handler for hooks; there are none."""


_NO_HOOKS: Final = _NoHooks()


class SubmissionSession(SMTP):
    """One client. `address` is where it sits, for limits and logs; `secured`: TLS from the first octet.

    `mta.submission.session.Dialog` adds the commands.
    """

    AuthLoginUsernameChallenge = "Username:"
    AuthLoginPasswordChallenge = "Password:"

    def __init__(self, desk: Desk, address: str, *, secured: bool) -> None:
        self._desk = desk
        self._address = address
        self._secured = secured
        self._inbox = SmtpReader(self._flush)
        self._early = False
        self._replies: list[bytes] = []
        self._login: SubmissionLogin | None = None
        self._greeted = self._extended = False  # HELO or EHLO was said; it was EHLO
        self._sender: str | None = None  # of the message under way, as MAIL gave it
        self._smtputf8 = False
        self._recipients: dict[str, Mailbox] = {}
        self._rcpts = 0
        self._overflowed = False
        self._errors = self._idling = 0
        self._closing = False
        self._draining = False
        loop = asyncio.get_running_loop()
        self._deadline = self._looks_at = 0.0
        self._may_last(desk.settings.relay_login_s)
        super().__init__(
            _NO_HOOKS,
            data_size_limit=desk.settings.max_message_bytes,
            enable_SMTPUTF8=True,
            hostname=desk.settings.mail_host,
            ident="ESMTP Waybill",
            authenticator=_accepted,
            loop=loop,
        )

    # -- the connection ------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Octets from the client."""
        self._early = True
        wire = self._wire
        if wire is not None:
            self._inbox.feed(data, wire)

    def eof_received(self) -> bool:
        """The client has said all it will; it may still be waiting for replies."""
        self._inbox.end()
        return not self._secured

    def connection_lost(self, error: Exception | None) -> None:
        """Over."""
        self._inbox.end()
        super().connection_lost(error)
        self._desk.left(self)

    @property
    def task(self) -> "asyncio.Task[None] | None":
        """The session's work."""
        return self._handler_coroutine

    def drain(self) -> None:
        """End as soon as the message under way has its answer: at once when there is none."""
        self._draining = True
        if self._sender is None:
            self._cut("421 4.3.2 The server is being restarted; connect again")

    def abort(self) -> None:
        """End now."""
        wire = self._wire
        if wire is not None:
            wire.abort()

    @property
    def _wire(self) -> asyncio.Transport | None:
        """The transport, plain or TLS; None when the connection is lost."""
        return cast("asyncio.Transport | None", self.transport)

    # -- time ----------------------------------------------------------------------------------------

    def _may_last(self, duration_s: float) -> None:
        """The whole session may go on so long from now."""
        now = asyncio.get_running_loop().time()
        self._ends_at = now + duration_s
        self._soft_end_at = now + duration_s * SOFT_END

    def _reset_timeout(self, duration: float | None = None) -> None:
        """The client may take so long from now on (aiosmtpd's name). Moves a mark that the timer looks at."""
        now = self.loop.time()
        self._deadline = min(now + (duration or self._desk.settings.relay_idle_s), self._ends_at)
        if self._timeout_handle is None or self._deadline < self._looks_at:
            self._look_at(self._deadline)

    def _look_at(self, moment: float) -> None:
        if self._timeout_handle is not None:
            self._timeout_handle.cancel()
        self._looks_at = moment
        self._timeout_handle = self.loop.call_at(moment, self._timeout_cb)

    def _timeout_cb(self) -> None:
        if self.loop.time() < self._deadline:
            self._look_at(self._deadline)
        else:
            self._cut("421 4.4.2 The session took too long; connect again")

    def _cut(self, reply: str) -> None:
        """A last reply, wherever the session stands, and the end."""
        wire = self._wire
        if wire is None or wire.is_closing():
            return
        self._closing = True
        wire.write(b"".join(self._replies) + reply.encode() + b"\r\n")
        self._replies.clear()
        self._end()

    def _end(self) -> None:
        wire = self._wire
        if wire is not None:
            wire.close()
            self.loop.call_later(ENDING_S, wire.abort)

    # -- the loop ------------------------------------------------------------------------------------

    async def _handle_client(self) -> None:
        try:
            await self._converse()
        except (ClientGone, ConnectionError):
            pass
        except Exception:  # noqa: BLE001 - one session's bug must be counted and end no other
            _log.exception("session failed", peer=self._address)
            self._cut("421 4.3.0 Something is wrong here; nothing was accepted")
        finally:
            self._closing = True
            self._end()

    async def _converse(self) -> None:
        await asyncio.sleep(GREETING_PAUSE_S)
        if self._early or self._draining:
            busy = "421 4.3.2 The server is being restarted; connect again"
            self._say("554 5.5.1 The server speaks first" if self._early else busy)
            await self._flush()
            return
        self._say(f"220 {self.hostname} {self.__ident__}")
        while not self._closing:
            line = await self._inbox.line(commands.max_line_octets)
            self._reset_timeout()
            if line.flaw is not None:
                long = line.flaw is LineFlaw.LONG
                self._fault("500 5.5.2 The line is too long" if long else "500 5.5.2 Lines end with CRLF")
                self._closing |= not long
                continue
            try:
                await self._obey(commands.parse_command(line.octets))
            except BadCommand as error:
                self._fault(error.reply)
            if self._is_over() and not self._closing:
                self._say("421 4.3.2 This session ends here; connect again")
                self._closing = True
            if len(self._replies) > MAX_UNSENT:
                await self._flush()
        await self._flush()

    def _is_over(self) -> bool:
        """True between two messages once the service is stopping or the session has lasted long."""
        over = self._draining or self.loop.time() > self._soft_end_at
        return over and self._login is not None and self._sender is None

    async def _obey(self, command: commands.SmtpCommand) -> None:
        verb = command.verb
        method = self._smtp_methods.get(verb)
        if commands.is_foreign_protocol(verb):
            self._say("554 5.5.1 This is a mail server")
            self._closing = True
        elif method is None:
            self._fault("500 5.5.1 The command is not known here")
        elif not self._secured and verb not in _IN_CLEAR:
            self._fault("530 5.7.0 Say STARTTLS first")
        elif self._login is None and verb not in _STRANGERS:
            self._fault("530 5.7.0 [unauthorized] Say AUTH first")
        elif verb in _LAST and self._inbox.pending:
            # RFC 2920 3.1, RFC 3207 4: whoever sends on without this reply, or had its words put into the client's
            # mouth, is not to be listened to.
            self._say(f"554 5.5.1 Nothing may follow {verb} before its reply")
            self._closing = True
        else:
            if verb in _IDLING:
                self._idling += 1
                if self._idling > MAX_IDLING:
                    self._say("421 4.7.0 Too many commands without a message")
                    self._closing = True
                    return
            await method(command.argument)

    def _say(self, reply: str) -> None:
        self._replies.append(reply.encode() + b"\r\n")

    def _fault(self, reply: str) -> None:
        """A reply to what the client did wrong; too many of them end the session."""
        self._say("421 4.7.0 Too many errors" if self._count_fault() else reply)

    def _count_fault(self) -> bool:
        """True when that was one too many, and the session is over."""
        self._errors += 1
        if self._errors > MAX_ERRORS:
            self._closing = True
        return self._errors > MAX_ERRORS

    async def _flush(self) -> None:
        """Write the replies that are due, and wait while the client does not read them."""
        if self._replies:
            written = b"".join(self._replies)
            self._replies.clear()
            self._writer.write(written)
            await self._writer.drain()

    async def push(self, status: str | bytes) -> None:
        """aiosmtpd's way to reply, as its AUTH mechanisms use it."""
        self._replies.append((status.encode() if isinstance(status, str) else status) + b"\r\n")

    def _forget_transaction(self) -> None:
        self._sender = None
        self._smtputf8 = self._overflowed = False
        self._recipients = {}
        self._rcpts = 0


def _accepted(_server: object, _session: object, _envelope: object, _mechanism: str, presented: object) -> AuthResult:
    """aiosmtpd's mechanisms hand the password here; whether it is right takes a database, and is asked later."""
    return AuthResult(success=True, auth_data=presented)
