"""The load process for the API: a minimal HTTP/1.1 client on keep-alive connections, for little CPU of its own.

Run by the bench as `python -m loadtests.bench.http_load`; see `loadtests.bench.load` for its input and output.
"""

import asyncio
from typing import Final, cast

import uvloop

from loadtests.bench.generator import OrderHandler, carry_out, serve
from loadtests.bench.load import LoadOrder, LoadResult, LoadTarget
from loadtests.bench.messages import mime_around, request_around

_CONNECT_S: Final = 10.0
_JOINED_BYTES: Final = 64 * 1024  # larger requests are written in pieces, so that none is copied
_STATUS_AT: Final = len("HTTP/1.1 ")


class Requests:
    """Prepared requests; only the recipient differs."""

    def __init__(self, target: LoadTarget) -> None:
        self._is_batch = target.batch > 1
        self._heads: dict[int, bytes] = {}  # by length of the body
        self._head = _head(target)
        self._domains = target.domains
        around = mime_around if target.raw else request_around
        self._before, self._after = around(target.sender, target.attached)

    def numbers(self, first: int, count: int) -> tuple[bytes, ...]:
        """Return the request for `count` messages from number `first` on, one or a batch, in pieces if it is large."""
        if self._is_batch:
            bodies = [b"".join(self._body(number)) for number in range(first, first + count)]
            body: tuple[bytes, ...] = (b'{"messages":[%b]}' % b",".join(bodies),)
        else:
            body = self._body(first)
        size = sum(map(len, body))
        head = self._heads.get(size)
        if head is None:
            head = self._heads[size] = self._head % size
        return (head, *body) if size > _JOINED_BYTES else (b"".join((head, *body)),)

    def _body(self, number: int) -> tuple[bytes, ...]:
        return self._before, b"m%010d@bench-%d.test" % (number, number % self._domains), self._after


class HttpConnection(asyncio.Protocol):
    """A keep-alive connection with at most one request open."""

    def __init__(self, target: LoadTarget, requests: Requests) -> None:
        self._target = target
        self._requests = requests
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._got = b""

    async def open(self) -> None:
        """Connect, unless the connection is open."""
        if self._transport is None:
            async with asyncio.timeout(_CONNECT_S):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: self, self._target.host, self._target.port)

    async def send(self, number: int, count: int) -> bytes | None:
        """Send one request; return None if all of its messages were accepted, else the answer from its status on."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.writelines(self._requests.numbers(number, count))
        answer = await self._answer
        return None if _accepted(answer, count) else answer[_STATUS_AT:]

    def abort(self) -> None:
        """Close the connection without an answer."""
        if self._transport is not None:
            self._transport.abort()
        self._transport, self._got = None, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class

    def data_received(self, data: bytes) -> None:
        """Collect the answer; usually one call has all of it."""
        self._got = self._got + data if self._got else data
        if _complete(self._got) and self._answer is not None and not self._answer.done():
            self._answer.set_result(self._got)
            self._got = b""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Fail an open request."""
        self._transport, self._got = None, b""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("the API closed the connection without an answer"))


async def prepare(target: LoadTarget) -> OrderHandler:
    """Open all connections; return the function that carries out an order."""
    requests = Requests(target)
    connections = [HttpConnection(target, requests) for _ in range(target.connections)]
    for connection in connections:
        await connection.open()

    async def handle(order: LoadOrder) -> LoadResult:
        return await carry_out(order, connections, target.folder, batch=target.batch)

    return handle


def _head(target: LoadTarget) -> bytes:
    """Return the header of every request, with a placeholder for the body's length."""
    path = "/v1/emails" if target.batch == 1 else "/v1/emails/batch"
    kind = "application/json"
    if target.raw:
        path, kind = "/v1/emails/raw", "message/rfc822"
    return (
        f"POST {path} HTTP/1.1\r\nHost: {target.host}:{target.port}\r\nAuthorization: Bearer {target.key}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: %d\r\n\r\n"
    ).encode()


def _accepted(answer: bytes, size: int) -> bool:
    """Return True if the API accepted all messages of the request."""
    if answer.startswith(b"HTTP/1.1 202 "):
        return size == 1
    return answer.startswith(b"HTTP/1.1 200 ") and b'"accepted":%d,' % size in answer


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


if __name__ == "__main__":
    uvloop.run(serve(LoadTarget, prepare))
