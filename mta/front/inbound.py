"""Incoming mail at a front: the first recipient that a cell takes decides which cell gets the message.

A recipient of another cell is answered 452: senders give it the message in a transaction of its own at once (RFC 5321
4.5.3.1.10). Complaints name their message in the content alone, so their cell is chosen after it was read.

The methods `smtp_VERB` carry the names by which aiosmtpd finds commands.
"""
# ruff: noqa: N802 - smtp_MAIL and its like are aiosmtpd's names

from typing import Final
from uuid import UUID

from engine.cells.locator import TooManyUnknown, Unlocated
from mta.front.cell_connection import CellConnection, CellGone, is_positive
from mta.front.session import LATER, FrontSession, FrontSessionServer, quietly
from mta.smtp.server import commands
from mta.smtp.server.commands import BadCommand

MAX_RCPT: Final = 1_000  # RCPT commands in one transaction, refused ones among them
_ELSEWHERE: Final = "452 4.5.3 Send to this recipient in a message of its own"


class FrontInboundSession(FrontSession):
    """The session of one mail server; `client` is its key for limits by network."""

    __slots__ = ("_accepted", "_accounts", "_cell", "_client", "_complaint", "_mail", "_rcpts", "_smtputf8")
    door = "incoming"

    def __init__(self, server: FrontSessionServer, address: str, client: str, *, secured: bool) -> None:
        settings = server.settings
        self._client = client
        super().__init__(
            server, address, secured=secured, max_octets=settings.inbound_max_bytes, session_s=settings.mx_session_s,
            idle_s=settings.mx_idle_s,
        )  # fmt: skip

    @property
    def in_transaction(self) -> bool:
        """Return True from MAIL until the message has its reply."""
        return self._mail is not None

    @property
    def may_end_early(self) -> bool:
        """Return True: senders of mail connect again."""
        return True

    def refusal_before(self, verb: str) -> str | None:
        """Refuse AUTH."""
        return "502 5.5.1 This server takes mail for its own domains only, without AUTH" if verb == "AUTH" else None

    def forget_transaction(self) -> None:
        """Discard the message in progress."""
        self._mail: str | None = None  # the argument of MAIL
        self._smtputf8 = False
        self._cell: str | None = None  # to which MAIL was passed
        self._accepted = 0  # recipients that the cell has taken
        self._accounts: set[UUID] = set()  # of these recipients
        self._complaint: str | None = None  # the argument of RCPT for the address of complaints
        self._rcpts = 0

    async def smtp_MAIL(self, argument: str) -> None:
        """Begin a message; the cell that gets it is not known yet."""
        if not self.helo:
            raise BadCommand("503 5.5.1 Say EHLO first")
        if self._mail is not None:
            raise BadCommand("503 5.5.1 A message is under way; say RSET to begin another")
        asked = commands.parse_mail(argument, extended=self.extended, max_octets=self._max_octets)
        self._mail = argument
        self._smtputf8 = asked.smtputf8
        self.say("250 2.1.0 ok")

    async def smtp_RCPT(self, argument: str) -> None:
        """Find the recipient's cell, and pass the command to it."""
        if self._mail is None:
            raise BadCommand("503 5.5.1 Say MAIL first")
        self._rcpts += 1
        if self._rcpts > MAX_RCPT:
            self._leave("421 4.7.0 Too many recipients")
            return
        address = commands.parse_rcpt(argument, smtputf8=self._smtputf8, extended=self.extended)
        places = self._server.places
        if places.is_feedback(address):
            self._add_complaint(argument)
            return
        try:
            found = await places.of_recipient(address, self._client)
        except TooManyUnknown:
            self._leave("421 4.7.0 Too many unknown recipients; try again later")
            return
        except Unlocated:
            self.say(LATER)
            return
        cell = self._cell or places.default_cell() if found is None else found.cell
        if cell is None:
            self.say(LATER)
        elif self._complaint is not None or (self._accepted and cell != self._cell):
            self.say(_ELSEWHERE)
        else:
            await self._ask_cell(cell, argument, None if found is None else found.account_id)

    def _add_complaint(self, argument: str) -> None:
        if self._accepted:
            self.say(_ELSEWHERE)
            return
        self._complaint = argument
        self.say("250 2.1.5 ok")

    async def _ask_cell(self, cell: str, argument: str, account: UUID | None) -> None:
        try:
            upstream = await self._begun_at(cell)
            said = await upstream.ask(f"RCPT {argument}")
        except CellGone:
            self.drop_upstream()
            self._cell = None
            if self._accepted:  # they are lost with the connection: the client has to begin anew
                self._leave("421 4.3.0 The message can't be passed on just now; try again shortly")
            else:
                self.say(LATER)
            return
        reply = await self.unless_left(cell, said, [] if account is None else [account])
        if is_positive(reply):
            self._accepted += 1
            self._accounts |= set() if account is None else {account}
        self.say_lines(reply)
        self.closing = self.closing or reply[-1].startswith("421")

    async def _begun_at(self, cell: str) -> CellConnection:
        """Return a connection to the cell on which MAIL was accepted. Raises CellGone."""
        if self._cell == cell and self._upstream is not None:
            return self._upstream
        if self._cell is not None and self._upstream is not None:
            await quietly(self._upstream)  # no recipient was accepted there
        self._cell = None
        known = self._server.places.locator.cells.get(cell)
        address = None if known is None else known.mx
        is_reused = self._upstream is not None and self._upstream.cell == cell
        try:
            upstream = await self.connect(cell, address, secured=self.secured)
            reply = await upstream.ask(f"MAIL {self._mail}")
        except CellGone:
            if not is_reused:  # else the cell may have closed a connection that was idle
                raise
            self.drop_upstream()
            upstream = await self.connect(cell, address, secured=self.secured)
            reply = await upstream.ask(f"MAIL {self._mail}")
        if not is_positive(reply):
            raise CellGone(f"MAIL was answered {reply[-1][:200]}")
        self._cell = cell
        return upstream

    async def smtp_RSET(self, argument: str) -> None:
        """Forget the message in progress, here and at the cell."""
        if self._cell is not None and self._upstream is not None and not argument:
            await quietly(self._upstream)
        await super().smtp_RSET(argument)

    async def smtp_EHLO(self, hostname: str) -> None:
        """Greet the client; a cell hears the new name on a new connection."""
        self.drop_upstream()
        await super().smtp_EHLO(hostname)

    async def smtp_HELO(self, hostname: str) -> None:
        """Greet a client that uses no extensions."""
        self.drop_upstream()
        await super().smtp_HELO(hostname)

    async def smtp_DATA(self, argument: str) -> None:
        """Read the message, pass it on, and answer as the cell does."""
        if self._mail is None:
            raise BadCommand("503 5.5.1 Say MAIL first")
        if not self._accepted and self._complaint is None:
            raise BadCommand("554 5.5.1 There is no valid recipient")
        if argument:
            raise BadCommand("501 5.5.4 DATA takes nothing")
        reservation = self._server.memory.open(self._client)
        try:
            octets = await self.read_message(reservation)
            if octets is None:
                if self._cell is not None and self._upstream is not None:
                    await quietly(self._upstream)
                return
            try:
                upstream = await self._ready_for(octets)
            except (CellGone, Unlocated, TooManyUnknown):
                self.drop_upstream()
                self.say(LATER)
                return
            await self.pass_on(upstream, octets, self._accounts)
        finally:
            reservation.release()
            self.forget_transaction()

    async def _ready_for(self, octets: bytes) -> CellConnection:
        """Return the connection to the cell that gets the message, after its reply 354. Raises CellGone."""
        if self._complaint is not None:
            places = self._server.places
            found = await places.of_complaint(octets, self._client)
            cell = places.default_cell() if found is None else found.cell
            if cell is None:
                raise CellGone("there are no cells")
            upstream = await self._begun_at(cell)
            if not is_positive(await upstream.ask(f"RCPT {self._complaint}")):
                raise CellGone("the cell refuses the address of complaints")
        else:
            assert self._upstream is not None
            upstream = self._upstream
        if not (await upstream.ask("DATA"))[-1].startswith("354"):
            raise CellGone("the cell does not take the message")
        return upstream

    async def smtp_HELP(self, _: str) -> None:
        """Explain what this server is for."""
        self.say("214 2.0.0 This server takes mail for its own domains")

    def _leave(self, reply: str) -> None:
        self.say(reply)
        self.closing = True
