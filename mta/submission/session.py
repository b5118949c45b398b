"""An SMTP submission session: STARTTLS, AUTH, and messages.

Programs on this machine may do without both in local mode (`local_login`). STARTTLS is then not offered to them: most
of them would use it, and refuse a certificate that no authority has signed.

The methods `smtp_VERB` carry the names by which aiosmtpd finds commands.
"""
# ruff: noqa: N802 - smtp_MAIL and its like are aiosmtpd's names

from typing import Final, Protocol

import structlog

from engine.base.errors import ErrorType, Refusal, unavailable
from engine.base.memory_pool import MemoryPool
from engine.base.settings import Settings
from engine.mail.address import BadAddress, Mailbox, canonical, path_mailbox
from engine.people.api_keys.key_auth import Caller
from engine.sending.emails.limits import MAX_RECIPIENTS
from engine.store import rate_limits
from engine.store.database_errors import DatabaseUnavailable
from engine.store.rate_limits import RateLimiter
from mta.smtp.server import commands
from mta.smtp.server.commands import BadCommand
from mta.smtp.server.esmtp_session import STARTTLS, EsmtpSession, SessionServer
from mta.smtp.server.reader import ContentDropped, ReceivedContent
from mta.submission import replies
from mta.submission.auth import LoginRefused, SubmissionAuth, SubmissionLogin
from mta.submission.submit import SubmittedEnvelope, Submitter

MAX_RCPT: Final = 1_000  # RCPT commands in one transaction, those answered 452 among them

_WITHOUT_TLS: Final = frozenset({"EHLO", "HELO", "NOOP", "RSET", "STARTTLS", "AUTH", "HELP", "QUIT"})
_WITHOUT_LOGIN: Final = _WITHOUT_TLS

_log = structlog.get_logger("relay")


class SubmissionSessionServer(SessionServer, Protocol):
    """The parts of `SubmissionServer` that a session uses."""

    settings: Settings
    auth: SubmissionAuth
    limits: RateLimiter
    submitter: Submitter
    memory: MemoryPool


