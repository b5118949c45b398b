"""The load process for SMTP servers: submission, the MX, and other mail servers, on sessions that stay open.

Run by the bench as `python -m loadtests.bench.smtp_load`, which reads an SmtpTarget and then LoadOrders from standard
input, and answers each order with a LoadResult on standard output.
"""

import asyncio
import time
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
from loadtests.bench.messages import mime_around
from loadtests.kit.message import HTML, SUBJECT, TEXT
from loadtests.kit.smtp_client import SmtpSession

SELECTOR: Final = "bench"
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
    attached: int = 0  # octets of a random attachment of unsigned messages
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
        self._sent = 0
        self._session: SmtpSession | None = None

    async def open(self) -> None:
        """Connect, greet and log in, unless the session is open and takes another message."""
        target = self._target
        if self._session is not None:
            if not target.each or self._sent < target.each:
                return
            await self._session.say(b"QUIT\r\n")
            self.abort()
        async with asyncio.timeout(_CONNECT_S):
            session = await SmtpSession.connect(target.port, tls=target.tls == "implicit", host=target.host)
            await session.greet("client.test", starttls=target.tls == "starttls", key=target.key or None)
        session.reply_s = None  # an order has a time-out of its own
        self._session, self._sent = session, 0

    async def send(self, number: int, _count: int) -> bytes | None:
        """Send one message; return None if it was accepted, else the first refusal."""
        assert self._session is not None
        session, mail = self._session, self._mail(number)
        self._sent += 1
        size = b" SIZE=%d" % len(mail.content) if b"SIZE" in session.keywords else b""
        commands = [b"MAIL FROM:<%b>%b\r\n" % (mail.sender, size), b"RCPT TO:<%b>\r\n" % mail.recipient, b"DATA\r\n"]
        if self._target.pipelined and b"PIPELINING" in session.keywords:
            session.writer.write(b"".join(commands))
            commands = [b""] * len(commands)
        refusal: str | None = None
        for command in commands:
            reply = _present(await session.say(command))
            if reply[0] not in "23":
                refusal = refusal or reply
                if command:
                    break
        if refusal is None:
            reply = _present(await session.say(mail.content))
            refusal = None if reply.startswith("250") else reply
        return None if refusal is None else refusal.encode()

    def abort(self) -> None:
        """Close the connection."""
        if self._session is not None:
            self._session.writer.close()
        self._session = None


def _present(reply: str) -> str:
    """Return a reply; raises ConnectionResetError if the connection has ended."""
    if not reply:
        raise ConnectionResetError("the mail server closed the connection")
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
            before, after = mime_around(target.sender, target.attached)
            self._before, self._after = _stuffed(before), _stuffed(after)
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
        content = _stuffed(signed) + b".\r\n"
        return LoadMail(f"shop@{key.domain}".encode(), recipient.encode(), content)


async def prepare(target: SmtpTarget) -> OrderHandler:
    """Return the function that carries out an order, with all sessions open if the target says so."""
    loader = SmtpLoader(target)
    if target.opened:
        await loader.open()
    return loader.send


def _stuffed(content: bytes) -> bytes:
    """Return content with leading dots doubled (RFC 5321 4.5.2)."""
    return content.replace(b"\r\n.", b"\r\n..")


if __name__ == "__main__":
    uvloop.run(serve(SmtpTarget, prepare))
