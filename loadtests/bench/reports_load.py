"""The client process of `ops bench --reports`: sends a bounce for each delivery of a list, at the rate of its orders.

It reads a ReportsTarget and then LoadOrders from standard input, and answers each order with a LoadResult on standard
output. The bounces have the form of RFC 3464 and go to the deliveries' own return paths.
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

    def __init__(self, target: ReportsTarget, deliveries: Sequence[BouncedDelivery]) -> None:
        self._target = target
        self._deliveries = deliveries
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> None:
        """Connect and greet."""
        async with asyncio.timeout(_CONNECT_S):
            self._reader, self._writer = await asyncio.open_connection(self._target.host, self._target.port)
            await self._reply()
            self._writer.write(b"EHLO reporter.test\r\n")
            await self._reply()

    async def send(self, number: int) -> bytes:
        """Send the bounce of the delivery of this number; return the last reply, or the first refusal."""
        delivery = self._deliveries[number]
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


async def prepare(target: ReportsTarget) -> OrderHandler:
    """Read the deliveries and open the sessions; return the function that carries out an order."""
    deliveries = _read(target.deliveries)
    sessions = [ReportSession(target, deliveries) for _ in range(target.connections)]
    for session in sessions:
        await session.open()

    async def handle(order: LoadOrder) -> LoadResult:
        file = Path(target.folder) / f"report-times-{order.first}.f64"
        return await carry_out(order, sessions, file, accepted=b"250 ")

    return handle


def _read(file: str) -> list[BouncedDelivery]:
    return msgspec.json.decode(Path(file).read_bytes(), type=list[BouncedDelivery])


if __name__ == "__main__":
    uvloop.run(serve(ReportsTarget, prepare))
