"""The client process of the relay bench: SMTP over TLS on sessions that stay open.

The bench runs `python -m loadtests.bench.relay_load`, which reads a RelayTarget and then LoadOrders from standard
input and answers each order with a LoadResult on standard output.
"""

import asyncio
import ssl
from base64 import b64encode
from pathlib import Path
from typing import Final

import uvloop
from msgspec import Struct

from loadtests.bench.carry_out import OrderHandler, carry_out, serve
from loadtests.bench.load import LoadOrder, LoadResult
from loadtests.bench.message import around_recipient

_CONNECT_S: Final = 30.0


class RelayTarget(Struct, frozen=True, kw_only=True):
    """The relay to send to. `pipelined`: MAIL, RCPT and DATA in one write (RFC 2920), else one at a time."""

    host: str
    port: int  # TLS from the first octet
    key: str
    sender: str
    domains: int  # recipients lie under relay-0.test … relay-<domains - 1>.test
    connections: int
    each: int = 0  # messages a session, then another is opened; 0: all
    pipelined: bool = True
    folder: str  # for the times of each message


class BenchRelaySession:
    """An SMTP session."""

    def __init__(self, target: RelayTarget, parts: tuple[bytes, bytes]) -> None:
        self._target = target
        self._before, self._after = parts
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._sent = 0

    async def open(self) -> None:
        """Connect and log in."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        async with asyncio.timeout(_CONNECT_S):
            self._reader, self._writer = await asyncio.open_connection(
                self._target.host, self._target.port, ssl=context
            )
            await self._reply()
            self._writer.write(b"EHLO bench.test\r\n")
            await self._reply()
            plain = b64encode(b"\0apikey\0" + self._target.key.encode())
            self._writer.write(b"AUTH PLAIN %b\r\n" % plain)
            reply = await self._reply()
            if not reply.startswith(b"235 "):
                raise RuntimeError(reply.decode())
        self._sent = 0

    async def send(self, number: int) -> bytes:
        """Send one message; return the final reply, or that of the first refused command."""
        if self._writer is None or (self._target.each and self._sent == self._target.each):
            await self.close()
            await self.open()
        assert self._writer is not None
        self._sent += 1
        domain = f"relay-{number % self._target.domains}.test"
        commands = (
            b"MAIL FROM:<%b> SIZE=4000\r\n" % self._target.sender.encode(),
            b"RCPT TO:<m%010d@%b>\r\n" % (number, domain.encode()),
            b"DATA\r\n",
        )
        replies = []
        if self._target.pipelined:
            self._writer.write(b"".join(commands))
            replies = [await self._reply() for _ in commands]
        else:
            for command in commands:
                self._writer.write(command)
                replies.append(await self._reply())
        for reply in replies:
            if reply[:1] not in b"23":
                return reply
        to = b"m%010d@%b" % (number, domain.encode())
        self._writer.write(b"%b%b%b.\r\n" % (self._before, to, self._after))
        return await self._reply()

    async def close(self) -> None:
        """Send QUIT and close the connection."""
        if self._writer is not None:
            self._writer.write(b"QUIT\r\n")
            await self._reply()
            self._writer.close()
            self._writer = None

    async def _reply(self) -> bytes:
        assert self._reader is not None
        while True:
            line = await self._reader.readline()
            if not line:
                raise ConnectionResetError("the relay closed the session")
            if line[3:4] != b"-":
                return line


async def prepare(target: RelayTarget) -> OrderHandler:
    """Open all sessions; return the function that carries out an order."""
    parts = around_recipient(target.sender)
    clients = [BenchRelaySession(target, parts) for _ in range(target.connections)]
    for client in clients:
        await client.open()

    async def handle(order: LoadOrder) -> LoadResult:
        file = Path(target.folder) / f"relay-times-{order.first}.f64"
        return await carry_out(order, clients, file, accepted=b"250 2.0.0 queued as ")

    return handle


if __name__ == "__main__":
    uvloop.run(serve(RelayTarget, prepare))
