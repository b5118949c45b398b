"""The mail server behind the simulator's recipients, on a loopback port of each delivering process.

Mail for these recipients is delivered like other mail; the server counts the content and stores none. It can't be
reached from other hosts, and other processes on this host can neither read nor change anything through it. It offers
no PIPELINING, so that no message waits behind a slow one on the same connection.
"""

import asyncio
from typing import cast

import asyncpg
from msgspec import Struct, field

from engine.base.settings import MEBIBYTE, Settings
from engine.delivery.sealed_mail import masked
from engine.mail import return_path
from engine.mail.return_path import ReturnPathOrigin
from engine.mail.simulator import SimulatedOutcome, domain_of, simulated_outcome
from engine.store.database_errors import DatabaseUnavailable
from engine.store.queries import Queries
from mta.smtp.server import commands
from mta.smtp.server.commands import BadCommand
from mta.smtp.server.reader import SmtpReader

HOST = "127.0.0.1"
SLOW_S = 10.0
IDLE_S = 60.0  # the outbound pool closes connections after 5 s without mail
CONTENT_S = 600.0
LOOK_UP_S = 5.0
END_S = 2.0
MAX_LINE = 4_096  # octets of a command: RFC 5321 4.5.3.1.4 has 512, SMTPUTF8 and parameters make it longer
READ_SIZE = 64 * 1024
MAX_RECIPIENTS = 1_000
SPARE_SESSIONS = 16  # beyond those that the process itself may have open

_OUT_OF_ORDER = "503 5.5.1 not at this point of the conversation"

_ATTEMPTS_MADE = Queries.beside(__file__, "server.sql").command("attempts_made")


class Simulator:
    """The simulator's server in one process, from `start` to `close`."""

    @classmethod
    async def start(cls, settings: Settings, pool: asyncpg.Pool, *, slow_s: float = SLOW_S) -> "Simulator":
        """Return a server that accepts connections; `slow_s` is the delay of replies to mail for `slow@`."""
        self = cls(settings, pool, slow_s)
        self._server = await asyncio.start_server(self._serve, HOST, 0, limit=READ_SIZE)
        return self

    def __init__(self, settings: Settings, pool: asyncpg.Pool, slow_s: float) -> None:
        if settings.key_pepper is None:
            raise RuntimeError("the simulator needs WAYBILL_KEY_PEPPER")
        self.domain = domain_of(settings.mail_host)
        self.slow_s = slow_s
        self.max_bytes = settings.max_message_bytes + MEBIBYTE  # with the signature and the doubled dots
        self._path_key = return_path.key_of(settings.pepper)
        self._pool = pool
        self._max_sessions = settings.mta_connections + SPARE_SESSIONS
        self._server: asyncio.Server
        self._sessions: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Return the port on 127.0.0.1."""
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Close the listening socket and all sessions."""
        self._server.close()
        for session in self._sessions:
            session.cancel()
        if self._sessions:
            await asyncio.wait(self._sessions, timeout=END_S)

    def origin(self, address: str) -> ReturnPathOrigin | None:
        """Return the message and recipient that a return path of Waybill names; None for any other address."""
        return return_path.origin(self._path_key, address)

    async def was_tried(self, message: ReturnPathOrigin, address: str) -> bool:
        """Return True when an attempt at this recipient is on record.

        The message's age can't replace this: a scheduled or postponed message has its first attempt late.
        """
        async with asyncio.timeout(LOOK_UP_S):
            (row,) = await _ATTEMPTS_MADE.records(self._pool, message.message_id, [address, masked(address)])
        return bool(row["attempts"])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if len(self._sessions) >= self._max_sessions:
                writer.write(b"421 4.3.2 too many connections\r\n")
                return
            self._sessions.add(task)
            await _SimulatorSession(self, reader, writer).run()
        except (OSError, TimeoutError, EOFError, ValueError):  # the client disconnected or stopped sending
            pass
        finally:
            self._sessions.discard(task)
            writer.close()


class _SimulatedMail(Struct):
    """A transaction: the origin of the message from its return path, and the recipients accepted so far."""

    origin: ReturnPathOrigin | None
    smtputf8: bool
    recipients: list[SimulatedOutcome] = field(default_factory=list)


