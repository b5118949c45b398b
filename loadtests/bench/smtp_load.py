"""The load process for SMTP servers: submission, the MX, and other mail servers, on sessions that stay open.

Run by the bench as `python -m loadtests.bench.smtp_load`, which reads an SmtpTarget and then LoadOrders from standard
input, and answers each order with a LoadResult on standard output.
"""

import asyncio
import ssl
import time
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import uvloop
from msgspec import Struct, structs

from engine.authentication import dkim_signing as dkim
from engine.mail.address import Mailbox
from engine.mail.compose import Draft, compose
from loadtests.bench.generator import OrderHandler, carry_out, serve
from loadtests.bench.load import LoadOrder, LoadResult
from loadtests.kit.message import HTML, SUBJECT, TEXT

SELECTOR: Final = "bench"
_TO: Final = "@@to@@"
_CONNECT_S: Final = 30.0


class SignedMails(Struct, frozen=True):
    """Messages to one recipient, signed with DKIM by sender domains in turn."""

    recipient: str
    domains: list[str]
    key: str  # file: the private key of all domains, DER


class SmtpTarget(Struct, frozen=True, kw_only=True):
    """The server to send to. Messages are those of `mails`, or unsigned ones to numbered recipients."""

    host: str
    port: int
    connections: int
    folder: str  # for the times of each message
    mails: SignedMails | None = None
    sender: str = ""  # of unsigned messages
    domains: int = 1  # recipients of unsigned messages lie under bench-0.test … bench-<domains - 1>.test
    tls: Literal["none", "starttls", "implicit"] = "none"
    key: str = ""  # API key to log in with
    each: int = 0  # messages per session, then another is opened; 0: no limit
    idle: int = 0  # sessions that stay open and say nothing
    pipelined: bool = True  # MAIL, RCPT and DATA in one write where the server offers it (RFC 2920)
    opened: bool = True  # sessions open before the first order, else with the first order that needs them


class LoadMail(Struct, frozen=True):
    """A message, ready to send."""

    sender: bytes
    recipient: bytes
    content: bytes  # dot-stuffed, with the final dot


