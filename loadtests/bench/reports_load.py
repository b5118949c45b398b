"""The client process of `ops bench --reports`: sends a bounce for each delivery of a list, at the rate of its orders.

It reads a ReportsTarget and then LoadOrders from standard input, and answers each order with a LoadResult on standard
output. The bounces have the form of RFC 3464 and go to the deliveries' own return paths.
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


class BouncedDelivery(Struct, frozen=True):
    """A delivery that bounces: its return path and its recipient."""

    return_path: str
    recipient: str


class ReportsTarget(Struct, frozen=True, kw_only=True):
    """The server, and a JSON file with the deliveries."""

    host: str
    port: int
    deliveries: str
    connections: int
    folder: str


class ReportSession:
    """An SMTP session, which sends the commands of a message in one write."""

    def __init__(self, target: ReportsTarget) -> None:
        self._target = target
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> None:
        """Connect and greet."""
        async with asyncio.timeout(_CONNECT_S):
            self._reader, self._writer = await asyncio.open_connection(self._target.host, self._target.port)
            await self._reply()
            self._writer.write(b"EHLO reporter.test\r\n")
            await self._reply()

    async def send(self, delivery: BouncedDelivery) -> bytes:
        """Send one bounce; return the last reply, or the first refusal."""
        self._writer.write(b"MAIL FROM:<>\r\nRCPT TO:<%b>\r\nDATA\r\n" % delivery.return_path.encode())
        for reply in [await self._reply() for _ in range(3)]:
            if reply[:1] not in b"23":
                return reply
        self._writer.write(bounce(delivery) + b".\r\n")
        return await self._reply()

    async def _reply(self) -> bytes:
        while line := await self._reader.readline():
            if line[3:4] != b"-":
                return line
        raise ConnectionResetError("the server closed the session")


def bounce(delivery: BouncedDelivery) -> bytes:
    """Return a delivery status notification (RFC 3464) for an unknown mailbox."""
    token = delivery.return_path.partition("@")[0]
    return (
        f"From: MAILER-DAEMON@reporter.test\r\nTo: {delivery.return_path}\r\nSubject: Undelivered Mail\r\n"
        f"Date: Mon, 02 Mar 2026 10:00:00 +0000\r\nMessage-ID: <{token}@reporter.test>\r\n"
        'Auto-Submitted: auto-replied\r\nMIME-Version: 1.0\r\nContent-Type: multipart/report; '
        'report-type=delivery-status; boundary="part"\r\n\r\n--part\r\nContent-Type: text/plain\r\n\r\n'
        f"Your message to {delivery.recipient} could not be delivered: no such user here.\r\n\r\n--part\r\n"
        "Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.reporter.test\r\n\r\n"
        f"Final-Recipient: rfc822; {delivery.recipient}\r\nAction: failed\r\nStatus: 5.1.1\r\n"
        "Diagnostic-Code: smtp; 550 5.1.1 No such user here\r\n\r\n--part--\r\n"
    ).encode()  # fmt: skip


async def carry_out(
    order: LoadOrder, sessions: list[ReportSession], deliveries: list[BouncedDelivery], folder: Path
) -> LoadResult:
    """Send the bounces of an order at its rate."""
    assert order.rate is not None
    latencies = array.array("d", [math.nan]) * order.count
    answers = array.array("d", [math.nan]) * order.count
    refused: dict[str, int] = {}
    examples: list[str] = []
    places = iter(range(order.count))
    wall = time.time() - time.monotonic()
    began = time.monotonic()

    async def work(session: ReportSession) -> None:
        for place in places:
            due = began + place / (order.rate or 1.0)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            reply = await session.send(deliveries[order.first + place])
            ended = time.monotonic()
            if reply.startswith(b"250 "):
                latencies[place], answers[place] = ended - due, ended + wall
            else:
                refused[reply[:3].decode()] = refused.get(reply[:3].decode(), 0) + 1
                examples.append(reply.decode("utf-8", "replace"))

    async with asyncio.timeout(order.timeout_s), asyncio.TaskGroup() as tasks:
        for session in sessions:
            tasks.create_task(work(session))
    file = folder / f"report-times-{order.first}.f64"
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
    target = msgspec.json.decode(await lines.readline(), type=ReportsTarget)
    deliveries = _read(target.deliveries)
    sessions = [ReportSession(target) for _ in range(target.connections)]
    for session in sessions:
        await session.open()
    _answer(b"{}")
    while line := await lines.readline():
        order = msgspec.json.decode(line, type=LoadOrder)
        _answer(msgspec.json.encode(await carry_out(order, sessions, deliveries, Path(target.folder))))


def _read(file: str) -> list[BouncedDelivery]:
    return msgspec.json.decode(Path(file).read_bytes(), type=list[BouncedDelivery])


def _answer(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    uvloop.run(serve())
