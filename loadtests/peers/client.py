"""The generator for mail servers of others: SMTP in clear, pipelined, on sessions that stay open.

Run as `python -m loadtests.peers.client`: a `Target` on standard input, then one `Order` after another; each is
answered with a `Load` on standard output, as the bench's generator does over HTTP.
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

from loadtests.bench.load import Load, Order, Target
from loadtests.bench.message import around_recipient

_MAX_ORDER: Final = 64 * 1024
_CONNECT_S: Final = 30.0


class Session:
    """One SMTP session."""

    def __init__(self, target: Target, parts: tuple[bytes, bytes]) -> None:
        self._target = target
        self._before, self._after = parts
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, number: int) -> bytes:
        """The last reply to one message: that after the final dot, or the first refusal."""
        if self._writer is None:
            await self._open()
        assert self._writer is not None
        recipient = b"m%010d@bench-%d.test" % (number, number % self._target.domains)
        self._writer.write(b"MAIL FROM:<%b>\r\nRCPT TO:<%b>\r\nDATA\r\n" % (self._target.sender.encode(), recipient))
        for reply in [await self._reply() for _ in range(3)]:
            if reply[:1] not in b"23":
                return reply
        self._writer.write(b"%b%b%b.\r\n" % (self._before, recipient, self._after))
        return await self._reply()

    async def _open(self) -> None:
        async with asyncio.timeout(_CONNECT_S):
            self._reader, self._writer = await asyncio.open_connection(self._target.host, self._target.port)
            await self._reply()
            self._writer.write(b"EHLO client.test\r\n")
            await self._reply()

    async def _reply(self) -> bytes:
        assert self._reader is not None
        while True:
            line = await self._reader.readline()
            if not line:
                raise ConnectionResetError("the server closed the session")
            if line[3:4] != b"-":
                return line


async def carry_out(order: Order, sessions: list[Session], folder: Path) -> Load:
    """As fast as replies come."""
    latencies = array.array("d", [math.nan]) * order.count
    answers = array.array("d", [math.nan]) * order.count
    refused: dict[str, int] = {}
    examples: list[str] = []
    places = iter(range(order.count))
    wall = time.time() - time.monotonic()

    async def work(session: Session) -> None:
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
    return Load(
        began=began, ended=time.monotonic(), accepted=order.count - sum(refused.values()), refused=refused,
        example=next(iter(examples), None), times=str(file),
    )  # fmt: skip


async def serve() -> None:
    """Take orders until the input ends."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=_MAX_ORDER)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    target = msgspec.json.decode(await lines.readline(), type=Target)
    parts = around_recipient(target.sender)
    sessions = [Session(target, parts) for _ in range(target.connections)]
    _answer(b"{}")
    while line := await lines.readline():
        order = msgspec.json.decode(line, type=Order)
        _answer(msgspec.json.encode(await carry_out(order, sessions, Path(target.folder))))


def _answer(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    uvloop.run(serve())
