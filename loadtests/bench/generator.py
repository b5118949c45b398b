"""The load generator process: a minimal HTTP/1.1 client on keep-alive connections, for little CPU of its own.

Run by the bench as `python -m loadtests.bench.generator`; see `loadtests.bench.load` for its input and output.
"""

import array
import asyncio
import json
import math
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final, cast

import msgspec
import uvloop

from loadtests.bench.load import LoadOrder, LoadResult, LoadTarget
from loadtests.bench.message import HTML, SUBJECT, TEXT, TO

_CONNECT_S: Final = 10.0
_MAX_ORDER: Final = 64 * 1024


class ApiConnection(asyncio.Protocol):
    """A keep-alive connection with at most one request open."""

    def __init__(self) -> None:
        self.phase: OrderProgress | None = None
        self.place = -1  # of the open request's first message within its order; -1: none
        self.size = 1  # messages in it
        self.asked_at = 0.0
        self.closed = False
        self._transport: asyncio.Transport | None = None
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class

    def ask(self, place: int, size: int, request: bytes, at: float) -> None:
        """Send one request."""
        assert self._transport is not None
        self.place = place
        self.size = size
        self.asked_at = at
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Collect the answer; usually one call has all of it."""
        if self._got:
            data = self._got + data
        if not _complete(data):
            self._got = data
            return
        self._got = b""
        if self.phase is not None and self.place >= 0:
            self.phase.answered(self, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Count an open request as lost."""
        self.closed = True
        self._got = b""
        if self.phase is not None and self.place >= 0:
            self.phase.lost(self)


class Requests:
    """Prepared requests; only the recipient's number differs."""

    def __init__(self, target: LoadTarget) -> None:
        self.size = target.batch
        self._heads: dict[int, bytes] = {}  # by length of the body
        self._head = _head(target)
        self._parts = [_parts(target, f"bench-{number}.test") for number in range(target.domains)]

    def numbers(self, first: int, count: int) -> bytes:
        """Return the request for `count` messages from number `first` on: one message, or a batch."""
        bodies = [self._body(number) for number in range(first, first + count)]
        body = bodies[0] if self.size == 1 else b'{"messages":[%b]}' % b",".join(bodies)
        head = self._heads.get(len(body))
        if head is None:
            head = self._heads[len(body)] = self._head % len(body)
        return head + body

    def _body(self, number: int) -> bytes:
        before, after = self._parts[number % len(self._parts)]
        return b"%b%010d%b" % (before, number, after)


class OrderProgress:
    """The state of one order: answers so far, and the next message to send."""

    def __init__(self, order: LoadOrder, requests: Requests, connections: list[ApiConnection]) -> None:
        self.latencies = array.array("d", [math.nan]) * order.count
        self.answers = array.array("d", [math.nan]) * order.count
        self.accepted = 0
        self.refused: dict[str, int] = {}
        self.example: str | None = None
        self.began = 0.0
        self.done = asyncio.get_running_loop().create_future()
        self._order = order
        self._requests = requests
        self._connections = connections
        self._wall = time.time() - time.monotonic()
        self._next = 0  # place of the next request to send
        self._left = order.count
        self._idle: deque[ApiConnection] = deque()

    def start(self) -> None:
        """Begin sending."""
        for connection in self._connections:
            connection.phase = self
        self.began = time.monotonic()
        if self._order.rate is None:
            for connection in self._connections:
                if self._next < self._order.count:
                    self._ask(connection, time.monotonic())
        else:
            self._idle.extend(self._connections)
            self._pace()

    def answered(self, connection: ApiConnection, answer: bytes) -> None:
        """Record an answer and send the next request."""
        now = time.monotonic()
        first, size = connection.place, connection.size
        connection.place = -1
        taken = _accepted(answer, size)
        for place in range(first, first + taken):
            self.accepted += 1
            self.latencies[place] = now - connection.asked_at
            self.answers[place] = now + self._wall
        for _ in range(size - taken):
            self._refuse(answer[9:12].decode("latin-1"), answer)
        self._settle(size)
        self._go_on(connection, now)

    def lost(self, connection: ApiConnection) -> None:
        """Record a connection that broke with a request open."""
        connection.place = -1
        for _ in range(connection.size):
            self._refuse("lost", b"connection closed without an answer")
        self._settle(connection.size)
        if self._connections and all(one.closed for one in self._connections):
            self.finish()

    def finish(self) -> None:
        """End the order; open requests stay unanswered."""
        if not self.done.done():
            self.done.set_result(None)

    @property
    def unanswered(self) -> int:
        """Return the number of messages without an answer."""
        return self._left

    def _go_on(self, connection: ApiConnection, now: float) -> None:
        if self._next >= self._order.count:
            return
        if self._order.rate is None:
            self._ask(connection, now)
        elif (due := self._due(self._next)) <= now:
            # It waited for a connection: its latency counts from when it was due.
            self._ask(connection, due)
        else:
            self._idle.append(connection)

    def _due(self, place: int) -> float:
        assert self._order.rate is not None
        return self.began + place / self._order.rate

    def _pace(self) -> None:
        """Send due requests over idle connections; without one, the next answer sends the request."""
        now = time.monotonic()
        while self._next < self._order.count and self._idle and self._due(self._next) <= now:
            # The timer's own lateness (1 ms steps) is not the service's.
            self._ask(self._idle.popleft(), now)
        if self._next < self._order.count:
            wait_s = max(0.001, self._due(self._next) - now)
            asyncio.get_running_loop().call_later(wait_s, self._pace)

    def _ask(self, connection: ApiConnection, at: float) -> None:
        if connection.closed:
            return
        place = self._next
        size = min(self._requests.size, self._order.count - place)
        self._next += size
        connection.ask(place, size, self._requests.numbers(self._order.first + place, size), at)

    def _refuse(self, kind: str, answer: bytes) -> None:
        self.refused[kind] = self.refused.get(kind, 0) + 1
        if self.example is None:
            self.example = answer.decode("utf-8", "replace")[:1000]

    def _settle(self, count: int) -> None:
        self._left -= count
        if self._left == 0:
            self.finish()