class SmtpLoadSession:
    """An SMTP session that sends the mails of the current order."""

    def __init__(self, target: SmtpTarget, mail: Callable[[int], LoadMail]) -> None:
        self._target = target
        self._mail = mail
        self._context = _context() if target.tls != "none" else None
        self._is_pipelined = self._takes_size = False
        self._sent = 0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect, greet and log in, unless the session is open and takes another message."""
        if self._writer is not None and not (self._target.each and self._sent == self._target.each):
            return
        if self._writer is not None:
            await self._ask(b"QUIT")
            self.abort()
        async with asyncio.timeout(_CONNECT_S):
            implicit = self._context if self._target.tls == "implicit" else None
            self._reader, self._writer = await asyncio.open_connection(
                self._target.host, self._target.port, ssl=implicit
            )
            await self._greet()
        self._sent = 0

    async def send(self, number: int, _count: int) -> bytes | None:
        """Send one message; return None if it was accepted, else the first refusal."""
        mail = self._mail(number)
        self._sent += 1
        size = b" SIZE=%d" % len(mail.content) if self._takes_size else b""
        envelope = (b"MAIL FROM:<%b>%b" % (mail.sender, size), b"RCPT TO:<%b>" % mail.recipient, b"DATA")
        for reply in await self._replies(envelope):
            if reply[:1] not in b"23":
                return reply
        assert self._writer is not None
        self._writer.write(mail.content)
        reply = (await self._reply())[-1]
        return None if reply.startswith(b"250") else reply

    def abort(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    async def _greet(self) -> None:
        self._expect(await self._reply(), b"220")
        keywords = self._expect(await self._ask(b"EHLO client.test"), b"250")
        if self._target.tls == "starttls":
            assert self._writer is not None
            assert self._context is not None
            self._expect(await self._ask(b"STARTTLS"), b"220")
            await self._writer.start_tls(self._context)
            keywords = self._expect(await self._ask(b"EHLO client.test"), b"250")
        offered = {line[4:].split(maxsplit=1)[0].upper() for line in keywords}
        self._is_pipelined = self._target.pipelined and b"PIPELINING" in offered
        self._takes_size = b"SIZE" in offered
        if self._target.key:
            plain = b64encode(b"\0apikey\0" + self._target.key.encode())
            self._expect(await self._ask(b"AUTH PLAIN " + plain), b"235")

    async def _replies(self, commands: tuple[bytes, ...]) -> list[bytes]:
        """Return the last line of each reply; without PIPELINING, up to the first refusal."""
        if self._is_pipelined:
            assert self._writer is not None
            self._writer.write(b"\r\n".join((*commands, b"")))
            return [(await self._reply())[-1] for _ in commands]
        replies: list[bytes] = []
        for command in commands:
            replies.append((await self._ask(command))[-1])
            if replies[-1][:1] not in b"23":
                break
        return replies

    async def _ask(self, command: bytes) -> list[bytes]:
        assert self._writer is not None
        self._writer.write(command + b"\r\n")
        return await self._reply()

    async def _reply(self) -> list[bytes]:
        """Return the lines of one reply."""
        assert self._reader is not None
        lines: list[bytes] = []
        while line := await self._reader.readline():
            lines.append(line)
            if line[3:4] != b"-":
                return lines
        raise ConnectionResetError("the mail server closed the connection")

    @staticmethod
    def _expect(reply: list[bytes], code: bytes) -> list[bytes]:
        if not reply[-1].startswith(code):
            raise RuntimeError(f"the server answered {reply[-1]!r}")
        return reply


class SmtpLoader:
    """Carries out orders over all sessions."""

    def __init__(self, target: SmtpTarget) -> None:
        self._target = target
        self._signed: dict[int, LoadMail] = {}  # of the current order
        self._keys: list[dkim.SigningKey] = []
        if target.mails is not None:
            der = Path(target.mails.key).read_bytes()
            self._keys = [dkim.load(domain, SELECTOR, der) for domain in target.mails.domains]
        else:
            self._before, self._after = _around_recipient(target.sender)
        plain = structs.replace(target, tls="none")
        self._idle = [SmtpLoadSession(plain, self._mail) for _ in range(target.idle)]
        self._sessions = [SmtpLoadSession(target, self._mail) for _ in range(target.connections)]

    async def open(self) -> None:
        """Open all sessions."""
        for session in (*self._idle, *self._sessions):
            await session.open()

    async def send(self, order: LoadOrder) -> LoadResult:
        """Carry out an order; signed messages are composed before its clock starts."""
        if self._target.mails is not None:
            numbers = range(order.first, order.first + order.count)
            self._signed = {number: self._composed(number, self._target.mails.recipient) for number in numbers}
        return await carry_out(order, self._sessions, self._target.folder)

    def _mail(self, number: int) -> LoadMail:
        if self._target.mails is not None:
            return self._signed[number]
        to = b"m%010d@bench-%d.test" % (number, number % self._target.domains)
        return LoadMail(self._target.sender.encode(), to, b"%b%b%b.\r\n" % (self._before, to, self._after))

    def _composed(self, number: int, recipient: str) -> LoadMail:
        key = self._keys[number % len(self._keys)]
        draft = Draft(
            message_id=f"m{number:010d}@{key.domain}", date=datetime.now(UTC), to=(Mailbox("", recipient),),
            sender=Mailbox("Waybill Bench", f"shop@{key.domain}"), subject=f"{SUBJECT} ({number})", text=TEXT,
            html=HTML,
        )  # fmt: skip
        mime = compose(draft).mime
        signed = dkim.sign(mime, [key], at=int(time.time())) + mime
        content = signed.replace(b"\r\n.", b"\r\n..") + b".\r\n"
        return LoadMail(f"shop@{key.domain}".encode(), recipient.encode(), content)


async def prepare(target: SmtpTarget) -> OrderHandler:
    """Return the function that carries out an order, with all sessions open if the target says so."""
    loader = SmtpLoader(target)
    if target.opened:
        await loader.open()
    return loader.send


def _around_recipient(sender: str) -> tuple[bytes, bytes]:
    """Return the message, dot-stuffed (RFC 5321 4.5.2) and without the final dot: before and after the recipient."""
    draft = Draft(
        message_id="bench@client.test", date=datetime.now(UTC), sender=Mailbox("Waybill Bench", sender),
        to=(Mailbox("", _TO),), subject=SUBJECT, text=TEXT, html=HTML,
    )  # fmt: skip
    before, _, after = compose(draft).mime.replace(b"\r\n.", b"\r\n..").partition(_TO.encode())
    return before, after


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


if __name__ == "__main__":
    uvloop.run(serve(SmtpTarget, prepare))
