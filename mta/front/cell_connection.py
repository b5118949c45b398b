"""A connection from a front to the SMTP server of a cell: one command and its reply at a time.

The cell learns the client's address from a PROXY header and gives its own replies, which the front passes on as they
are. Nothing is retried here: the client, which has not got its 250 yet, sends again.
"""

import asyncio
import ssl
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

import structlog

from mta.smtp.client.envelope import dot_stuffed
from mta.smtp.client.tls import TlsMode, client_context

CONNECT_S: Final = 5.0
REPLY_S: Final = 60.0
FINAL_S: Final = 330.0  # after the final dot: longer than a cell takes, so that its reply is the one that counts
CHUNK: Final = 256 * 1024
MAX_LINES: Final = 64
_LIMIT: Final = 4_096  # octets of a reply line

_log = structlog.get_logger("front")


class CellGone(ConnectionError):  # noqa: N818 - named for what happened
    """The cell can't be reached, closed the connection, or answered with something that is no SMTP reply."""


class CellConnection:
    """Send commands to the server of a cell and return its replies, in one session."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cell: str) -> None:
        self.cell = cell
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, cell: str, address: str, client: str, helo: str, *, secured: bool) -> "CellConnection":
        """Connect to `address` (host:port) for `client`, greet as `helo`, and use TLS if `secured`. Raises CellGone.

        The certificate is not verified: the way to a cell is a private network, as it is for HTTP.
        """
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=_LIMIT)
        except (OSError, ValueError) as error:
            raise _gone(cell, f"no connection: {error}") from error
        connection = cls(reader, writer, cell)
        try:
            await connection._begin(_proxy_header(client), helo, secured=secured)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def ask(self, line: str, timeout_s: float = REPLY_S) -> list[str]:
        """Send a command and return the lines of its reply. Raises CellGone."""
        return await self._answered(line.encode() + b"\r\n", timeout_s)

    async def content(self, octets: bytes) -> list[str]:
        """Send a message after the reply 354; return the reply to it. Raises CellGone."""
        try:
            for part in dot_stuffed(octets):
                for at in range(0, len(part), CHUNK):
                    self._writer.write(part[at : at + CHUNK])
                    async with asyncio.timeout(REPLY_S):
                        await self._writer.drain()
        except OSError as error:
            raise _gone(self.cell, f"content not sent: {error}") from error
        return await self._answered(b".\r\n", FINAL_S)

    def abort(self) -> None:
        """Drop the connection: a message without its final dot is discarded by the cell."""
        self._writer.transport.abort()

    async def _begin(self, header: bytes, helo: str, *, secured: bool) -> None:
        _expect(self.cell, await self._answered(header, REPLY_S), "220")
        offered = await self._greet(helo)
        if secured:
            if "STARTTLS" not in offered:
                raise _gone(self.cell, "no TLS is offered")
            _expect(self.cell, await self.ask("STARTTLS"), "220")
            try:
                await self._writer.start_tls(client_context(TlsMode.ENCRYPTED), ssl_handshake_timeout=CONNECT_S)
            except (OSError, ssl.SSLError) as error:
                raise _gone(self.cell, f"no TLS: {error}") from error
            await self._greet(helo)

    async def _greet(self, helo: str) -> list[str]:
        lines = await self.ask(f"EHLO {helo}")
        _expect(self.cell, lines, "250")
        return [line[4:].upper() for line in lines[1:]]

    async def _answered(self, octets: bytes, timeout_s: float) -> list[str]:
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.write(octets)
                await self._writer.drain()
                return await self._reply()
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise _gone(self.cell, repr(error)) from error

    async def _reply(self) -> list[str]:
        lines: list[str] = []
        while len(lines) < MAX_LINES:
            line = (await self._reader.readuntil(b"\r\n"))[:-2].decode("utf-8", "replace")
            if not (len(line) >= 3 and line[:3].isdigit() and line[3:4] in ("", " ", "-")):
                raise ValueError("no SMTP reply")
            lines.append(line)
            if line[3:4] != "-":
                return lines
        raise ValueError("a reply of too many lines")


def is_positive(reply: list[str]) -> bool:
    """Return True for a reply that says yes (RFC 5321 4.2.1: 2yz or 3yz)."""
    return reply[-1][:1] in ("2", "3")


def _expect(cell: str, reply: list[str], code: str) -> None:
    if reply[-1][:3] != code:
        raise _gone(cell, f"unexpected reply: {reply[-1][:200]}")


def _proxy_header(client: str) -> bytes:
    """Return the PROXY line (version 1) of a client; its port is not known here, and not used by the cell."""
    with suppress(ValueError):
        family = ip_address(client).version
        return f"PROXY TCP{family} {client} {'0.0.0.0' if family == 4 else '::'} 0 0\r\n".encode()  # noqa: S104
    return b"PROXY UNKNOWN\r\n"


def _gone(cell: str, why: str) -> CellGone:
    _log.warning("cell gave no SMTP session", cell=cell, why=why[:300])
    return CellGone(why)