class _SimulatorSession:
    """A connection, from the greeting to QUIT."""

    def __init__(self, host: Simulator, stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = host
        self._stream = stream
        self._writer = writer
        self._reader = SmtpReader(self._read_more, max_discarded=0)
        self._mail: _SimulatedMail | None = None

    async def run(self) -> None:
        """Answer commands until QUIT. Raises ClientGone and TimeoutError."""
        await self._say(f"220 {self._host.domain} ESMTP simulator")
        while True:
            line = await self._reader.line(_max_line)
            if line.flaw is not None:
                await self._say("500 5.5.2 the line is too long or does not end with CRLF")
                return
            try:
                command = commands.parse_command(line.octets)
                await self._say(await self._answer(command.verb, command.argument))
            except BadCommand as error:
                await self._say(error.reply)
                continue
            if command.verb == "QUIT":
                return

    async def _read_more(self) -> None:
        async with asyncio.timeout(IDLE_S):
            octets = await self._stream.read(READ_SIZE)
        if octets:
            self._reader.feed(octets, cast("asyncio.Transport", self._writer.transport))
        else:
            self._reader.end()

    async def _say(self, reply: str) -> None:
        self._writer.write(reply.encode() + b"\r\n")
        async with asyncio.timeout(IDLE_S):
            await self._writer.drain()

    async def _answer(self, verb: str, argument: str) -> str:
        match verb:
            case "EHLO":
                self._mail = None
                offers = (self._host.domain, f"SIZE {self._host.max_bytes}", "8BITMIME", "SMTPUTF8")
                return "".join(f"250-{offer}\r\n" for offer in offers) + "250 ENHANCEDSTATUSCODES"
            case "HELO":
                self._mail = None
                return f"250 {self._host.domain}"
            case "MAIL":
                return self._begin(argument)
            case "RCPT":
                return await self._recipient(argument)
            case "DATA":
                return await self._data()
            case "RSET" | "NOOP":
                self._mail = None if verb == "RSET" else self._mail
                return "250 2.0.0 ok"
            case "QUIT":
                return "221 2.0.0 bye"
        return "502 5.5.1 no such command here"

    def _begin(self, argument: str) -> str:
        asked = commands.parse_mail(argument, extended=True, max_octets=self._host.max_bytes)
        self._mail = _SimulatedMail(self._host.origin(asked.sender), asked.smtputf8)
        return "250 2.1.0 ok"

    async def _recipient(self, argument: str) -> str:
        if self._mail is None:
            return _OUT_OF_ORDER
        address = commands.parse_rcpt(argument, smtputf8=self._mail.smtputf8, extended=True)
        if len(self._mail.recipients) >= MAX_RECIPIENTS:
            return "452 4.5.3 too many recipients"
        if address.rpartition("@")[2].lower() != self._host.domain:
            return f"550 5.7.1 only {self._host.domain} is simulated here"
        part = simulated_outcome(address)
        match part:
            case None:
                known = ", ".join(SimulatedOutcome)
                return f"550 5.1.1 no such simulator recipient; there are {known}"
            case SimulatedOutcome.BOUNCED:
                return "550 5.1.1 simulated: no such user"
            case SimulatedOutcome.DEFERRED if not await self._was_tried(self._mail.origin, address):
                return "452 4.2.2 simulated: mailbox full at the first attempt, taken at the next"
        self._mail.recipients.append(part)
        return "250 2.1.5 ok"

    async def _was_tried(self, message: ReturnPathOrigin | None, address: str) -> bool:
        try:
            return message is not None and await self._host.was_tried(message, address)
        except DatabaseUnavailable:
            return False  # stay deferred until the record can be read

    async def _data(self) -> str:
        if self._mail is None or not self._mail.recipients:
            return _OUT_OF_ORDER
        await self._say("354 go on")
        async with asyncio.timeout(CONTENT_S):
            size = await self._reader.skip_content(self._host.max_bytes)
        taken, self._mail = self._mail.recipients, None
        if size > self._host.max_bytes:
            return f"552 5.3.4 more than {self._host.max_bytes} octets"
        if SimulatedOutcome.SLOW in taken:
            await asyncio.sleep(self._host.slow_s)
        follows = "; a complaint follows" if SimulatedOutcome.COMPLAINED in taken else ""
        return f"250 2.0.0 simulated: delivered{follows}"


def _max_line(_beginning: bytes) -> int:
    return MAX_LINE
