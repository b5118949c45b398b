"""The client process for other mail servers: SMTP in clear text on sessions that stay open.

`python -m loadtests.peers.client` reads a LoadTarget and then LoadOrders from standard input, and answers each order
with
a LoadResult on standard output, as the bench's HTTP generator does.
"""

import array
import asyncio
import math
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from loadtests.bench.load import LoadOrder, LoadResult, LoadTarget
from loadtests.bench.message import around_recipient

_MAX_ORDER: Final = 64 * 1024
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


async def carry_out(order: LoadOrder, sessions: list[PeerSession], folder: Path) -> LoadResult:
    """Send the messages of an order as fast as replies come."""
    latencies = array.array("d", [math.nan]) * order.count
    answers = array.array("d", [math.nan]) * order.count
    refused: dict[str, int] = {}
    examples: list[str] = []
    places = iter(range(order.count))
    wall = time.time() - time.monotonic()

    async def work(session: PeerSession) -> None:
        for place in places:
            began = time.monotonic()
            reply = await session.send(order.first + place)
            ended = time.monotonic()
            if reply.startswith(b"250"):
                latencies[place], answers[place] = ended - began, ended + wall
            else:
                code = reply[:3].decode("latin-1")
                refused[code] = refused.get(code, 0) + 1
                examples.append(reply.decode("utf-8", "replace"))

    began = time.monotonic()
    async with asyncio.timeout(order.timeout_s), asyncio.TaskGroup() as tasks:
        for session in sessions:
            tasks.create_task(work(session))
    file = folder / f"peer-times-{order.first}.f64"
    file.write_bytes(latencies.tobytes() + answers.tobytes())
    return LoadResult(
        began=began, ended=time.monotonic(), accepted=order.count - sum(refused.values()), refused=refused,
        example=next(iter(examples), None), times=str(file),
    )  # fmt: skip


async def serve() -> None:
    """Carry out orders until the input ends."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=_MAX_ORDER)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    target = msgspec.json.decode(await lines.readline(), type=LoadTarget)
    parts = around_recipient(target.sender)
    opening = asyncio.Semaphore(_MAX_OPENING)
    sessions = [PeerSession(target, parts, opening) for _ in range(target.connections)]
    _answer(b"{}")
    while line := await lines.readline():
        order = msgspec.json.decode(line, type=LoadOrder)
        _answer(msgspec.json.encode(await carry_out(order, sessions, Path(target.folder))))


def _answer(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    uvloop.run(serve())
