"""SMTP submission inside the test's own loop, on real sockets with its own certificate; and clients for it."""

import asyncio
import contextlib
import smtplib
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Sequence
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from engine.base.settings import Settings
from loadtests.kit.smtp_client import trusting_context as trusting
from loadtests.ports import reserve_port
from mta.submission.process import SubmissionServices, close_services, open_services
from ops.local import certificate
from tests.harness.accounts import TestAccount
from tests.harness.patience import PATIENCE_S

Value = TypeVar("Value")


class TestRelay:
    """A running server of SMTP submission."""

    __test__ = False

    def __init__(self, settings: Settings, services: SubmissionServices) -> None:
        self.settings = settings
        self.services = services
        self.clients: list[Client] = []

    @property
    def port(self) -> int:
        """Return the port for STARTTLS."""
        return self.settings.submission_port

    @property
    def tls_port(self) -> int:
        """Return the port with TLS from the first octet."""
        return self.settings.submission_tls_port

    async def client(self, *, tls: bool = False, source: str | None = None) -> "Client":
        """Open a connection without sending anything; it closes with the server at the latest."""
        opened = await Client.open(self.tls_port if tls else self.port, tls=tls, source=source)
        self.clients.append(opened)
        return opened

    async def secured(self, *, tls: bool = True) -> "Client":
        """Open a connection and send EHLO over TLS."""
        client = await self.client(tls=tls)
        await client.reply()
        if not tls:
            await client.say("EHLO client.test")
            await client.say("STARTTLS")
            await client.start_tls()
        await client.say("EHLO client.test")
        return client

    async def logged_in(self, account: TestAccount, *, tls: bool = True) -> "Client":
        """Open a connection and log in."""
        client = await self.secured(tls=tls)
        assert (await client.log_in(account.token)).startswith("235 ")
        return client


@contextlib.asynccontextmanager
async def relaying(settings: Settings, folder: Path, **changes: Any) -> AsyncIterator[TestRelay]:
    """Serve on free ports; `changes` are settings."""
    own = msgspec.structs.replace(
        settings,
        **{
            "submission_port": reserve_port(),
            "submission_tls_port": reserve_port(),
            "relay_login_delay_s": 0.05,
            "drain_s": 1.0,
            "submission_open": False,  # as in live mode
        }
        | changes,
    )
    files = certificate.ensure(folder, own.mail_host)
    services = await open_services(own, *files)
    stamps = asyncio.create_task(services.stamps.run())
    services.server.start()
    running = TestRelay(own, services)
    try:
        yield running
    finally:
        stamps.cancel()
        for client in running.clients:
            await client.close()
        await close_services(services, 0)


class Client:
    """A client that sends exactly the given octets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int, *, tls: bool = False, source: str | None = None) -> Self:
        """Connect to loopback, from the address `source`."""
        return cls(
            *await asyncio.open_connection(
                "127.0.0.1", port, ssl=trusting() if tls else None, local_addr=(source, 0) if source else None
            )
        )

    async def write(self, octets: bytes) -> None:
        """Say these octets and wait for nothing."""
        self.writer.write(octets)
        await self.writer.drain()

    async def reply(self) -> str:
        """The next reply, its lines joined by line feeds; "" when the connection has ended."""
        lines: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    line = await self.reader.readline()
                except ConnectionError:
                    line = b""
                if not line:
                    return "\n".join(lines)
                assert line.endswith(b"\r\n"), line
                lines.append(line[:-2].decode())
                if line[3:4] == b" ":
                    return "\n".join(lines)

    async def say(self, line: str) -> str:
        """A command and its reply."""
        await self.write(line.encode() + b"\r\n")
        return await self.reply()

    async def start_tls(self) -> None:
        """The handshake after STARTTLS was answered."""
        await self.writer.start_tls(trusting())

    async def log_in(self, password: str) -> str:
        """AUTH PLAIN."""
        return await self.say("AUTH PLAIN " + b64encode(b"\0apikey\0" + password.encode()).decode())

    async def envelope(self, account: TestAccount, *to: str) -> None:
        """MAIL and RCPT, all accepted, and DATA, answered 354."""
        assert (await self.say(f"MAIL FROM:<{account.sender}>")).startswith("250 ")
        for address in to or ("ann@people.test",):
            assert (await self.say(f"RCPT TO:<{address}>")).startswith("250 ")
        assert (await self.say("DATA")).startswith("354 ")

    async def send(self, account: TestAccount, content: bytes, *to: str) -> str:
        """Perform a complete transaction; `content` is sent as given, without the final dot."""
        await self.envelope(account, *to)
        await self.write(content + b".\r\n")
        return await self.reply()

    async def close(self) -> None:
        """Leave."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def ended(self) -> bool:
        """Return True if the server closed the connection without another reply."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True


def message(account: TestAccount, *, head: str = "", body: str = "Hello!\r\n", to: str = "ann@people.test") -> bytes:
    """A small message; `head` are further fields, each with its CRLF."""
    return f"From: {account.sender}\r\nTo: {to}\r\nSubject: Hello\r\n{head}\r\n{body}".encode()


def composed(account: TestAccount, **fields: str) -> EmailMessage:
    """Return the message composed by the standard library."""
    made = EmailMessage()
    for name, value in ({"From": account.sender, "To": "ann@people.test", "Subject": "Hello"} | fields).items():
        made[name.replace("_", "-")] = value
    made.set_content("Hello!\n")
    return made


async def by_smtplib(
    relay: TestRelay, account: TestAccount, work: Callable[[smtplib.SMTP], Value], *, tls: bool = False
) -> Value:
    """Do something with Python's own client, logged in, in a thread."""

    def run() -> Value:
        context = trusting()
        if tls:
            with smtplib.SMTP_SSL("127.0.0.1", relay.tls_port, timeout=PATIENCE_S, context=context) as client:
                client.login("apikey", account.token)
                return work(client)
        with smtplib.SMTP("127.0.0.1", relay.port, timeout=PATIENCE_S) as plain:
            plain.starttls(context=context)
            plain.login("apikey", account.token)
            return work(plain)

    return await asyncio.to_thread(run)


def many(count: int, domain: str = "people.test") -> Sequence[str]:
    """So many addresses."""
    return [f"p{number}@{domain}" for number in range(count)]