class SubmissionSession(EsmtpSession):
    """The session of one connection; if it needs a login, it refuses before TLS and AUTH all but HELP and the like."""

    __slots__ = ("_login", "_needs_login", "_overflowed", "_rcpts", "_recipients", "_sender", "_server", "_smtputf8")

    def __init__(self, server: SubmissionSessionServer, address: str, *, secured: bool, needs_login: bool) -> None:
        settings = server.settings
        self._server = server
        self._needs_login = needs_login
        self._login: SubmissionLogin | None = None
        super().__init__(
            server,
            hostname=settings.mail_host,
            max_message_bytes=settings.max_message_bytes,
            address=address,
            secured=secured,
            session_s=settings.relay_login_s,
            idle_s=settings.relay_idle_s,
        )

    # -- the session -----------------------------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        """Return True from MAIL until the message has its answer."""
        return self._sender is not None

    @property
    def may_end_early(self) -> bool:
        """Return True after AUTH; before it, the time to log in is the only limit."""
        return self._login is not None

    def refusal_before(self, verb: str) -> str | None:
        """Refuse commands that need TLS or AUTH before these (RFC 3207 4, RFC 4954 6)."""
        if not self._needs_login:
            return None
        if not self.secured and verb not in _WITHOUT_TLS:
            return "530 5.7.0 Say STARTTLS first"
        if self._login is None and verb not in _WITHOUT_LOGIN:
            return "530 5.7.0 [unauthorized] Say AUTH first"
        return None

    def forget_transaction(self) -> None:
        """Discard the message in progress."""
        self._sender: str | None = None  # as MAIL gave it
        self._smtputf8 = self._overflowed = False
        self._recipients: dict[str, Mailbox] = {}
        self._rcpts = 0

    def extensions(self) -> list[str]:
        """Return the extensions. RFC 4954 4: AUTH only over TLS, or where nobody can listen."""
        offered = super().extensions()
        if not self._needs_login:
            offered = [one for one in offered if one != STARTTLS]
        return [*offered, "AUTH PLAIN LOGIN"] if self._may_log_in else offered

    @property
    def _may_log_in(self) -> bool:
        return self.secured or not self._needs_login

    # -- AUTH and messages ------------------------------------------------------------------------

    async def smtp_AUTH(self, argument: str) -> None:
        """Log in by PLAIN or LOGIN, over TLS or loopback: any user name, and an API key as the password."""
        if not self._may_log_in:
            raise BadCommand("538 5.7.11 Say STARTTLS first; a password sent in clear should be revoked")
        if self._login is not None:
            raise BadCommand("503 5.5.1 You are logged in already")
        if not self.extended:
            raise BadCommand("503 5.5.1 Say EHLO first")
        password = await self.ask_password(argument)
        if password is None:  # the reply is given: cancelled, not base64, no user name
            self.count_fault()
        else:
            await self._log_in(password)

    async def _log_in(self, password: bytes) -> None:
        try:
            self._login = await self._server.auth.log_in(password, self.address)
        except LoginRefused as refused:
            if refused.too_often:
                self.say("421 4.7.0 [rate_limited] Too many failed logins; try again later")
                self.closing = True
            else:
                self.fault(
                    "535 5.7.8 [unauthorized] The password must be a valid API key with the scope emails:send; any "
                    "user name will do"
                )
            return
        except (DatabaseUnavailable, OSError) as error:
            _log.warning("login not checked: database unavailable", error=repr(error))
            self.say("454 4.7.0 [unavailable] Logins can't be checked just now; try again shortly")
            return
        self._begin_session()
        self.say("235 2.7.0 Welcome")

    async def _log_in_locally(self) -> bool:
        """Log in a program on this machine that sent no AUTH; return False, with the reply given, if that fails."""
        try:
            self._login = await self._server.auth.log_in_locally(self.address)
        except LoginRefused:
            self.fault(
                "530 5.7.0 [unauthorized] Without a login, the API key of the first run is used, but it can't "
                "send. Log in with another API key"
            )
            return False
        except (DatabaseUnavailable, OSError) as error:
            _log.warning("login not checked: database unavailable", error=repr(error))
            self.say(replies.refusal_reply(unavailable()))
            return False
        self._begin_session()
        return True

    def _begin_session(self) -> None:
        self.start_session_time(self._server.settings.relay_session_s)
        self.allow()
        self.errors = self.idle_commands = 0

    async def smtp_MAIL(self, argument: str) -> None:
        """Begin a message.

        Only the form of the sender is checked: bounces return to Waybill, and From decides which domain sends.
        """
        if not self.helo:
            raise BadCommand("503 5.5.1 Say EHLO first")
        if self._sender is not None:
            raise BadCommand("503 5.5.1 A message is under way; say RSET to begin another")
        asked = commands.parse_mail(
            argument, extended=self.extended, max_octets=self._server.settings.max_message_bytes
        )
        if self._login is None and not await self._log_in_locally():
            return
        refusal = await self._refusal_to_send()
        if refusal is not None:
            self.say(replies.refusal_reply(refusal))
            return
        self._sender = asked.sender
        self._smtputf8 = asked.smtputf8
        self.say("250 2.1.0 ok")

    async def _refusal_to_send(self) -> Refusal | None:
        """Return why this session may not send now: its key was revoked, or its rate is exceeded."""
        try:
            caller = await self._current_caller()
            rate = self._server.settings.request_rate or caller.requests_per_second
            limited = await self._server.limits.check(caller.credential, rate)
        except Refusal as refusal:
            self.closing = True  # every later command would be refused for the same reason
            return refusal
        except (DatabaseUnavailable, OSError):
            return unavailable()
        return None if limited.allowed else rate_limits.refusal(limited)

    async def _current_caller(self) -> Caller:
        assert self._login is not None
        return await self._server.auth.check_again(self._login)

    async def smtp_RCPT(self, argument: str) -> None:
        """Add a recipient; the same one twice counts once."""
        if self._sender is None:
            raise BadCommand("503 5.5.1 Say MAIL first")
        self._rcpts += 1
        if self._rcpts > MAX_RCPT:
            self.say("421 4.7.0 Too many recipients")
            self.closing = True
            return
        address = commands.parse_rcpt(argument, smtputf8=self._smtputf8, extended=self.extended)
        try:
            mailbox = path_mailbox(address)
            key = canonical(mailbox.address)
        except BadAddress as error:
            raise BadCommand(replies.reply_line("553 5.1.3", ErrorType.INVALID_ADDRESS, str(error))) from None
        if key not in self._recipients and len(self._recipients) == MAX_RECIPIENTS:
            # RFC 5321 4.5.3.1.10: the client sends to these now and to the others in another transaction.
            self._overflowed = True
            self.say(f"452 4.5.3 A message goes to at most {MAX_RECIPIENTS} recipients at once")
            return
        self._recipients.setdefault(key, mailbox)
        self.say("250 2.1.5 ok")

    async def smtp_DATA(self, argument: str) -> None:
        """Read the message, submit it, and answer with the result."""
        if self._sender is None:
            raise BadCommand("503 5.5.1 Say MAIL first")
        if not self._recipients:
            raise BadCommand("554 5.5.1 No valid recipient")
        if argument:
            raise BadCommand("501 5.5.4 DATA has no parameters")
        assert self._login is not None
        caller = self._login.caller
        reservation = self._server.memory.open(caller.account_id, caller.key_id)
        try:
            slowest = self._server.settings.body_min_bytes_per_s
            content = await self.read_content(reservation, min_bytes_per_s=slowest)
            self.say(await self._submit(content))
        finally:
            reservation.release()
            self.forget_transaction()

    async def _submit(self, content: ReceivedContent) -> str:
        if content.dropped is ContentDropped.SIZE:
            limit = self._server.settings.max_message_bytes
            sentence = f"A message may have at most {limit} octets."
            return replies.reply_line("552 5.3.4", ErrorType.PAYLOAD_TOO_LARGE, sentence)
        if content.dropped is ContentDropped.MEMORY:
            return replies.reply_line(
                "452 4.3.1", ErrorType.UNAVAILABLE, "The server is busy receiving large messages; try again shortly."
            )
        envelope = SubmittedEnvelope(tuple(self._recipients.values()), self._smtputf8, self._overflowed)
        try:
            caller = await self._current_caller()
        except Refusal as refusal:
            self.closing = True
            return replies.refusal_reply(refusal)
        except (DatabaseUnavailable, OSError):
            return replies.refusal_reply(unavailable())
        reply = await self._server.submitter.submit(caller, envelope, content.octets)
        if reply.startswith("2"):
            self.errors = self.idle_commands = 0
        return reply

    async def smtp_HELP(self, _: str) -> None:
        """Explain how to log in."""
        may = "" if self._needs_login else ", or send without a login from this machine"
        self.say(f"214 2.0.0 Log in with any user name and an API key as the password{may}")
