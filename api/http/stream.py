"""The connection of one request: the pieces of its body, and streamed responses with bounded writes.

Falcon pulls the pieces and the server sends them, each waiting for the one below it. A client that does not read
therefore holds its own request only: one piece, the server's buffer and the kernel's. A stream ends when its client
disconnects or stops reading.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import suppress
from typing import Any, Final

import structlog

from api.http import graceful_shutdown
from api.http.graceful_shutdown import Shutdown
from api.http.operation import Streamed
from engine.base.errors import Refusal, invalid
from engine.store.database_errors import DatabaseUnavailable
from engine.store.deadlines import within

FINAL_PIECE_S: Final = 1.0
KERNEL_GRACE_S: Final = 5.0  # the kernel waits this much longer: a stream ends with its log line and its final piece
PIECE_BYTES: Final = 64 * 1024  # per `stream_write_s`, by default 2 KB per second
UNSENT_BYTES: Final = 128 * 1024  # in the kernel for one connection, beyond the peer's receive window
_TCP_NOTSENT_LOWAT: Final = 25  # linux/tcp.h; in Python's socket module from 3.12 on
_KEY: Final = "waybill.connection"
DRAIN_S: Final = 3.0
MAX_DRAINED_BYTES: Final = 16 * 1024 * 1024
FREE_DRAINED_PIECES: Final = 64
MIN_DRAINED_PIECE_BYTES: Final = 1024  # on average, beyond the free pieces
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
_FOUND_S, _LOOK_S = 10.0, 0.05

_log = structlog.get_logger("api")


class TooSlow(Exception):  # noqa: N818 - named for what the client is
    """The client did not read a piece of a stream in time."""


class Connection:
    """The ASGI receive and send of a request, with a time limit on the writes of a stream."""

    __slots__ = (
        "_answer", "_body_ended", "_broken", "_closing", "_gone", "_names", "_receive", "_send", "_task", "_watcher",
        "_write_s",
    )  # fmt: skip

    def __init__(self, receive: Callable[[], Any], send: Callable[[Any], Any], write_s: float) -> None:
        self._body_ended = False
        self._receive = receive
        self._send = send
        self._write_s = write_s
        self._answer: Streamed | None = None
        self._broken = self._closing = self._gone = False

    async def more(self) -> bytes:
        """Return the next piece of the body; empty after the last. Raises Refusal for a body that ends too early."""
        while not self._body_ended:
            event = await self._receive()
            if event["type"] == "http.disconnect":
                self._body_ended = self._broken = True
                raise broken_body()
            self._body_ended = not event.get("more_body", False)
            piece: bytes = event.get("body", b"")
            if piece:
                return piece
        return b""

    def body_ended(self) -> None:
        """Mark the body as complete: all declared octets have been read."""
        self._body_ended = True

    async def drain(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Read the rest of an unread body for a moment after the response.

        A client that is still writing reads the response only when its writing gets through (RFC 9112 section 9.6). A
        body that is longer than the limits here closes the connection.
        """
        if self._body_ended or self._answer is not None or Shutdown.begun:
            return
        if not any(name in _FRAMING for name, _ in headers):
            return
        size = count = 0
        with suppress(TimeoutError, Refusal), within(DRAIN_S):
            while size < MAX_DRAINED_BYTES and count < FREE_DRAINED_PIECES + size // MIN_DRAINED_PIECE_BYTES:
                piece = await self.more()
                if not piece:
                    return
                size += len(piece)
                count += 1

    def start_stream(self, answer: Streamed, **names: str) -> None:
        """Begin a streamed response: close it at the end of the request, and cancel it if the client disconnects."""
        self._answer = answer
        self._names = names
        self._task = asyncio.current_task()
        self._watcher = asyncio.create_task(self._watch())

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send an ASGI message. Raises TooSlow for a client that does not read a piece of a stream in time."""
        if Shutdown.begun or self._broken:
            message = graceful_shutdown.with_connection_close(message)
        if self._answer is None:
            await self._send(message)
            return
        try:
            for piece in _pieces(message):
                async with asyncio.timeout(self._write_s):
                    await self._send(piece)
        except TimeoutError:
            await self._send_final_piece(self._answer.final_piece)
            raise TooSlow from None

    async def run(self, serving: Any) -> None:
        """Await the application on this connection, and close its stream in any case.

        A stream that failed leaves its HTTP body unfinished, so that the client can tell. The server reports errors of
        requests without a stream.
        """
        try:
            await serving
        except asyncio.CancelledError:
            if not self._gone:
                raise
            assert self._task is not None
            self._task.uncancel()  # `_watch` has cancelled this task
        except Exception as error:
            if self._answer is None:
                raise
            self._report(error)
        finally:
            if self._answer is not None:
                await self._close(self._answer)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._closing and self._task is not None:
            self._gone = True
            self._task.cancel()

    async def _send_final_piece(self, piece: bytes) -> None:
        if piece:
            with suppress(TimeoutError):
                async with asyncio.timeout(FINAL_PIECE_S):
                    await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def _close(self, answer: Streamed) -> None:
        self._closing = True
        self._watcher.cancel()
        await answer.chunks.aclose()

    def _report(self, error: Exception) -> None:
        if self._gone:  # a driver that was cancelled half-way may raise an error of its own
            return
        if isinstance(error, TooSlow):
            _log.info("stream closed", why="the client stopped reading", seconds=self._write_s, **self._names)
        elif isinstance(error, (DatabaseUnavailable, OSError)):
            _log.warning("stream interrupted", error=repr(error), **self._names)
        else:
            _log.error("stream failed", exc_info=error, **self._names)


def _pieces(message: MutableMapping[str, Any]) -> Iterator[MutableMapping[str, Any]]:
    """Yield an ASGI message with its body cut into pieces that a slow connection takes in time."""
    body = message.get("body", b"")
    if len(body) <= PIECE_BYTES:
        yield message
        return
    for start in range(0, len(body), PIECE_BYTES):
        more = start + PIECE_BYTES < len(body) or message.get("more_body", False)
        yield {**message, "body": body[start : start + PIECE_BYTES], "more_body": more}


def broken_body() -> Refusal:
    """Return the 400 for a body that is incomplete or malformed; the server does not tell which of the two.

    RFC 9112 8: such a message is incomplete and must not be processed as if it were whole.
    """
    return invalid(
        "body",
        "The request body is incomplete: the connection ended before its declared length or its last chunk, or a chunk "
        "is malformed. Nothing was accepted.",
    )


class OpenRequests:
    """Number of requests that this process is answering now, for a gauge that is written once a second."""

    count = 0


def open_connection(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Any],
    send: Callable[[Any], Any],
    write_s: float,
) -> Connection:
    """Return the connection of one request, and keep it in the ASGI scope."""
    connection = scope[_KEY] = Connection(receive, send, write_s)
    return connection


def connection_of(scope: MutableMapping[str, Any]) -> Connection:
    """Return the connection that `open_connection` put into the scope."""
    connection: Connection = scope[_KEY]
    return connection


async def guard_listeners(patience_s: float) -> None:
    """Set socket options so that the kernel drops a connection whose peer has read nothing for a time.

    The time is `patience_s`, the limit of each write to a stream, and `KERNEL_GRACE_S`. The options also limit the
    unsent data of each connection. Accepted sockets inherit the options of the listening ones (Linux). The server opens
    those after the application has started, so this waits until they exist.
    """
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        return
    user_timeout_ms = round((patience_s + KERNEL_GRACE_S) * 1000)
    with suppress(TimeoutError):
        async with asyncio.timeout(_FOUND_S):
            while True:
                found = 0
                for listener in _listeners():
                    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, user_timeout_ms)
                    listener.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES)
                    found += 1
                if found:
                    return
                await asyncio.sleep(_LOOK_S)
    _log.warning("no listening socket found: only the write timeout of streams closes connections that stop reading")


def _listeners() -> Iterator[socket.socket]:
    """Yield the listening sockets of this process."""
    for _, one in graceful_shutdown.sockets():
        if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            yield one
