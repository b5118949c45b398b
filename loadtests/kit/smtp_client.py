"""The SMTP client of drills, benches and tests: a session with a server on loopback that can send any octets."""

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Sequence
from typing import Final, Self

REPLY_S: Final = 60.0  # above the time that a hung scanner or a hung database takes to be refused


class RefusedCommand(Exception):  # noqa: N818 - named for what happened
    """A reply with another code than expected; `reply` is its last line, "" for a connection that has ended."""

    def __init__(self, reply: str) -> None:
        super().__init__(reply or "the connection was closed")
        self.reply = reply


class SmtpSession:
    """A connection to an SMTP server. A context manager, which aborts it at the end.

    `stage` names the last step begun: connect, hello, envelope or content. `keywords` are the extensions that the
    server offered last, in upper case. A reply is waited for `reply_s` seconds, without end if that is None.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.stage = "connect"
        self.keywords: set[bytes] = set()
        self.reply_s: float | None = REPLY_S
        self._lines: list[bytes] = []  # of the last reply

    @classmethod
    async def connect(cls, port: int, *, tls: bool = False, source: str | None = None, host: str = "127.0.0.1") -> Self:
        """Connect, over TLS from the first octet if `tls`, from the loopback address `source`."""
        local = None if source is None else (source, 0)
        return cls(
            *await asyncio.open_connection(host, port, ssl=trusting_context() if tls else None, local_addr=local)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self.writer.transport.abort()

    async def greet(self, name: str = "drill.test", *, starttls: bool = False, key: str | None = None) -> None:
        """Read the greeting and send EHLO, over STARTTLS if wanted; log in with an API key. Raises RefusedCommand."""
        await self.expect(b"", "220")
        self.stage = "hello"
        await self._hello(name)
        if starttls:
            await self.expect(b"STARTTLS", "220")
            await self.writer.start_tls(trusting_context())
            await self._hello(name)
        if key is not None:
            await self.expect(b"AUTH PLAIN " + b64encode(b"\0apikey\0" + key.encode()), "235")

    async def envelope(self, sender: str, recipients: Sequence[str]) -> None:
        """Send MAIL, RCPT for each recipient, and DATA. Raises RefusedCommand."""
        self.stage = "envelope"
        await self.expect(f"MAIL FROM:<{sender}>".encode(), "250")
        for one in recipients:
            await self.expect(f"RCPT TO:<{one}>".encode(), "250")
        await self.expect(b"DATA", "354")
        self.stage = "content"

    async def send(self, sender: str, recipients: Sequence[str], content: bytes) -> str:
        """Send a message, dot-stuffed and with its last CRLF; return the reply to the final dot."""
        await self.envelope(sender, recipients)
        return await self.say(content + b".\r\n")

    async def expect(self, line: bytes, code: str) -> str:
        """Send a command, b"" for none, and return its reply; raises RefusedCommand unless it begins with `code`."""
        reply = await self.say(line + b"\r\n" if line else b"")
        if not reply.startswith(code):
            raise RefusedCommand(reply)
        return reply

    async def say(self, octets: bytes) -> str:
        """Send octets and return the last line of the next reply."""
        self.writer.write(octets)
        return await self.reply()

    async def reply(self, timeout_s: float | None = None) -> str:
        """Return the last line of the next reply, "" when the connection has ended; raises TimeoutError, OSError."""
        self._lines = []
        async with asyncio.timeout(timeout_s or self.reply_s):
            while line := await self.reader.readline():
                self._lines.append(line)
                if line[3:4] != b"-":
                    return line.decode("utf-8", "replace").rstrip()
        return ""

    async def _hello(self, name: str) -> None:
        await self.expect(b"EHLO " + name.encode(), "250")
        self.keywords = {words[0].upper() for line in self._lines if (words := line[4:].split(maxsplit=1))}


def trusting_context() -> ssl.SSLContext:
    """Return a TLS context that takes the certificate which a service made for itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
