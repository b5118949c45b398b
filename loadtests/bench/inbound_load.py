"""The client process of the bench of incoming mail: signed messages over SMTP, in clear text or over STARTTLS.

The bench runs `python -m loadtests.bench.inbound_load`, which reads an InboundTarget and then LoadOrders from standard
input and answers each order with a LoadResult on standard output. Messages are composed and signed before the clock of
an order starts.
"""

import asyncio
import ssl
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import uvloop
from msgspec import Struct

from engine.authentication import dkim_signing as dkim
from engine.mail.address import Mailbox
from engine.mail.compose import Draft, compose
from loadtests.bench.carry_out import OrderHandler, carry_out, serve
from loadtests.bench.load import LoadOrder, LoadResult
from loadtests.bench.message import HTML, SUBJECT, TEXT

SELECTOR: Final = "bench"
_CONNECT_S: Final = 30.0


class InboundTarget(Struct, frozen=True, kw_only=True):
    """The server to send to, and the keys to sign with. `each`: messages per session, then another opens; 0: all."""

    host: str
    port: int
    recipient: str
    domains: list[str]  # of the senders, in turn
    key: str  # file: the private key of all of them, DER
    connections: int
    each: int = 0
    tls: bool = False
    idle: int = 0  # sessions that stay open and say nothing
    folder: str  # for the times of each message


class SignedMail(Struct, frozen=True):
    """A message, ready to send."""

    sender: str
    content: bytes  # dot-stuffed, with the final dot


class BenchInboundSession:
    """An SMTP session."""

    def __init__(self, target: InboundTarget, context: ssl.SSLContext | None) -> None:
        self._target = target
        self._context = context
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._sent = 0

    async def open(self) -> None:
        """Connect and greet, over TLS if the target wants it."""
        async with asyncio.timeout(_CONNECT_S):
            self._reader, self._writer = await asyncio.open_connection(self._target.host, self._target.port)
            await self._expect(b"220")
            await self._command(b"EHLO bench.test\r\n", b"250")
            if self._context is not None:
                await self._command(b"STARTTLS\r\n", b"220")
                await self._writer.start_tls(self._context)
                await self._command(b"EHLO bench.test\r\n", b"250")
        self._sent = 0

    async def send(self, mail: SignedMail) -> bytes:
        """Send one message with pipelined commands; return the final reply, or that of the first refused command."""
        if self._writer is None or (self._target.each and self._sent == self._target.each):
            await self.close()
            await self.open()
        assert self._writer is not None
        self._sent += 1
        words = (mail.sender.encode(), len(mail.content), self._target.recipient.encode())
        self._writer.write(b"MAIL FROM:<%b> SIZE=%d\r\nRCPT TO:<%b>\r\nDATA\r\n" % words)
        replies = [await self._reply() for _ in range(3)]
        for reply in replies:
            if reply[:1] not in b"23":
                return reply
        self._writer.write(mail.content)
        return await self._reply()

    async def close(self) -> None:
        """Send QUIT and close the connection."""
        if self._writer is not None:
            self._writer.write(b"QUIT\r\n")
            await self._reply()
            self._writer.close()
            self._writer = None

    async def _command(self, command: bytes, code: bytes) -> None:
        assert self._writer is not None
        self._writer.write(command)
        await self._expect(code)

    async def _expect(self, code: bytes) -> None:
        reply = await self._reply()
        if not reply.startswith(code):
            raise RuntimeError(f"the server answered {reply!r}")

    async def _reply(self) -> bytes:
        assert self._reader is not None
        while True:
            line = await self._reader.readline()
            if not line:
                raise ConnectionResetError("the server closed the session")
            if line[3:4] != b"-":
                return line


class InboundLoader:
    """Carries out orders over all sessions."""

    def __init__(self, target: InboundTarget) -> None:
        self._target = target
        der = Path(target.key).read_bytes()
        self._keys = [dkim.load(domain, SELECTOR, der) for domain in target.domains]
        context = _context() if target.tls else None
        self._clients = [BenchInboundSession(target, context) for _ in range(target.connections)]
        self._idle = [BenchInboundSession(target, None) for _ in range(target.idle)]

    async def open(self) -> None:
        """Open all sessions."""
        for client in (*self._idle, *self._clients):
            await client.open()

    async def send(self, order: LoadOrder) -> LoadResult:
        """Send the messages of an order: as fast as replies come, or at its rate."""
        mails = [self._signed(order.first + place) for place in range(order.count)]
        clients = [_OrderedSession(client, mails, order.first) for client in self._clients]
        file = Path(self._target.folder) / f"inbound-times-{order.first}.f64"
        return await carry_out(order, clients, file, accepted=b"250 ")

    def _signed(self, number: int) -> SignedMail:
        key = self._keys[number % len(self._keys)]
        draft = Draft(
            message_id=f"m{number:010d}@{key.domain}",
            date=datetime.now(UTC),
            sender=Mailbox("Waybill Bench", f"shop@{key.domain}"),
            to=(Mailbox("", self._target.recipient),),
            subject=f"{SUBJECT} ({number})",
            text=TEXT,
            html=HTML,
        )
        mime = compose(draft).mime
        signed = dkim.sign(mime, [key], at=int(time.time())) + mime
        return SignedMail(f"shop@{key.domain}", signed.replace(b"\r\n.", b"\r\n..") + b".\r\n")


class _OrderedSession(Struct, frozen=True):
    """A session that sends the mails of one order, which are numbered from `first`."""

    session: BenchInboundSession
    mails: Sequence[SignedMail]
    first: int

    async def send(self, number: int) -> bytes:
        return await self.session.send(self.mails[number - self.first])


async def prepare(target: InboundTarget) -> OrderHandler:
    """Open all sessions; return the function that carries out an order."""
    loader = InboundLoader(target)
    await loader.open()
    return loader.send


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


if __name__ == "__main__":
    uvloop.run(serve(InboundTarget, prepare))
