"""Attack the MX as hostile clients do, and check its answers; each attack returns "", or what went wrong."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import count
from typing import Any, Final

from msgspec import Struct

from loadtests.kit.smtp_client import RefusedCommand, SmtpSession, trusting_context

# Sequences that some server takes for the end of the data ("SMTP smuggling"); RFC 5321 4.1.1.4 knows CRLF.CRLF only.
FALSE_ENDS: Final = (
    b"\n.\n", b"\n.\r", b"\r.\n", b"\r.\r", b"\n.\r\n", b"\r.\r\n", b"\r\n.\n", b"\r\n.\r", b"\r\n.\r\r\n",
    b"\r\r\n.\r\r\n", b"\r\n\0.\r\n",
)  # fmt: skip
BAD_OCTETS: Final = (b"a\0b", b"a\nb", b"a\rb")
SMUGGLED: Final = "smuggled"  # subject of what must never be stored
MANY_RECIPIENTS: Final = 2_000
LARGE: Final = 40 * 1024 * 1024 - 4_096
LARGE_S: Final = 120.0
_SENDER: Final = b"evil@hostile.test"
_UNKNOWN: Final = 12
_numbers = count()


class AttackTarget(Struct, frozen=True):
    """The port of the MX and an address that takes mail."""

    port: int
    recipient: str


Attack = Callable[[AttackTarget], Coroutine[Any, Any, str]]


@asynccontextmanager
async def raw_session(port: int, source: str = "127.0.0.1") -> AsyncIterator[SmtpSession]:
    """Open a session from an address of the loopback network, up to the reply to EHLO."""
    async with await SmtpSession.connect(port, source=source) as session:
        await session.reply()
        await session.say(b"EHLO hostile.test\r\n")
        yield session


async def false_end(target: AttackTarget) -> str:
    """Hide a second message behind a false end of data, or send bad octets: one refusal for all of it."""
    number = next(_numbers)
    flaw = (*FALSE_ENDS, *BAD_OCTETS)[number % (len(FALSE_ENDS) + len(BAD_OCTETS))]
    async with raw_session(target.port) as session:
        if refused := await _to_data(session, target):
            return refused
        hidden = (
            b"MAIL FROM:<%b>\r\nRCPT TO:<%b>\r\nDATA\r\nSubject: %b\r\n\r\nhidden\r\n.\r\n"
            % (_SENDER, target.recipient.encode(), SMUGGLED.encode())
        )  # fmt: skip
        reply = await session.say(b"Subject: %b\r\n\r\nbody" % SMUGGLED.encode() + flaw + hidden)
        after = await session.say(b"NOOP\r\n")
    expected = reply.startswith("550 5.6.11") and after.startswith("250 2.0.0")
    return "" if expected else f"{flaw!r}: {reply}, then {after}"


async def bare_line_feeds(target: AttackTarget) -> str:
    """End commands with a bare LF: none of them may be obeyed."""
    async with raw_session(target.port) as session:
        reply = await session.say(b"MAIL FROM:<%b>\nRCPT TO:<%b>\nDATA\n" % (_SENDER, target.recipient.encode()))
    return "" if reply[:1] in ("5", "4") else f"a command with a bare LF: {reply}"


async def many_recipients(target: AttackTarget) -> str:
    """Name 2,000 recipients: 100 are taken, the rest of 1,000 gets 452, and then the session ends."""
    local, _, domain = target.recipient.partition("@")
    commands = b"".join(
        b"RCPT TO:<%b+%d@%b>\r\n" % (local.encode(), n, domain.encode()) for n in range(MANY_RECIPIENTS)
    )
    async with raw_session(target.port, "127.0.0.2") as session:
        session.writer.write(b"MAIL FROM:<%b>\r\n" % _SENDER + commands)
        replies: Counter[str] = Counter()
        with suppress(ConnectionError):
            while reply := await session.reply():
                replies[reply[:9]] += 1
    wanted = {"250 2.1.0": 1, "250 2.1.5": 100, "452 4.5.3": 900, "421 4.7.0": 1}
    return "" if replies == wanted else f"2,000 recipients: {dict(replies)}"


async def unknown_recipients(target: AttackTarget) -> str:
    """Try out addresses: the session ends with the tenth, or earlier once the network has tried a hundred."""
    domain = target.recipient.partition("@")[2].encode()
    number = next(_numbers)
    async with raw_session(target.port, "127.0.0.3") as session:
        await session.say(b"MAIL FROM:<%b>\r\n" % _SENDER)
        for attempt in range(_UNKNOWN):
            reply = await session.say(b"RCPT TO:<guess%d-%d@%b>\r\n" % (number, attempt, domain))
            if reply.startswith("421 4.7.0"):
                return "" if attempt < 10 else f"421 after {attempt + 1} unknown recipients"
            if not reply.startswith("550 5.1.1"):
                return f"an unknown recipient: {reply}"
    return f"{_UNKNOWN} unknown recipients, and no 421"


async def injected_behind_starttls(target: AttackTarget) -> str:
    """Send commands in clear text behind STARTTLS: none of them may be obeyed once TLS is on (RFC 3207 5)."""
    async with raw_session(target.port) as session:
        reply = await session.say(b"STARTTLS\r\nEHLO injected.test\r\nMAIL FROM:<%b>\r\n" % _SENDER)
        if not reply.startswith("220"):
            return "" if reply[:1] in ("5", "4") else f"STARTTLS with commands behind it: {reply}"
        try:
            await session.writer.start_tls(trusting_context())
            reply = await session.say(b"RCPT TO:<%b>\r\n" % target.recipient.encode())
        except (OSError, EOFError):
            return ""  # the server ended the session
    return "" if not reply or reply.startswith("503") else f"injected commands were obeyed: {reply}"


async def slow_client(target: AttackTarget) -> str:
    """Send a message an octet a second until the server ends the session."""
    async with raw_session(target.port, f"127.0.2.{1 + next(_numbers) % 250}") as session:
        if refused := await _to_data(session, target):
            return refused
        with suppress(OSError):
            while not (session.reader.at_eof() or session.writer.is_closing()):
                session.writer.write(b"x")
                await asyncio.sleep(1.0)
    return ""


async def silent_client(target: AttackTarget) -> str:
    """Stay connected and say nothing; ends when it is cancelled or the server ends the session."""
    async with raw_session(target.port, f"127.0.3.{1 + next(_numbers) % 250}") as session:
        with suppress(OSError):
            await session.reader.read()
    return ""


async def large_message(target: AttackTarget) -> str:
    """Send a message of almost 40 MiB from an own network; return its reply, "" for none."""
    number = next(_numbers)
    line = b"%076d\r\n" % number
    piece = line * (1024 * 1024 // len(line))
    async with raw_session(target.port, f"127.0.4.{1 + number % 250}") as session:
        if refused := await _to_data(session, target):
            return refused
        session.writer.write(b"Subject: large\r\n\r\n")
        for _ in range(LARGE // len(piece)):
            session.writer.write(piece)
            await session.writer.drain()
        session.writer.write(b".\r\n")
        return await session.reply(LARGE_S)


class ReportFlood:
    """Strangers' large mails to report addresses; each mail names four of them."""

    def __init__(self, port: int, mail_host: str, *, size: int) -> None:
        line = b"%076d\r\n" % 0
        bounces = f"bounces.{mail_host}"
        addresses = (f"b+anything@{bounces}", f"dmarc+x@{mail_host}", f"tls+x@{mail_host}", f"fbl@{mail_host}")
        self._port = port
        self._body = line * (size // len(line))
        self._commands = [b"MAIL FROM:<%b>\r\n" % _SENDER, *(b"RCPT TO:<%b>\r\n" % one.encode() for one in addresses)]

    def session(self, network: int) -> AbstractAsyncContextManager[SmtpSession]:
        """Open a session from one of 250 networks."""
        return raw_session(self._port, f"127.0.5.{1 + network}")

    async def send(self, session: SmtpSession) -> str:
        """Send one mail that nobody has sent before; return its reply, "" for none."""
        for command in (*self._commands, b"DATA\r\n"):
            reply = await session.say(command)
        if not reply.startswith("354"):
            return reply
        session.writer.write(b"Subject: report\r\n\r\n%d\r\n" % next(_numbers))
        session.writer.write(self._body)
        await session.writer.drain()
        session.writer.write(b".\r\n")
        return await session.reply(LARGE_S)


async def _to_data(session: SmtpSession, target: AttackTarget) -> str:
    """Send an envelope and DATA; return an unexpected reply, or ""."""
    try:
        await session.envelope(_SENDER.decode(), [target.recipient])
    except RefusedCommand as error:
        return f"to the envelope: {error}"
    return ""
