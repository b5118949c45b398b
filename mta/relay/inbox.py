"""What a client sends, taken in bounded pieces: command lines, and message content up to its final dot.

Lines end with CRLF and with nothing else, and content ends with CRLF, dot, CRLF and with nothing else: a server
that takes a bare LF for a line end can be made to read one message as two (SMTP smuggling).
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, NamedTuple

MOST_AHEAD: Final = 256 * 1024  # octets a client may send ahead of being read
END: Final = b"\r\n.\r\n"
MOST_THROWN: Final = 16 * 1024 * 1024  # octets of one line, before its sender is cut off


class Gone(ConnectionError):  # noqa: N818 - named for what happened
    """The client closed the connection."""


class Dropped(StrEnum):
    """Why content was read and not kept."""

    SIZE = "size"
    MEMORY = "memory"


class Content(NamedTuple):
    """A whole message as sent, dots unstuffed; or, when `dropped`, nothing of it."""

    octets: bytes
    dropped: Dropped | None
    size: int  # octets received, without the final dot


class Flaw(StrEnum):
    """Why a line is none."""

    LONG = "long"
    BARE = "bare"  # ended by a line feed without carriage return


class Line(NamedTuple):
    """One line without its CRLF; nothing of it is kept when it has a `flaw`."""

    octets: bytes
    flaw: Flaw | None = None


class Held:
    """The octets of content that all sessions of a process hold at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.octets = 0

    def take(self, count: int) -> bool:
        """Reserve; False when there is no room."""
        if self.octets + count > self._most:
            return False
        self.octets += count
        return True

    def give(self, count: int) -> None:
        """Release."""
        self.octets -= count


class Inbox:
    """What one client sent and nobody took yet; fed by the protocol.

    `before_wait` is called whenever nothing is left to read without waiting: the moment to write the replies
    that are due. A client that sends far ahead is held back.
    """

    def __init__(self, before_wait: Callable[[], Awaitable[None]]) -> None:
        self._before_wait = before_wait
        self._buffer = bytearray()
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
        elif len(self._buffer) > MOST_AHEAD and not self._paused:
            self._paused, self._transport = True, transport
            transport.pause_reading()

    def end(self) -> None:
        """No more will come."""
        self._ended = True
        self._wake()

    async def line(self, most: Callable[[bytes], int]) -> Line:
        """The next line; `most(its beginning)` octets are the most. Raises Gone."""
        searched = thrown = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                if not line.endswith(b"\r"):
                    return Line(b"", Flaw.BARE)
                return Line(b"", Flaw.LONG) if thrown or end - 1 > most(line) else Line(line[:-1])
            if len(self._buffer) > most(bytes(self._buffer[:16])) + 1 or thrown:
                thrown += len(self._buffer)
                if thrown > MOST_THROWN:
                    raise Gone
                del self._buffer[:-1]  # its last octet may be half of the CRLF
            searched = len(self._buffer)
            await self._fill()

    async def content(self, most: int, held: Held, on_wait: Callable[[int], None]) -> Content:
        """Everything up to the final dot. Beyond `most` octets, or without room in `held`, it is read and dropped.

        `on_wait` is told how many octets came, before each wait for more. What is not dropped stays counted in
        `held` with its `size` until the caller gives that back. Raises Gone; then nothing is held.
        """
        # The CRLF that ended the DATA command is the one before the first line (RFC 5321 4.1.1.4).
        self._buffer[:0] = b"\r\n"
        dropped: Dropped | None = None
        searched = gone = taken = 0
        try:
            while (end := self._buffer.find(END, searched)) < 0:
                searched = max(0, len(self._buffer) - len(END) + 1)
                if dropped is None:
                    dropped, taken = _account(len(self._buffer), most + most // 64, held, taken)
                if dropped is not None:
                    gone += searched
                    del self._buffer[:searched]
                    searched = 0
                on_wait(gone + len(self._buffer))
                await self._fill()
            if dropped is None:
                dropped, taken = _account(end, most + most // 64, held, taken)
            octets = b"" if dropped is not None else bytes(self._buffer[2 : end + 2])
            del self._buffer[: end + len(END)]
        except BaseException:
            held.give(taken)
            raise
        if dropped is not None:
            return Content(b"", dropped, gone + end)
        held.give(taken - len(octets))
        content = unstuffed(octets) if b"\r\n." in octets or octets[:1] == b"." else octets
        if len(content) > most:  # stuffed dots don't count (RFC 1870 3)
            held.give(len(octets))
            return Content(b"", Dropped.SIZE, len(octets))
        return Content(content, None, len(octets))

    async def _fill(self) -> None:
        """Wait until more has come."""
        before = len(self._buffer)
        await self._before_wait()
        if len(self._buffer) > before:
            return
        if self._ended:
            raise Gone
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


def _account(size: int, most: int, held: Held, taken: int) -> tuple[Dropped | None, int]:
    """(why content of that size is given up, octets now reserved for it)."""
    if size > most + len(END):
        held.give(taken)
        return Dropped.SIZE, 0
    if size > taken:
        if not held.take(size - taken):
            held.give(taken)
            return Dropped.MEMORY, 0
        return None, size
    return None, taken


def unstuffed(octets: bytes) -> bytes:
    """Content without the dots that protect its lines (RFC 5321 4.5.2): the first octet of a line that is a dot."""
    if octets[:1] == b".":
        octets = octets[1:]
    return octets.replace(b"\r\n.", b"\r\n")
