"""Carry out load orders over open connections: the part that all load processes of a bench share.

A load process reads its target and then LoadOrders from standard input, one JSON value per line. It answers the target
with `{}` once its connections are open, and each order with a LoadResult.
"""

import array
import asyncio
import math
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from loadtests.bench.load import LoadOrder, LoadResult

MAX_ORDER: Final = 64 * 1024  # octets of a line
LOST: Final = b"lost"

Target = TypeVar("Target")
OrderHandler = Callable[[LoadOrder], Awaitable[LoadResult]]


class LoadClient(Protocol):
    """A connection that sends one request after the other."""

    async def open(self) -> None:
        """Connect, unless the connection is open and takes another message."""

    async def send(self, number: int, count: int) -> bytes | None:
        """Send the `count` messages from this number on in one request; return None if the server accepted them.

        Otherwise return the reply, which begins with a code of three digits. Raises OSError when the connection breaks.
        """

    def abort(self) -> None:
        """Give up the connection, whose open request gets no reply any more."""


async def serve(target_type: type[Target], prepare: Callable[[Target], Awaitable[OrderHandler]]) -> None:
    """Prepare for the target, then carry out orders until standard input ends."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # 1,024 by default, fewer than a bench's idle sessions
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=MAX_ORDER)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    handle = await prepare(msgspec.json.decode(await lines.readline(), type=target_type))
    _answer(b"{}")
    while line := await lines.readline():
        _answer(msgspec.json.encode(await handle(msgspec.json.decode(line, type=LoadOrder))))


async def carry_out(order: LoadOrder, clients: Sequence[LoadClient], folder: str, *, batch: int = 1) -> LoadResult:
    """Send the messages of an order, `batch` in a request: at its rate, or as fast as replies come."""
    clients = clients[: order.count]
    for client in clients:  # in turns: OpenSMTPD 6.8 listens with a backlog of 5; further connections get no greeting
        await client.open()
    progress = OrderProgress(order, batch)
    with suppress(TimeoutError):
        async with asyncio.timeout(order.timeout_s), asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(progress.work(client))
    return progress.result(Path(folder) / f"times-{os.getpid()}-{order.first}.f64")


class OrderProgress:
    """The replies to one order so far."""

    def __init__(self, order: LoadOrder, batch: int) -> None:
        self._order = order
        self._batch = batch
        self._latencies = array.array("d", [math.nan]) * order.count
        self._answers = array.array("d", [math.nan]) * order.count
        self._refused: dict[str, int] = {}
        self._example: str | None = None
        self._left = order.count
        self._places = iter(range(0, order.count, batch))
        self._wall = time.time() - time.monotonic()
        self._began = time.monotonic()

    async def work(self, client: LoadClient) -> None:
        """Send one request after the other until none is left or the connection breaks."""
        for place in self._places:
            count = min(self._batch, self._order.count - place)
            began = await self._due(place)
            try:
                await client.open()
                refusal = await client.send(self._order.first + place, count)
            except OSError as error:
                self._settle(count, b"%b %b" % (LOST, str(error).encode()))
                client.abort()
                return
            except asyncio.CancelledError:
                client.abort()
                raise
            self._settle(count, refusal)
            if refusal is None:
                ended = time.monotonic()
                for at in range(place, place + count):
                    self._latencies[at], self._answers[at] = ended - began, ended + self._wall

    def result(self, file: Path) -> LoadResult:
        """Write the times to a file and return the result; messages without a reply count as `unanswered`."""
        ended = time.monotonic()
        accepted = self._order.count - self._left - sum(self._refused.values())
        refused = self._refused | ({"unanswered": self._left} if self._left else {})
        file.write_bytes(self._latencies.tobytes() + self._answers.tobytes())
        return LoadResult(
            began=self._began, ended=ended, accepted=accepted, refused=refused, example=self._example, times=str(file)
        )

    async def _due(self, place: int) -> float:
        """Return when the request of this place was due, and not before.

        A request that waited for a connection counts from when it was due, so that a slow server can't hide its delays;
        the lateness of the timer (1 ms steps) is not the server's.
        """
        now = time.monotonic()
        if self._order.rate is None:
            return now
        due = self._began + place / self._order.rate
        if due <= now:
            return due
        await asyncio.sleep(due - now)
        return time.monotonic()

    def _settle(self, count: int, refusal: bytes | None) -> None:
        self._left -= count
        if refusal is not None:
            code = refusal[:4].strip().decode("latin-1")
            self._refused[code] = self._refused.get(code, 0) + count
            self._example = self._example or refusal.decode("utf-8", "replace")[:1000]


def _answer(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
