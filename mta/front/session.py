"""Connect an SMTP session of a front to a cell, and pass messages to it; a subclass adds the commands."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import ClassVar, Final, Protocol
from uuid import UUID

from engine.base.memory_pool import MemoryPool, Reservation
from engine.base.settings import Settings
from engine.cells.locator import Unlocated
from mta.front import counters
from mta.front.cell_connection import CellConnection, CellGone
from mta.front.places import Places
from mta.smtp.server.esmtp_session import EsmtpSession, SessionServer
from mta.smtp.server.reader import ContentDropped

LATER: Final = "451 4.3.0 [unavailable] The message can't be passed on just now; try again shortly"
NO_MEMORY: Final = "452 4.3.1 [unavailable] The server is busy receiving large messages; try again shortly"
HANDLING_S: Final = 360.0  # for the reply to a message, more than `cell_connection.FINAL_S`


class FrontSessionServer(SessionServer, Protocol):
    """The parts of a front's servers that a session uses."""

    settings: Settings
    places: Places
    memory: MemoryPool


class FrontSession(EsmtpSession):
    """A session whose messages go to a cell; `_upstream` is the connection to it, if one is open."""

    __slots__ = ("_max_octets", "_server", "_upstream")
    door: ClassVar[str]  # `submission` or `incoming`, for metrics

    def __init__(
        self,
        server: FrontSessionServer,
        address: str,
        *,
        secured: bool,
        max_octets: int,
        session_s: float,
        idle_s: float,
    ) -> None:
        self._server = server
        self._upstream: CellConnection | None = None
        self._max_octets = max_octets
        super().__init__(
            server, hostname=server.settings.mail_host, max_message_bytes=max_octets, address=address, secured=secured,
            session_s=session_s, idle_s=idle_s,
        )  # fmt: skip

    def session_ended(self) -> None:
        """Free the seat, and drop the connection to the cell."""
        self.drop_upstream()
        super().session_ended()

    def drop_upstream(self) -> None:
        """Drop the connection to the cell; what it has not confirmed, it discards."""
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()

    def say_lines(self, lines: list[str]) -> None:
        """Add a reply of a cell."""
        for line in lines:
            self.say(line)

    async def connect(self, cell: str, address: str | None, *, secured: bool) -> CellConnection:
        """Return the open connection to the cell, or a new one. Raises CellGone."""
        if self._upstream is not None and self._upstream.cell == cell:
            return self._upstream
        self.drop_upstream()
        if address is None:
            raise CellGone(f"the directory names no address of cell {cell}")
        self._upstream = await CellConnection.open(cell, address, self.address, self.helo, secured=secured)
        return self._upstream

    async def read_message(self, reservation: Reservation) -> bytes | None:
        """Read the content that the client sends after its DATA; None if it is dropped, with the reply given."""
        content = await self.read_content(reservation, min_bytes_per_s=self._server.settings.body_min_bytes_per_s)
        if content.dropped is ContentDropped.SIZE:
            self.say(f"552 5.3.4 [payload_too_large] A message may have at most {self._max_octets} octets.")
            return None
        if content.dropped is ContentDropped.MEMORY:
            self.say(NO_MEMORY)
            return None
        return content.octets

    async def unless_left(
        self, cell: str, reply: list[str], accounts: Collection[UUID], later: str = LATER
    ) -> list[str]:
        """Return the reply of a cell about the accounts, or `later` instead of a permanent refusal if one of them may
        have left the cell: the client only needs to connect again."""
        if not accounts or not reply[-1].startswith("5"):
            return reply
        left = not self._server.places.locator.current or await self.has_left(cell, accounts)
        return [later] if left else reply

    async def has_left(self, cell: str, accounts: Collection[UUID]) -> bool:
        """Return True if one of the accounts is known to have moved from the cell, or to be about to."""
        with suppress(Unlocated):
            for account in accounts:
                found = await self._server.places.locator.placement(account)
                if found is not None and found.cell is not None and (found.cell != cell or found.moving_to is not None):
                    return True
        return False

    async def pass_on(self, upstream: CellConnection, octets: bytes, accounts: Collection[UUID]) -> None:
        """Send a message of or for the accounts to the cell, which has said 354, and pass its reply on."""
        self.allow_handling(HANDLING_S)
        try:
            reply = await self.unless_left(upstream.cell, await upstream.content(octets), accounts)
        except CellGone:
            reply = [LATER]
        if reply == [LATER]:
            self.drop_upstream()
        counters.MESSAGES.labels(self.door, upstream.cell, reply[-1][:3]).inc()
        self.say_lines(reply)
        if reply[-1].startswith("2"):
            self.errors = self.idle_commands = 0
        self.allow()


async def quietly(connection: CellConnection) -> None:
    """End a transaction that the client gave up."""
    try:
        async with asyncio.timeout(1):
            await connection.ask("RSET")
    except (OSError, TimeoutError):
        connection.abort()