async def serve() -> None:
    """Carry out orders until standard input ends."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=_MAX_ORDER)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    target = msgspec.json.decode(await lines.readline(), type=LoadTarget)
    requests = Requests(target)
    connections: list[ApiConnection] = []
    connections = await _connected(target, connections)
    _answer(b"{}")
    while line := await lines.readline():
        connections = await _connected(target, connections)
        load = await _carry_out(msgspec.json.decode(line, type=LoadOrder), requests, connections, target)
        _answer(msgspec.json.encode(load))


async def _carry_out(
    order: LoadOrder, requests: Requests, connections: list[ApiConnection], target: LoadTarget
) -> LoadResult:
    phase = OrderProgress(order, requests, connections)
    deadline = asyncio.get_running_loop().call_later(order.timeout_s, phase.finish)
    phase.start()
    await phase.done
    ended = time.monotonic()
    deadline.cancel()
    refused = dict(phase.refused)
    if phase.unanswered:
        refused["unanswered"] = phase.unanswered
    file = Path(target.folder) / f"times-{order.first}.f64"
    file.write_bytes(phase.latencies.tobytes() + phase.answers.tobytes())
    return LoadResult(
        began=phase.began,
        ended=ended,
        accepted=phase.accepted,
        refused=refused,
        example=phase.example,
        times=str(file),
    )


async def _connected(target: LoadTarget, known: list[ApiConnection]) -> list[ApiConnection]:
    """Return `target.connections` open connections, replacing those that the server closed."""
    living = [one for one in known if not one.closed and one.place < 0]
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_CONNECT_S):
        for _ in range(target.connections - len(living)):
            _, connection = await loop.create_connection(ApiConnection, target.host, target.port)
            living.append(connection)
    return living


def _head(target: LoadTarget) -> bytes:
    """Return the header of every request, with a placeholder for the body's length."""
    path = "/v1/emails" if target.batch == 1 else "/v1/emails/batch"
    return (
        f"POST {path} HTTP/1.1\r\nHost: {target.host}:{target.port}\r\nAuthorization: Bearer {target.key}\r\n"
        "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    ).encode()


def _parts(target: LoadTarget, domain: str) -> tuple[bytes, bytes]:
    """Return a message body in two parts: before and after the recipient's number."""
    body = json.dumps(
        {
            "from": f"Waybill Bench <{target.sender}>",
            "to": [f"m{TO}@{domain}"],
            "subject": SUBJECT,
            "text": TEXT,
            "html": HTML,
        }
    )
    before, _, after = body.partition(TO)
    return before.encode(), after.encode()


def _accepted(answer: bytes, size: int) -> int:
    """Return the number of accepted messages; 0 for a batch that was not accepted entirely."""
    if size == 1 and answer.startswith(b"HTTP/1.1 202 "):
        return 1
    whole = answer.startswith(b"HTTP/1.1 200 ") and b'"accepted":%d,' % size in answer
    return size if whole else 0


def _complete(data: bytes) -> bool:
    """Return True if `data` holds a whole answer. Every answer of the API carries Content-Length."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    at = data.find(b"ontent-", 0, end)
    while at >= 0 and data[at + 7 : at + 14].lower() != b"length:":
        at = data.find(b"ontent-", at + 1, end)
    if at < 0:
        return True
    return len(data) >= end + 4 + int(data[at + 14 : data.find(b"\r", at)])


def _answer(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    uvloop.run(serve())
