"""Carry out load orders over open connections: the part that all load processes of a bench share.

A load process reads its target and then LoadOrders from standard input, one JSON value a line. It answers the target
with `{}` once its connections are open, and each order with a LoadResult.
"""

import array
import asyncio
import math
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from loadtests.bench.load import LoadOrder, LoadResult

MAX_ORDER: Final = 64 * 1024  # octets of a line

Target = TypeVar("Target")
OrderHandler = Callable[[LoadOrder], Awaitable[LoadResult]]


class LoadClient(Protocol):
    """A connection that sends one request after the other."""

    async def send(self, number: int) -> bytes:
        """Send the request of this number; return the reply, which begins with a code of three digits."""


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


async def carry_out(order: LoadOrder, clients: Sequence[LoadClient], file: Path, *, accepted: bytes) -> LoadResult:
    """Send the requests of an order: at its rate, or as fast as replies come. Replies that begin with `accepted` count.

    With a rate, latencies count from the planned time of each request, so that a slow server can't hide its delays.
    """
    latencies = array.array("d", [math.nan]) * order.count
    answers = array.array("d", [math.nan]) * order.count
    refused: dict[str, int] = {}
    examples: list[str] = []
    places = iter(range(order.count))
    wall = time.time() - time.monotonic()
    began = time.monotonic()

    async def work(client: LoadClient) -> None:
        for place in places:
            due = time.monotonic()
            if order.rate is not None:
                due = began + place / order.rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            reply = await client.send(order.first + place)
            ended = time.monotonic()
            if reply.startswith(accepted):
                latencies[place], answers[place] = ended - due, ended + wall
            else:
                code = reply[:3].decode("utf-8", "replace")
                refused[code] = refused.get(code, 0) + 1
                examples.append(reply.decode("utf-8", "replace"))

    async with asyncio.timeout(order.timeout_s), asyncio.TaskGroup() as tasks:
        for client in clients:
            tasks.create_task(work(client))
    ended = time.monotonic()
    _write_times(file, latencies, answers)
    return LoadResult(
        began=began, ended=ended, accepted=order.count - sum(refused.values()), refused=refused,
        example=next(iter(examples), None), times=str(file),
    )  # fmt: skip


def _write_times(file: Path, latencies: "array.array[float]", answers: "array.array[float]") -> None:
    file.write_bytes(latencies.tobytes() + answers.tobytes())


def _answer(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
