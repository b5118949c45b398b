"""An SMTP server session on top of aiosmtpd: every use of aiosmtpd's private parts is in this file.

aiosmtpd provides the AUTH mechanisms and the names of commands. This class replaces reading (`reader`), since aiosmtpd
accepts a bare line feed as the end of a command and stores one within a message, and the command loop: it answers
pipelined commands in one write and limits every client in number, size and time. aiosmtpd's constructor does not run:
its streams, envelope and tables would take 4 KB of each of thousands of idle sessions.

`tests/contracts/test_aiosmtpd.py` pins the version and the signatures that this file relies on.
"""

import asyncio
import binascii
import ssl
from abc import abstractmethod
from base64 import b64decode, b64encode
from typing import Any, ClassVar, Final, cast

import structlog
from aiosmtpd.smtp import MISSING, SMTP, AuthResult, LoginPassword

from mta.smtp.server import commands
from mta.smtp.server.buffer import LineFlaw
from mta.smtp.server.commands import BadCommand, SmtpCommand
from mta.smtp.server.reader import ClientGone, SmtpReader

GREETING: Final = "ESMTP Waybill"
MAX_ERRORS: Final = 20  # commands answered 5yz in a row, as Postfix's smtpd_hard_error_limit
MAX_IDLE_COMMANDS: Final = 100  # commands without a message among them, as Postfix's smtpd_junk_command_limit
MAX_PENDING_REPLIES: Final = 64  # replies to pipelined commands that are written together
GREETING_PAUSE_S: Final = 0.005  # a client that sends something in it did not wait for the greeting
CLOSE_S: Final = 5.0  # the connection of a client that does not read the last reply is aborted after it
# The same while the server drains. Closing TLS waits for the client's close_notify, which one that is idle sends only
# with its next command: the reply and our own close_notify are on the wire by then.
DRAIN_CLOSE_S: Final = 0.5
HANDSHAKE_S: Final = 30.0  # of TLS
DRAIN_HANDSHAKE_S: Final = 2.0  # the same while the server drains
SOFT_END: Final = 0.9  # of a session's time: from then on it ends between two messages

# RFC 2920 3.1: a client must wait for the reply to these before it sends more.
_LAST_OF_A_GROUP: Final = frozenset({"EHLO", "HELO", "STARTTLS", "AUTH", "DATA"})
_IDLE_COMMANDS: Final = frozenset({"EHLO", "HELO", "NOOP", "RSET", "VRFY", "EXPN", "HELP"})

_MECHANISMS: Final = {"PLAIN": SMTP.auth_PLAIN, "LOGIN": SMTP.auth_LOGIN}  # from aiosmtpd

_log = structlog.get_logger("smtp")


