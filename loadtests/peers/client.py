"""The client process for other mail servers: SMTP in clear text on sessions that stay open.

`python -m loadtests.peers.client` reads a LoadTarget and then LoadOrders from standard input, and answers each order
with a LoadResult on standard output, as the bench's HTTP generator does.
"""

import asyncio
from pathlib import Path
from typing import Final

import uvloop

from loadtests.bench.carry_out import OrderHandler, carry_out, serve
from loadtests.bench.load import LoadOrder, LoadResult, LoadTarget
from loadtests.bench.message import around_recipient

_CONNECT_S: Final = 30.0
_MAX_OPENING: Final = 4  # OpenSMTPD 6.8 listens with a backlog of 5; further connections get no greeting


class PeerSession:
    """An SMTP session; it sends its commands in one write where the server offers PIPELINING (RFC 2920)."""

    def __init__(self, target: LoadTarget, parts: tuple[bytes, bytes], opening: asyncio.Semaphore) -> None:
        self._target = target
        self._before, self._after = parts
        self._opening = opening  # shared by all sessions
        self._is_pipelined = False
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, number: int) -> bytes:
        """Send one message; return the reply to its final dot, or the first refusal."""
        if self._writer is None:
            await self._open()
        recipient = b"m%010d@bench-%d.test" % (number, number % self._target.domains)
        envelope = (b"MAIL FROM:<%b>" % self._target.sender.encode(), b"RCPT TO:<%b>" % recipient, b"DATA")
        for reply in await self._replies(envelope):
            if reply[:1] not in b"23":
                return reply
        self._write(b"%b%b%b." % (self._before, recipient, self._after))
        return (await self._reply())[-1]

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._writer is not None:
            self._writer.close()

    async def _open(self) -> None:
        async with self._opening, asyncio.timeout(_CONNECT_S):
            self._reader, self._writer = await asyncio.open_connection(self._target.host, self._target.port)
            await self._reply()
            self._write(b"EHLO client.test")
            keywords = {line[4:].strip().upper() for line in await self._reply()}
            self._is_pipelined = b"PIPELINING" in keywords

    async def _replies(self, commands: tuple[bytes, ...]) -> list[bytes]:
        """Return the last line of each reply; without PIPELINING, up to the first refusal."""
        if self._is_pipelined:
            self._write(b"\r\n".join(commands))
            return [(await self._reply())[-1] for _ in commands]
        replies: list[bytes] = []
        for command in commands:
            self._write(command)
            replies.append((await self._reply())[-1])
            if replies[-1][:1] not in b"23":
                break
        return replies

    def _write(self, text: bytes) -> None:
        assert self._writer is not None
        self._writer.write(text + b"\r\n")

    async def _reply(self) -> list[bytes]:
        """Return the lines of one reply."""
        assert self._reader is not None
        lines: list[bytes] = []
        while line := await self._reader.readline():
            lines.append(line)
            if line[3:4] != b"-":
                return lines
        raise ConnectionResetError("the mail server closed the connection")


async def prepare(target: LoadTarget) -> OrderHandler:
    """Return the function that carries out an order; each session opens with its first message."""
    parts = around_recipient(target.sender)
    opening = asyncio.Semaphore(_MAX_OPENING)
    sessions = [PeerSession(target, parts, opening) for _ in range(target.connections)]

    async def handle(order: LoadOrder) -> LoadResult:
        return await carry_out(order, sessions, Path(target.folder) / f"peer-times-{order.first}.f64", accepted=b"250")

    return handle


if __name__ == "__main__":
    uvloop.run(serve(LoadTarget, prepare))
