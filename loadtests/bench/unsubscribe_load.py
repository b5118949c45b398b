"""The client process of `ops bench --unsubscribe`: posts to unsubscribe links at the rate of its orders.

It reads an UnsubscribeTarget and then LoadOrders from standard input, and answers each order with a LoadResult on
standard output. Each request is the one-click POST of a mail client (RFC 8058 3.2), on a connection that stays open.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from msgspec import Struct

from loadtests.bench.carry_out import OrderHandler, carry_out, serve
from loadtests.bench.load import LoadOrder, LoadResult

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

    def __init__(self, target: UnsubscribeTarget, tokens: Sequence[str]) -> None:
        self._target = target
        self._tokens = tokens
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> None:
        """Connect."""
        async with asyncio.timeout(_CONNECT_S):
            self._reader, self._writer = await asyncio.open_connection(self._target.host, self._target.port)

    async def send(self, number: int) -> bytes:
        """Post to the link of this number; return the status code and the reason."""
        self._writer.write(
            b"POST /u/%b HTTP/1.1\r\nHost: bench\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (self._tokens[number].encode(), len(_BODY), _BODY)
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await self._reader.readexactly(length)
        return head.partition(b"\r\n")[0].partition(b" ")[2]


async def prepare(target: UnsubscribeTarget) -> OrderHandler:
    """Read the tokens and open the connections; return the function that carries out an order."""
    tokens = _read(target.tokens)
    connections = [LinkConnection(target, tokens) for _ in range(target.connections)]
    for connection in connections:
        await connection.open()

    async def handle(order: LoadOrder) -> LoadResult:
        file = Path(target.folder) / f"unsubscribe-times-{order.first}.f64"
        return await carry_out(order, connections, file, accepted=b"200")

    return handle


def _read(file: str) -> list[str]:
    return msgspec.json.decode(Path(file).read_bytes(), type=list[str])


if __name__ == "__main__":
    uvloop.run(serve(UnsubscribeTarget, prepare))
