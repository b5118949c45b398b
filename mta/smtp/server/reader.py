"""What a client sends, taken in bounded pieces: command lines, and message content up to its final dot.

Lines end with CRLF and with nothing else, and content ends with CRLF, dot, CRLF and with nothing else: a server
that takes a bare LF for a line end can be made to read one message as two (SMTP smuggling).
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, NamedTuple

from engine.base.errors import Refusal
from engine.base.memory_pool import Reservation

MAX_UNREAD: Final = 256 * 1024  # octets a client may send ahead of being read
CONTENT_END: Final = b"\r\n.\r\n"
MAX_DISCARDED: Final = 16 * 1024 * 1024  # octets of one line, before its sender is cut off


class ClientGone(ConnectionError):  # noqa: N818 - named for what happened
    """The client closed the connection."""


class ContentDropped(StrEnum):
    """Why content was read and not kept."""

    SIZE = "size"
    MEMORY = "memory"


class ReceivedContent(NamedTuple):
    """A whole message as sent, dots unstuffed; or, when `dropped`, nothing of it."""

    octets: bytes
    dropped: ContentDropped | None
    size: int  # octets received, without the final dot


class LineFlaw(StrEnum):
    """Why a line is none."""

    LONG = "long"
    BARE = "bare"  # ended by a line feed without carriage return


class ReceivedLine(NamedTuple):
    """One line without its CRLF; nothing of it is kept when it has a `flaw`."""

    octets: bytes
    flaw: LineFlaw | None = None


class SmtpReader:
    """What one client sent and nobody took yet; fed by the protocol.

    `before_wait` is called whenever nothing is left to read without waiting: the moment to write the replies
    that are due. A client that sends far ahead is held back.
    """

    def __init__(self, before_wait: Callable[[], Awaitable[None]]) -> None:
        self._before_wait = before_wait
        self._buffer = bytearray()
        self._searched = self._discarded = 0  # octets of the content under way
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.ReadTransport | None = None
        self._paused = False

    @property
    def pending(self) -> bool:
        """True when the client has sent more than was taken so far."""
        return bool(self._buffer)

    def feed(self, data: bytes, transport: asyncio.ReadTransport) -> None:
        """Octets came."""
        self._buffer += data
        if self._waiter is not None:
            self._wake()
        elif len(self._buffer) > MAX_UNREAD and not self._paused:
            self._paused, self._transport = True, transport
            transport.pause_reading()

    def end(self) -> None:
        """No more will come."""
        self._ended = True
        self._wake()

    async def line(self, most: Callable[[bytes], int]) -> ReceivedLine:
        """The next line; `most(its beginning)` octets are the most. Raises Gone."""
        searched = thrown = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                if not line.endswith(b"\r"):
                    return ReceivedLine(b"", LineFlaw.BARE)
                return ReceivedLine(b"", LineFlaw.LONG) if thrown or end - 1 > most(line) else ReceivedLine(line[:-1])
            if len(self._buffer) > most(bytes(self._buffer[:16])) + 1 or thrown:
                thrown += len(self._buffer)
                if thrown > MAX_DISCARDED:
                    raise ClientGone
                del self._buffer[:-1]  # its last octet may be half of the CRLF
            searched = len(self._buffer)
            await self._fill()

    async def content(self, most: int, reservation: Reservation, on_wait: Callable[[int], None]) -> ReceivedContent:
        """Everything up to the final dot. Beyond `most` octets, or without memory for it, it is read and dropped.

        `on_wait` is told how many octets came, before each wait for more. The caller releases the reservation. Raises
        Gone.
        """
        # The CRLF that ended the DATA command is the one before the first line (RFC 5321 4.1.1.4).
        self._buffer[:0] = b"\r\n"
        self._searched = self._discarded = 0
        most_stuffed = most + most // 64
        dropped: ContentDropped | None = None
        reservation.begin(on_revoke=self._discard)
        while (end := self._buffer.find(CONTENT_END, self._searched)) < 0:
            self._searched = max(0, len(self._buffer) - len(CONTENT_END) + 1)
            dropped = dropped or _reserve(len(self._buffer), most_stuffed, reservation)
            if dropped is not None:
                self._discard()
            on_wait(self._discarded + len(self._buffer))
            await self._fill()
        dropped = dropped or _reserve(end, most_stuffed, reservation)
        octets = b"" if dropped is not None else bytes(self._buffer[2 : end + 2])
        del self._buffer[: end + len(CONTENT_END)]
        if dropped is not None:
            return ReceivedContent(b"", dropped, self._discarded + end)
        reservation.complete()
        content = unstuffed(octets) if b"\r\n." in octets or octets[:1] == b"." else octets
        if len(content) > most:  # stuffed dots don't count (RFC 1870 3)
            return ReceivedContent(b"", ContentDropped.SIZE, len(octets))
        return ReceivedContent(content, None, len(octets))

    def _discard(self) -> None:
        """Forget the content that came, but for octets that may begin its end."""
        count = max(0, len(self._buffer) - len(CONTENT_END) + 1)
        del self._buffer[:count]
        self._discarded += count
        self._searched = 0

    async def _fill(self) -> None:
        """Wait until more has come."""
        before = len(self._buffer)
        await self._before_wait()
        if len(self._buffer) > before:
            return
        if self._ended:
            raise ClientGone
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _reserve(size: int, most: int, reservation: Reservation) -> ContentDropped | None:
    """Reserve memory for content of that size; why it is given up where it is."""
    if size > most + len(CONTENT_END):
        reservation.release()
        return ContentDropped.SIZE
    try:
        reservation.take(max(0, size - reservation.octets))
    except Refusal:
        reservation.release()
        return ContentDropped.MEMORY
    return None


def unstuffed(octets: bytes) -> bytes:
    """Content without the dots that protect its lines (RFC 5321 4.5.2): the first octet of a line that is a dot."""
    if octets[:1] == b".":
        octets = octets[1:]
    return octets.replace(b"\r\n.", b"\r\n")
