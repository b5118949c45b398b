"""The mail server behind the simulator's recipients: on a loopback port of each delivering process's own.

Mail for them takes the whole way of a delivery up to here and ends: content is counted, never kept. Strangers can't
reach it, and whoever is on this host learns nothing and moves nothing by talking to it. It offers no PIPELINING, so
that no other message waits on a connection behind a slow one.
"""

import asyncio
import re

import asyncpg
from engine.store.database_errors import DatabaseUnavailable
from msgspec import Struct, field

from engine.base.settings import MEBIBYTE, Settings
from engine.mail import return_path
from engine.mail.return_path import ReturnPathOrigin
from engine.mail.simulator import Part, domain_of, part_of
from engine.store.queries import Queries

HOST = "127.0.0.1"
SLOW_S = 10.0
IDLE_S = 60.0  # our own connections are closed after 5 s without mail
CONTENT_S = 600.0
LOOK_UP_S = 5.0
END_S = 2.0
MAX_LINE = 4_096  # octets of a command: RFC 5321 4.5.3.1.4 has 512, SMTPUTF8 and parameters make it longer
MAX_RECIPIENTS = 1_000
SPARE_SESSIONS = 16  # beyond those that the process itself may have open

_PATH = re.compile(r"(?:from|to):\s*<([^<>]*)>(.*)", re.IGNORECASE | re.DOTALL)
_SIZE = re.compile(r"\bsize=(\d{1,20})\b", re.IGNORECASE | re.ASCII)
_END = b"\r\n.\r\n"
_OUT_OF_ORDER = "503 5.5.1 not at this point of the conversation"

_ATTEMPTS_MADE = Queries.beside(__file__, "server.sql").command("attempts_made")


