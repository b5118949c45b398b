"""Wait for lines and content of one SMTP client, within limits of size and memory (`buffer` finds them)."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from engine.base.errors import Refusal
from engine.base.memory_pool import Reservation
from mta.smtp.server.buffer import CONTENT_END, ReceivedLine, SmtpBuffer, max_stuffed, unstuffed

MAX_UNREAD: Final = 256 * 1024  # octets a client may send before the server reads them
MAX_INLINE: Final = 1024 * 1024  # octets that the event loop unstuffs itself, in 1 ms
TURN_OCTETS: Final = 256 * 1024  # of content that a client sends before others are served, 0.5 ms of work
TURN_S: Final = 0.001  # between two turns of clients that send much
MAX_DISCARDED: Final = 16 * 1024 * 1024  # octets of one line, before the client is disconnected


class ClientGone(ConnectionError):  # noqa: N818 - named for what happened
    """The client closed the connection."""


class ContentDropped(StrEnum):
    """The reason why content was read and not kept."""

    SIZE = "size"
    MEMORY = "memory"


class ReceivedContent(NamedTuple):
    """A complete message as sent, dots unstuffed; empty when `dropped`."""

    octets: bytes
    dropped: ContentDropped | None
    size: int  # octets received, without the final dot


class ReadTurns:
    """The clients of one event loop that wait for their next turn to send content, the longest waiting first.

    Without turns, libuv reads up to 2 MB of each client in one iteration of the loop, and commands of other clients,
    each of which takes several iterations, wait for seconds.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` when it is this client's turn."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_later(TURN_S, self._next)

    def _next(self) -> None:
        go_on = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_later(TURN_S, self._next)
        go_on()


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, ReadTurns] = WeakKeyDictionary()


class SmtpReader:
    """The unread octets of one client for one reading task; the protocol feeds it.

    The reader awaits `before_wait` whenever nothing is left to read without waiting: the moment to write pending
    replies. A client that sends too far ahead is paused.
    """

    def __init__(self, before_wait: Callable[[], Awaitable[None]], *, max_discarded: int = MAX_DISCARDED) -> None:
        """Start empty; after `max_discarded` octets of one too long line the client counts as disconnected."""
        self._before_wait = before_wait
        self._max_discarded = max_discarded
        self._buffer = SmtpBuffer()
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.ReadTransport | None = None
        self._paused = False
        self._awaits_turn = False
        self._turn_octets = 0  # of content since the client's last turn began

    @property
    def pending(self) -> bool:
        """Return True if received octets are not read yet."""
        return len(self._buffer) > 0

    def feed(self, data: bytes, transport: asyncio.ReadTransport) -> None:
        """Add octets from the client; pauses `transport` when too many are unread."""
        self._buffer.feed(data)
        self._turn_octets += len(data)
        waited = self._waiter is not None
        self._wake()
        if self._paused:
            return
        if self._turn_octets > TURN_OCTETS:
            self._pause(transport)
            self._awaits_turn = True
            _turns.setdefault(asyncio.get_running_loop(), ReadTurns()).wait(self._begin_turn)
        elif not waited and len(self._buffer) > MAX_UNREAD:
            self._pause(transport)

    def end(self) -> None:
        """Mark the end of the input."""
        self._ended = True
        self._wake()

    async def line(self, max_octets: Callable[[bytes], int]) -> ReceivedLine:
        """Return the next line; `max_octets(its beginning)` is its limit. Raises ClientGone."""
        while (line := self._buffer.take_line(max_octets)) is None:
            if self._buffer.discarded_line > self._max_discarded:
                raise ClientGone
            await self._fill()
        return line

    async def content(
        self, max_octets: int, reservation: Reservation, on_wait: Callable[[int], None]
    ) -> ReceivedContent:
        """Return everything up to the final dot; beyond `max_octets`, or without memory for it, it is dropped.

        `on_wait` is given the number of octets that arrived, before each wait for more. The caller releases the
        reservation. Raises ClientGone.
        """
        buffer, limit = self._buffer, max_stuffed(max_octets)
        dropped: ContentDropped | None = None
        buffer.begin_content()
        reservation.begin(on_revoke=buffer.discard_content)
        while (end := buffer.find_content_end()) < 0:
            dropped = dropped or _reserve(len(buffer), limit, reservation)
            if dropped is not None:
                buffer.discard_content()
            on_wait(buffer.content_octets)
            await self._fill()
        dropped = dropped or _reserve(end, limit, reservation)
        size = buffer.content_octets - len(buffer) + end
        stuffed = buffer.take_content(end, keep=dropped is None)
        if dropped is not None:
            return ReceivedContent(b"", dropped, size)
        reservation.complete()
        content = await asyncio.to_thread(unstuffed, stuffed) if size > MAX_INLINE else unstuffed(stuffed)
        if len(content) > max_octets:  # stuffed dots don't count (RFC 1870 3)
            return ReceivedContent(b"", ContentDropped.SIZE, size)
        return ReceivedContent(content, None, size)

    async def skip_content(self, max_octets: int) -> int:
        """Read content up to the final dot without keeping it; return its octets. Raises ClientGone.

        A client that sends more than twice `max_octets` counts as gone.
        """
        buffer = self._buffer
        buffer.begin_content()
        while (end := buffer.find_content_end()) < 0:
            buffer.discard_content()
            if buffer.content_octets > 2 * max_octets:
                raise ClientGone
            await self._fill()
        size = buffer.content_octets - len(buffer) + end
        buffer.take_content(end, keep=False)
        return size

    async def _fill(self) -> None:
        """Wait until more octets have come."""
        before = len(self._buffer)
        await self._before_wait()
        if len(self._buffer) > before:
            return
        if self._ended:
            raise ClientGone
        self._resume()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _pause(self, transport: asyncio.ReadTransport) -> None:
        self._paused, self._transport = True, transport
        if not transport.is_closing():
            transport.pause_reading()

    def _resume(self) -> None:
        """Let the client send, unless it has to wait for its turn."""
        if self._paused and not self._awaits_turn and self._transport is not None:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def _begin_turn(self) -> None:
        self._awaits_turn, self._turn_octets = False, 0
        if self._waiter is not None:
            self._resume()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _reserve(size: int, limit: int, reservation: Reservation) -> ContentDropped | None:
    """Reserve memory for content of `size`; return why the content is dropped, if it is."""
    if size > limit + len(CONTENT_END):
        reservation.release()
        return ContentDropped.SIZE
    try:
        reservation.take(max(0, size - reservation.octets))
    except Refusal:
        reservation.release()
        return ContentDropped.MEMORY
    return None