class AiosmtpdSession(SMTP):
    """A client's connection, from the greeting to its end; a subclass adds the commands as `smtp_VERB` methods.

    `address` is the client's, for limits and logs; `secured`: TLS from the first octet. `start_session_time` sets how
    long the session may last; one command may take `idle_s`.
    """

    AuthLoginUsernameChallenge = "Username:"
    AuthLoginPasswordChallenge = "Password:"

    # Attributes in slots: an instance dictionary of so many takes 1.5 KB.
    __slots__ = (
        "_deadline", "_early", "_ends_at", "_handshaking", "_idle_s", "_replies", "_soft_end_at", "_task", "_timer",
        "_timer_at", "_unpaused", "address", "closing", "draining", "errors", "hostname", "idle_commands", "loop",
        "reader", "secured", "session_s", "transport",
    )  # fmt: skip

    _commands: ClassVar[frozenset[str]]  # the names of the methods that are commands

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._commands = frozenset(name for name in dir(cls) if name.startswith("smtp_"))

    def __init__(self, *, hostname: str, address: str, secured: bool, session_s: float, idle_s: float) -> None:
        self.hostname = hostname
        self.address = address
        self.secured = secured
        self.closing = False
        self.draining = False
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.reader = SmtpReader(self.flush)
        self.errors = self.idle_commands = 0
        self._idle_s = idle_s
        self._handshaking = False  # with STARTTLS
        self._early = False  # the client sent something before the greeting
        self._replies: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self._unpaused: asyncio.Future[None] | None = None  # set while the client does not read its replies
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = self._timer_at = 0.0
        self.start_session_time(session_s)

    # -- what a subclass decides ---------------------------------------------------------------------

    @abstractmethod
    def refusal_before(self, verb: str) -> str | None:
        """Return the reply that refuses `verb` at this point of the session, such as 530 before AUTH, or None."""

    @property
    @abstractmethod
    def in_transaction(self) -> bool:
        """Return True from MAIL until the message has its reply."""

    @property
    @abstractmethod
    def may_end_early(self) -> bool:
        """Return True if the session may end before the client's next transaction once it has lasted long."""

    @abstractmethod
    def session_ended(self) -> None:
        """Release what the session holds; called when the connection is lost or its handshake failed."""

    # -- what a subclass uses ------------------------------------------------------------------------

    @property
    def task(self) -> "asyncio.Task[None] | None":
        """The task that runs the session."""
        return self._task

    @property
    def wire(self) -> asyncio.Transport | None:
        """The transport, plain or TLS; None when the connection is lost."""
        return self.transport

    @property
    def tls_version(self) -> str | None:
        """Return the version of TLS, such as `TLSv1.3`; None in clear text."""
        wire = self.wire
        secure = None if wire is None else wire.get_extra_info("ssl_object")
        return None if secure is None else secure.version()

    def drain(self) -> None:
        """End the session as soon as the message in progress has its answer: at once when there is none."""
        self.draining = True
        if self._handshaking:  # what is written now would reach the client in the middle of it
            self.loop.call_later(DRAIN_HANDSHAKE_S, self._end_handshake)
        elif not self.in_transaction:
            self._cut("421 4.3.2 The server is being restarted; connect again")

    def abort(self) -> None:
        """Drop the connection now."""
        wire = self.wire
        if wire is not None:
            wire.abort()

    def say(self, reply: str) -> None:
        """Add a reply; the loop writes the replies to a group of commands together."""
        self._replies.append(reply.encode() + b"\r\n")

    def fault(self, reply: str) -> None:
        """Add a reply to a client's mistake; too many of them end the session."""
        self.say("421 4.7.0 Too many errors" if self.count_fault() else reply)

    def count_fault(self) -> bool:
        """Count a mistake; return True if it exceeds the limit and the session ends."""
        self.errors += 1
        if self.errors > MAX_ERRORS:
            self.closing = True
        return self.errors > MAX_ERRORS

    async def flush(self) -> None:
        """Write the pending replies, and wait while the client does not read them. Raises ClientGone."""
        if not self._replies:
            return
        if self.transport is None:
            raise ClientGone
        written = b"".join(self._replies)
        self._replies.clear()
        self.transport.write(written)
        if self._unpaused is not None:
            await self._unpaused

    def start_session_time(self, duration_s: float) -> None:
        """Allow the session `duration_s` seconds from now; after most of them it ends between two messages."""
        now = self.loop.time()
        self.session_s = duration_s
        self._ends_at = now + duration_s
        self._soft_end_at = now + duration_s * SOFT_END

    def allow(self, duration_s: float | None = None) -> None:
        """Allow the client `duration_s` seconds from now until its next line, `idle_s` without."""
        now = self.loop.time()
        self._deadline = min(now + (duration_s or self._idle_s), self._ends_at)
        if self._timer is None or self._deadline < self._timer_at:
            self._start_timer(self._deadline)

    def allow_handling(self, duration_s: float) -> None:
        """Give the server `duration_s` seconds for the reply to a message, whatever is left of the session's time."""
        self._ends_at = max(self._ends_at, self.loop.time() + duration_s)
        self.allow(duration_s)

    async def upgrade_to_tls(self, context: ssl.SSLContext) -> bool:
        """Answer STARTTLS and negotiate TLS; False when the handshake failed and the session is over.

        Raises ClientGone when the client left.
        """
        wire = self.wire
        if wire is None:
            raise ClientGone
        wire.pause_reading()  # until the handshake reads: nothing in plaintext can slip in between
        self.say("220 2.0.0 Go ahead")
        await self.flush()
        self.allow(HANDSHAKE_S)
        secured, complete, self._handshaking = None, False, True
        try:
            secured = await self.loop.start_tls(
                wire, self, context, server_side=True, ssl_handshake_timeout=HANDSHAKE_S
            )
            # Closing `wire` ends the wait without an error.
            complete = secured is not None and secured.get_extra_info("cipher") is not None
        except OSError as error:  # ssl.SSLError is one
            _log.info("TLS handshake failed", peer=self.address, error=str(error)[:200])
            self.closing = True
            wire.abort()
            return False
        finally:
            self._handshaking = False
            if not complete:
                self.session_ended()  # asyncio tells the handshake's own protocol of the end, and not this one
        if not complete:
            raise ClientGone
        self.transport = secured
        self.secured = True
        return True

    async def ask_password(self, argument: str) -> bytes | None:
        """Run the AUTH mechanism that `argument` names and return the password; None after a failure, already answered.

        Raises BadCommand for an unknown mechanism.
        """
        words = argument.split()
        method = _MECHANISMS.get(words[0].upper()) if words else None
        if method is None or len(words) > 2:
            raise BadCommand("504 5.5.4 Use AUTH PLAIN or AUTH LOGIN")
        if words[1:] == ["="]:  # RFC 4954 4: an initial response of no octets
            words[1] = ""
        result: AuthResult = await method(self, self, words)
        presented = result.auth_data
        if not isinstance(presented, LoginPassword):
            return None
        if not presented.login:  # RFC 4616 2: the authentication identity has one character at least
            await self.push("535 5.7.8 [unauthorized] Give a user name; any will do")
            return None
        return presented.password

    # -- aiosmtpd's AUTH mechanisms --------------------------------------------------------------------

    async def push(self, status: str | bytes) -> None:
        """Add a reply of an AUTH mechanism."""
        self._replies.append((status.encode() if isinstance(status, str) else status) + b"\r\n")

    async def challenge_auth(self, challenge: str | bytes, *_: Any, **__: Any) -> Any:
        """Send one challenge of an AUTH mechanism (RFC 4954 4); return the answer, or MISSING for an unusable one."""
        octets = challenge.encode() if isinstance(challenge, str) else challenge
        self.say(f"334 {b64encode(octets).decode()}")
        line = await self.reader.line(_max_answer)
        self.allow()
        if line.flaw is not None or line.octets == b"*":
            await self.push("501 5.7.0 AUTH was ended")
            return MISSING
        try:
            return b64decode(line.octets, validate=True)
        except binascii.Error:
            await self.push("501 5.5.2 That is not base64")
            return MISSING

    def _authenticate(self, _mechanism: str, presented: LoginPassword) -> AuthResult:
        """Return what the client presented (aiosmtpd's name): checking a password takes a database and an await."""
        return AuthResult(success=True, auth_data=presented)

    # -- asyncio.Protocol ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the session."""
        self.transport = cast("asyncio.Transport", transport)
        self.allow()
        self._task = self.loop.create_task(self._run())

    def pause_writing(self) -> None:
        """Make `flush` wait: the client does not read its replies."""
        self._unpaused = self.loop.create_future()

    def resume_writing(self) -> None:
        """End the wait of `flush`."""
        waiting, self._unpaused = self._unpaused, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Hand octets from the client to the reader."""
        self._early = True
        wire = self.wire
        if wire is not None:
            self.reader.feed(data, wire)

    def eof_received(self) -> bool:
        """End reading; a plaintext connection stays open for the replies that the client may still wait for."""
        self.reader.end()
        return not self.secured

    def connection_lost(self, _error: Exception | None) -> None:
        """End the session."""
        self.transport = None
        self.reader.end()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self.session_ended()

    # -- the timer -------------------------------------------------------------------------------------

    def _look_at_deadline(self) -> None:
        """End the session when its deadline has passed."""
        if self.loop.time() < self._deadline:
            self._start_timer(self._deadline)
        else:
            self._cut("421 4.4.2 The session took too long; connect again")

    def _start_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_at(at, self._look_at_deadline)

    # -- the command loop ------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Run the session."""
        try:
            await self._converse()
        except (ClientGone, ConnectionError):
            pass
        except Exception:  # noqa: BLE001 - one session's bug must be counted and end no other
            _log.exception("incoming SMTP session failed", peer=self.address)
            self._cut("421 4.3.0 Something is wrong here; nothing was accepted")
        finally:
            self.closing = True
            self._close()

    async def _converse(self) -> None:
        await asyncio.sleep(GREETING_PAUSE_S)
        if self._early or self.draining:
            busy = "421 4.3.2 The server is being restarted; connect again"
            self.say("554 5.5.1 The server speaks first" if self._early else busy)
            await self.flush()
            return
        self.say(f"220 {self.hostname} {GREETING}")
        while not self.closing:
            line = await self.reader.line(commands.max_line_octets)
            self.allow()
            if line.flaw is not None:
                self._refuse_line(line.flaw)
                continue
            try:
                await self._obey(commands.parse_command(line.octets))
            except BadCommand as error:
                self.fault(error.reply)
            if self._has_lasted_long() and not self.closing:
                self.say("421 4.3.2 This session ends here; connect again")
                self.closing = True
            if len(self._replies) > MAX_PENDING_REPLIES:
                await self.flush()
        await self.flush()

    def _refuse_line(self, flaw: LineFlaw) -> None:
        """Answer an unusable line; after a bare line feed, commands and content can't be told apart safely."""
        if flaw is LineFlaw.LONG:
            self.fault("500 5.5.2 The line is too long")
        else:
            self.fault("500 5.5.2 Lines end with CRLF")
            self.closing = True

    async def _obey(self, command: SmtpCommand) -> None:
        verb = command.verb
        name = f"smtp_{verb}"
        method = getattr(self, name) if name in self._commands else None
        if commands.is_foreign_protocol(verb):
            self.say("554 5.5.1 This is a mail server")
            self.closing = True
        elif verb == "BDAT":
            # RFC 3030 2: the chunk follows without waiting for the reply; its lines must not run as commands.
            self.say("502 5.5.1 CHUNKING is not offered")
            self.closing = True
        elif method is None:
            self.fault("500 5.5.1 The command is not known here")
        elif (refusal := self.refusal_before(verb)) is not None:
            self.fault(refusal)
        elif verb in _LAST_OF_A_GROUP and self.reader.pending:
            # RFC 2920 3.1, RFC 3207 4: the client did not wait for this reply, or an attacker injected commands.
            self.say(f"554 5.5.1 Nothing may follow {verb} before its reply")
            self.closing = True
        elif verb in _IDLE_COMMANDS and self._count_idle_command():
            self.say("421 4.7.0 Too many commands without a message")
            self.closing = True
        else:
            await method(command.argument)

    def _count_idle_command(self) -> bool:
        self.idle_commands += 1
        return self.idle_commands > MAX_IDLE_COMMANDS

    def _has_lasted_long(self) -> bool:
        """Return True between two messages if the service is stopping or the session's time is nearly over."""
        over = self.draining or self.loop.time() > self._soft_end_at
        return over and self.may_end_early and not self.in_transaction

    # -- the end ---------------------------------------------------------------------------------------

    def _cut(self, reply: str) -> None:
        """Write a last reply in any state of the session, and close."""
        wire = self.wire
        if wire is None or wire.is_closing():
            return
        if self._handshaking:
            self._end_handshake()
            return
        self.closing = True
        wire.write(b"".join(self._replies) + reply.encode() + b"\r\n")
        self._replies.clear()
        self._close()

    def _end_handshake(self) -> None:
        """Drop the connection if its handshake is not over."""
        if self._handshaking:
            self.abort()

    def _close(self) -> None:
        wire = self.wire
        if wire is not None:
            wire.close()
            self.loop.call_later(DRAIN_CLOSE_S if self.draining else CLOSE_S, wire.abort)


def _max_answer(_line: bytes) -> int:
    return commands.MAX_AUTH_LINE
