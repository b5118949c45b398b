"""The client process of `ops bench --unsubscribe`: posts to unsubscribe links at the rate of its orders.

It reads an UnsubscribeTarget and then LoadOrders from standard input, and answers each order with a LoadResult on
standard output. Each request is the one-click POST of a mail client (RFC 8058 3.2), on a connection that stays open.
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
from msgspec import Struct

from loadtests.bench.load import LoadOrder, LoadResult

_MAX_ORDER: Final = 64 * 1024
_CONNECT_S: Final = 30.0
_BODY: Final = b"List-Unsubscribe=One-Click"


class UnsubscribeTarget(Struct, frozen=True, kw_only=True):
    """The server, and a JSON file with the tokens of the links."""

    host: str
    port: int
    tokens: str
    connections: int
    folder: str


class LinkConnection:
    """A keep-alive connection that posts to one link after the other."""

    def __init__(self, target: UnsubscribeTarget) -> None:
        self._target = target
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> None:
        """Connect."""
        async with asyncio.timeout(_CONNECT_S):
            self._reader, self._writer = await asyncio.open_connection(self._target.host, self._target.port)

    async def post(self, token: str) -> bytes:
        """Post to a link; return the status line."""
        self._writer.write(
            b"POST /u/%b HTTP/1.1\r\nHost: bench\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (token.encode(), len(_BODY), _BODY)
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await self._reader.readexactly(length)
        return head.partition(b"\r\n")[0]


async def carry_out(order: LoadOrder, connections: list[LinkConnection], tokens: list[str], folder: Path) -> LoadResult:
    """Post to the links of an order at its rate; latencies count from the planned time of each request."""
    assert order.rate is not None
    latencies = array.array("d", [math.nan]) * order.count
    answers = array.array("d", [math.nan]) * order.count
    refused: dict[str, int] = {}
    examples: list[str] = []
    places = iter(range(order.count))
    wall = time.time() - time.monotonic()
    began = time.monotonic()

    async def work(connection: LinkConnection) -> None:
        for place in places:
            due = began + place / (order.rate or 1.0)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            status = await connection.post(tokens[order.first + place])
            ended = time.monotonic()
            if status.startswith(b"HTTP/1.1 200"):
                latencies[place], answers[place] = ended - due, ended + wall
            else:
                code = status[9:12].decode()
                refused[code] = refused.get(code, 0) + 1
                examples.append(status.decode("ascii", "replace"))

    async with asyncio.timeout(order.timeout_s), asyncio.TaskGroup() as tasks:
        for connection in connections:
            tasks.create_task(work(connection))
    file = folder / f"unsubscribe-times-{order.first}.f64"
    file.write_bytes(latencies.tobytes() + answers.tobytes())
    return LoadResult(
        began=began, ended=time.monotonic(), accepted=order.count - sum(refused.values()), refused=refused,
        example=next(iter(examples), None), times=str(file),
    )  # fmt: skip


async def serve() -> None:
    """Carry out orders until standard input ends."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=_MAX_ORDER)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    target = msgspec.json.decode(await lines.readline(), type=UnsubscribeTarget)
    tokens = _read(target.tokens)
    connections = [LinkConnection(target) for _ in range(target.connections)]
    for connection in connections:
        await connection.open()
    _answer(b"{}")
    while line := await lines.readline():
        order = msgspec.json.decode(line, type=LoadOrder)
        _answer(msgspec.json.encode(await carry_out(order, connections, tokens, Path(target.folder))))


def _read(file: str) -> list[str]:
    return msgspec.json.decode(Path(file).read_bytes(), type=list[str])


def _answer(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    uvloop.run(serve())
