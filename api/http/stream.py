"""A request's connection: its body in pieces, and streamed answers, whose writes are bounded, whose clients are missed
when they go away or take nothing, and whose end is announced.

Falcon pulls the pieces and the server sends them, each waiting for the one below it. A client that does not read
therefore holds its own request and nothing else: the piece in hand, the server's buffer and the kernel's.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import suppress
from typing import Any, Final

import structlog
from engine.store.database_errors import DatabaseUnavailable

from api.http import farewell
from api.http.farewell import Farewell
from api.http.operation import Streamed
from engine.base.errors import Refusal, invalid
from engine.store.deadlines import within

LAST_WORDS_S: Final = 1.0
PIECE_BYTES: Final = 64 * 1024  # in `stream_write_s`: 2 KB a second by default
UNSENT_BYTES: Final = 128 * 1024  # in the kernel for one connection, beyond what its peer has room for
_TCP_NOTSENT_LOWAT: Final = 25  # linux/tcp.h; Python names it from 3.12 on
_KEY: Final = "waybill.connection"
DRAIN_S: Final = 3.0
MAX_DRAINED_BYTES: Final = 16 * 1024 * 1024
FREE_DRAINED_PIECES: Final = 64
MIN_DRAINED_PIECE_BYTES: Final = 1024  # on average, beyond those
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
_FOUND_S, _LOOK_S = 10.0, 0.05

_log = structlog.get_logger("api")


class TooSlow(Exception):  # noqa: N818 - named for what the client is
    """A piece of a stream was not taken in time."""


class Connection:
    """One request's way to its client and back: ASGI's receive and send, with a bound on the writes of a stream."""

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
        """The next piece of the body; empty behind the last. Raises Refusal when the body ends before its time."""
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
        """The body has all the octets that its client declared: there is nothing more to read."""
        self._body_ended = True

    async def drain(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Read on for a moment behind the answer where a body was left unread: a client that is still writing hears the
        answer only when its writing gets through (RFC 9112 section 9.6). What is left then closes the connection.
        """
        if self._body_ended or self._answer is not None or Farewell.begun:
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

    def carry(self, answer: Streamed, **names: str) -> None:
        """Take charge of a stream: from here on it will be closed, and a client that leaves ends its request."""
        self._answer = answer
        self._names = names
        self._task = asyncio.current_task()
        self._watcher = asyncio.create_task(self._watch())

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """ASGI's send; raises TooSlow for a client that has not taken a piece of a stream in time."""
        if Farewell.begun or self._broken:
            message = farewell.closing(message)
        if self._answer is None:
            await self._send(message)
            return
        try:
            for piece in _pieces(message):
                async with asyncio.timeout(self._write_s):
                    await self._send(piece)
        except TimeoutError:
            await self._take_leave(self._answer.last_words)
            raise TooSlow from None

    async def run(self, serving: Any) -> None:
        """Await the application on this connection; a stream is closed at its end, whatever ends it.

        A stream that broke leaves its HTTP body unfinished, so that the client can tell. Errors of requests
        without one are the server's to report.
        """
        try:
            await serving
        except asyncio.CancelledError:
            if not self._gone:
                raise
            assert self._task is not None
            self._task.uncancel()  # the cancellation was our own
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

    async def _take_leave(self, words: bytes) -> None:
        if words:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._send({"type": "http.response.body", "body": words, "more_body": True})

    async def _close(self, answer: Streamed) -> None:
        self._closing = True
        self._watcher.cancel()
        await answer.chunks.aclose()

    def _report(self, error: Exception) -> None:
        if self._gone:  # a driver that was cancelled half-way may raise an error of its own
            return
        if isinstance(error, TooSlow):
            _log.info("stream cut", why="the client took nothing", seconds=self._write_s, **self._names)
        elif isinstance(error, (DatabaseUnavailable, OSError)):
            _log.warning("stream broken off", error=repr(error), **self._names)
        else:
            _log.error("stream failed", exc_info=error, **self._names)


def _pieces(message: MutableMapping[str, Any]) -> Iterator[MutableMapping[str, Any]]:
    """A message of ASGI with its body cut into pieces that a slow line takes in time."""
    body = message.get("body", b"")
    if len(body) <= PIECE_BYTES:
        yield message
        return
    for start in range(0, len(body), PIECE_BYTES):
        more = start + PIECE_BYTES < len(body) or message.get("more_body", False)
        yield {**message, "body": body[start : start + PIECE_BYTES], "more_body": more}


def broken_body() -> Refusal:
    """A 400 for a body that broke off or whose framing is wrong: the server tells the two apart to nobody.

    RFC 9112 8: such a message is incomplete, and what has come of it must not be taken for the whole.
    """
    return invalid(
        "body",
        "The request body is incomplete: the connection ended before its declared length or its last chunk, or a chunk "
        "is malformed. Nothing was accepted.",
    )


def open_connection(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Any],
    send: Callable[[Any], Any],
    write_s: float,
) -> Connection:
    """The connection of one request, kept in its scope."""
    connection = scope[_KEY] = Connection(receive, send, write_s)
    return connection


def connection_of(scope: MutableMapping[str, Any]) -> Connection:
    """The connection that `open_connection` put there."""
    connection: Connection = scope[_KEY]
    return connection


async def guard_listeners(patience_s: float) -> None:
    """Have the kernel cut each connection whose peer takes nothing for `patience_s`, and hold little unsent for it.

    The options are set on the listening sockets and passed on to what they accept (Linux). The server opens them
    after the application has started, so they are looked for until they are there.
    """
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(_FOUND_S):
            while True:
                found = 0
                for listener in _listeners():
                    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(patience_s * 1000))
                    listener.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES)
                    found += 1
                if found:
                    return
                await asyncio.sleep(_LOOK_S)
    _log.warning("no listening socket found: a client that reads nothing is cut by the stream's own bound only")


def _listeners() -> Iterator[socket.socket]:
    """The listening ones among them."""
    for _, one in farewell.sockets():
        if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            yield one