class Simulator:
    """The server of one process: made by `start`, ended by `close`."""

    @classmethod
    async def start(cls, settings: Settings, pool: asyncpg.Pool, *, slow_s: float = SLOW_S) -> "Simulator":
        """A server that takes connections; `slow_s` is how long `slow@` keeps its sender waiting."""
        self = cls(settings, pool, slow_s)
        self._server = await asyncio.start_server(self._serve, HOST, 0, limit=MAX_LINE)
        return self

    def __init__(self, settings: Settings, pool: asyncpg.Pool, slow_s: float) -> None:
        if settings.key_pepper is None:
            raise RuntimeError("the simulator needs WAYBILL_KEY_PEPPER")
        self.domain = domain_of(settings.mail_host)
        self.slow_s = slow_s
        self.most_bytes = settings.max_message_bytes + MEBIBYTE  # with the signature and the doubled dots
        self._path_key = return_path.key_of(settings.key_pepper)
        self._pool = pool
        self._most_sessions = settings.mta_connections + SPARE_SESSIONS
        self._server: asyncio.Server
        self._sessions: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Take no more connections and drop those there are."""
        self._server.close()
        for session in self._sessions:
            session.cancel()
        if self._sessions:
            await asyncio.wait(self._sessions, timeout=END_S)

    def origin(self, address: str) -> ReturnPathOrigin | None:
        """What a return path names, where it is one of ours."""
        return return_path.origin(self._path_key, address)

    async def was_tried(self, message: ReturnPathOrigin, address: str) -> bool:
        """Whether an attempt at this recipient is on record. By the record and not by the message's age: a message
        may wait for its date, or be held, for as long as it likes before its first attempt."""
        async with asyncio.timeout(LOOK_UP_S):
            (row,) = await _ATTEMPTS_MADE.records(self._pool, message.message_id, address)
        return bool(row["attempts"])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if len(self._sessions) >= self._most_sessions:
                writer.write(b"421 4.3.2 too many connections\r\n")
                return
            self._sessions.add(task)
            await _Session(self, reader, writer).run()
        except (OSError, TimeoutError, EOFError, ValueError):  # a peer that went, fell silent or never ends a line
            pass
        finally:
            self._sessions.discard(task)
            writer.close()


class _Mail(Struct):
    """A transaction."""

    origin: ReturnPathOrigin | None
    recipients: list[Part] = field(default_factory=list)


class _Session:
    """One connection."""

    def __init__(self, host: Simulator, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = host
        self._reader = reader
        self._writer = writer
        self._mail: _Mail | None = None

    async def run(self) -> None:
        """Answer until the client has enough."""
        await self._say(f"220 {self._host.domain} ESMTP simulator")
        while True:
            async with asyncio.timeout(IDLE_S):
                line = await self._reader.readline()
            if not line.endswith(b"\n"):
                return
            verb, _, rest = line.decode("utf-8", "replace").strip().partition(" ")
            await self._say(await self._answer(verb.upper(), rest))
            if verb.upper() == "QUIT":
                return

    async def _say(self, reply: str) -> None:
        self._writer.write(reply.encode() + b"\r\n")
        async with asyncio.timeout(IDLE_S):
            await self._writer.drain()

    async def _answer(self, verb: str, rest: str) -> str:
        match verb:
            case "EHLO":
                self._mail = None
                offers = (self._host.domain, f"SIZE {self._host.most_bytes}", "8BITMIME", "SMTPUTF8")
                return "".join(f"250-{offer}\r\n" for offer in offers) + "250 ENHANCEDSTATUSCODES"
            case "HELO":
                self._mail = None
                return f"250 {self._host.domain}"
            case "MAIL":
                return self._begin(rest)
            case "RCPT":
                return await self._recipient(rest)
            case "DATA":
                return await self._data()
            case "RSET" | "NOOP":
                self._mail = None if verb == "RSET" else self._mail
                return "250 2.0.0 ok"
            case "QUIT":
                return "221 2.0.0 bye"
        return "502 5.5.1 no such command here"

    def _begin(self, rest: str) -> str:
        path = _PATH.match(rest)
        if path is None:
            return "501 5.5.4 MAIL FROM:<address> is wanted"
        size = _SIZE.search(path[2])
        if size is not None and int(size[1]) > self._host.most_bytes:
            return self._too_large()
        self._mail = _Mail(self._host.origin(path[1]))
        return "250 2.1.0 ok"

    async def _recipient(self, rest: str) -> str:
        path = _PATH.match(rest)
        if self._mail is None:
            return _OUT_OF_ORDER
        if path is None:
            return "501 5.5.4 RCPT TO:<address> is wanted"
        if len(self._mail.recipients) >= MAX_RECIPIENTS:
            return "452 4.5.3 too many recipients"
        if path[1].rpartition("@")[2].lower() != self._host.domain:
            return f"550 5.7.1 only {self._host.domain} is simulated here"
        part = part_of(path[1])
        match part:
            case None:
                return f"550 5.1.1 no such simulator recipient; there are {', '.join(one.value for one in Part)}"
            case Part.BOUNCED:
                return "550 5.1.1 simulated: no such user"
            case Part.DEFERRED if not await self._is_due(self._mail.origin, path[1]):
                return "452 4.2.2 simulated: mailbox full at the first attempt, taken at the next"
        self._mail.recipients.append(part)
        return "250 2.1.5 ok"

    async def _is_due(self, message: ReturnPathOrigin | None, address: str) -> bool:
        try:
            return message is not None and await self._host.was_tried(message, address)
        except DatabaseUnavailable:
            return False  # it stays a deferral until the record can be read

    async def _data(self) -> str:
        if self._mail is None or not self._mail.recipients:
            return _OUT_OF_ORDER
        await self._say("354 go on")
        async with asyncio.timeout(CONTENT_S):
            size = await self._content()
        taken, self._mail = self._mail.recipients, None
        if size > self._host.most_bytes:
            return self._too_large()
        if Part.SLOW in taken:
            await asyncio.sleep(self._host.slow_s)
        follows = "; a complaint follows" if Part.COMPLAINED in taken else ""
        return f"250 2.0.0 simulated: delivered{follows}"

    async def _content(self) -> int:
        """Read the content away; its octets. Its end is the end of what comes: nothing follows before our reply."""
        size, tail = 0, b"\r\n"
        while not tail.endswith(_END):
            async with asyncio.timeout(IDLE_S):
                chunk = await self._reader.read(MAX_LINE * 16)
            size += len(chunk)
            if not chunk or size > 2 * self._host.most_bytes:
                raise EOFError
            tail = (tail + chunk)[-len(_END) :]
        return size

    def _too_large(self) -> str:
        return f"552 5.3.4 more than {self._host.most_bytes} octets"
