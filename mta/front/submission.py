"""SMTP submission at a front: AUTH finds the cell of the key, and everything after it is the cell's to answer.

The methods `smtp_VERB` carry the names by which aiosmtpd finds commands.
"""
# ruff: noqa: N802 - smtp_MAIL and its like are aiosmtpd's names

import asyncio
from base64 import b64encode
from typing import Final
from uuid import UUID

from engine.cells.locator import Location, TooManyUnknown, Unlocated
from engine.people.api_keys import rules
from mta.front.cell_connection import CellGone, is_positive
from mta.front.session import LATER, FrontSession, FrontSessionServer, quietly
from mta.smtp.server import commands
from mta.smtp.server.commands import BadCommand

_BEFORE_LOGIN: Final = frozenset({"EHLO", "HELO", "NOOP", "RSET", "STARTTLS", "AUTH", "HELP", "QUIT"})
_REFUSED: Final = (
    "535 5.7.8 [unauthorized] The password must be a valid API key with the scope emails:send; any user name will do"
)
_MOVED: Final = "421 4.3.2 [unavailable] The account has moved to another server; connect again"
_UNCHECKED: Final = "454 4.7.0 [unavailable] Logins can't be checked just now; try again shortly"


class FrontSubmissionSession(FrontSession):
    """The session of one program; logged in while there is a connection to a cell."""

    __slots__ = ("_begun", "_owners")
    door = "submission"

    def __init__(self, server: FrontSessionServer, address: str, *, secured: bool) -> None:
        settings = server.settings
        self._owners: tuple[UUID, ...] = ()  # the account of the key
        super().__init__(
            server, address, secured=secured, max_octets=settings.max_message_bytes, session_s=settings.relay_login_s,
            idle_s=settings.relay_idle_s,
        )  # fmt: skip

    @property
    def in_transaction(self) -> bool:
        """Return True from MAIL until the message has its reply."""
        return self._begun

    @property
    def may_end_early(self) -> bool:
        """Return True after AUTH; before it, the time to log in is the only limit."""
        return self._upstream is not None

    def refusal_before(self, verb: str) -> str | None:
        """Refuse commands that need TLS or AUTH before these (RFC 3207 4, RFC 4954 6)."""
        if not self.secured and verb not in _BEFORE_LOGIN:
            return "530 5.7.0 Say STARTTLS first"
        if self._upstream is None and verb not in _BEFORE_LOGIN:
            return "530 5.7.0 [unauthorized] Say AUTH first"
        return None

    def forget_transaction(self) -> None:
        """Discard the message in progress."""
        self._begun = False

    def extensions(self) -> list[str]:
        """Return the extensions. RFC 4954 4: AUTH only over TLS."""
        offered = super().extensions()
        return [*offered, "AUTH PLAIN LOGIN"] if self.secured else offered

    async def smtp_AUTH(self, argument: str) -> None:
        """Find the cell of the key, connect to it, and log in there."""
        if not self.secured:
            raise BadCommand("538 5.7.11 Say STARTTLS first; a password sent in clear should be revoked")
        if self._upstream is not None:
            raise BadCommand("503 5.5.1 You are logged in already")
        if not self.extended:
            raise BadCommand("503 5.5.1 Say EHLO first")
        password = await self.ask_password(argument)
        if password is None:  # the reply is given
            self.count_fault()
            return
        try:
            location = await self._located(password)
        except TooManyUnknown:
            self.say("421 4.7.0 [rate_limited] Too many failed logins; try again later")
            self.closing = True
            return
        except Unlocated:
            self.say(_UNCHECKED)
            return
        if location is None:
            await asyncio.sleep(self._server.settings.relay_login_delay_s)
            self.fault(_REFUSED)
            return
        self._owners = () if location.account_id is None else (location.account_id,)
        await self._log_in(location.cell, password)

    async def _located(self, password: bytes) -> Location | None:
        key = rules.parse(password.decode("latin-1"))
        return None if key is None else await self._server.places.of_api_key(key.key_id, self.address)

    async def _log_in(self, cell: str, password: bytes) -> None:
        known = self._server.places.locator.cells.get(cell)
        try:
            upstream = await self.connect(cell, None if known is None else known.submission, secured=True)
            presented = b64encode(b"\0front\0" + password).decode()
            said = await upstream.ask(f"AUTH PLAIN {presented}")
        except CellGone:
            self.drop_upstream()
            self.say(_UNCHECKED)
            return
        reply = await self.unless_left(cell, said, self._owners, _UNCHECKED)
        if not is_positive(reply):
            self.drop_upstream()
            self.closing = reply[-1].startswith("421")
            self.fault(reply[-1])
            return
        self.start_session_time(self._server.settings.relay_session_s)
        self.allow()
        self.errors = self.idle_commands = 0
        self.say_lines(reply)

    async def smtp_MAIL(self, argument: str) -> None:
        """Begin a message, unless the account moves: then the client logs in again, and waits there for its end."""
        commands.parse_mail(argument, extended=self.extended, max_octets=self._max_octets)
        if self._upstream is not None and await self.has_left(self._upstream.cell, self._owners):
            self.drop_upstream()
            self.say(_MOVED)
            self.closing = True
            return
        self._begun = await self._passed(f"MAIL {argument}") or self._begun

    async def smtp_RCPT(self, argument: str) -> None:
        """Add a recipient."""
        await self._passed(f"RCPT {argument}")

    async def smtp_EHLO(self, hostname: str) -> None:
        """Greet the client, and forget the message in progress at the cell too."""
        if self._begun and self._upstream is not None:
            await quietly(self._upstream)
        await super().smtp_EHLO(hostname)

    async def smtp_RSET(self, argument: str) -> None:
        """Forget the message in progress, here and at the cell."""
        if argument or self._upstream is None:
            await super().smtp_RSET(argument)
            return
        self.forget_transaction()
        await self._passed("RSET")

    async def smtp_DATA(self, argument: str) -> None:
        """Read the message, pass it on, and answer as the cell does."""
        if argument:
            raise BadCommand("501 5.5.4 DATA has no parameters")
        assert self._upstream is not None
        upstream = self._upstream
        reservation = self._server.memory.open(self._owners)
        try:
            if not await self._passed("DATA", silent_if="354"):
                return
            octets = await self.read_message(reservation)
            if octets is None:
                self.drop_upstream()  # the cell waits for content: only a new session can go on
                self.closing = True
                return
            await self.pass_on(upstream, octets, self._owners)
            self.closing = self.closing or self._upstream is None
        finally:
            reservation.release()
            self.forget_transaction()

    async def smtp_HELP(self, _: str) -> None:
        """Explain how to log in."""
        self.say("214 2.0.0 Log in with any user name and an API key as the password")

    async def _passed(self, line: str, *, silent_if: str | None = None) -> bool:
        """Pass a command to the cell and its reply to the client, except one that begins with `silent_if`."""
        assert self._upstream is not None
        try:
            reply = await self.unless_left(self._upstream.cell, await self._upstream.ask(line), self._owners)
        except CellGone:
            self.drop_upstream()
            self.say(LATER)
            self.closing = True
            return False
        if silent_if is None or not reply[-1].startswith(silent_if):
            self.say_lines(reply)
            self.closing = self.closing or reply[-1].startswith("421")
        return is_positive(reply)
