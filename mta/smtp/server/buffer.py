"""Find command lines and message content in the octets that an SMTP client sends, within bounds; no I/O.

A line ends with CRLF and with nothing else, and content ends with CRLF, dot, CRLF and with nothing else: a server
that accepts a bare LF as a line end can be made to read one message as two (SMTP smuggling).
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final

from msgspec import Struct

CONTENT_END: Final = b"\r\n.\r\n"
SLICE: Final = 256 * 1024  # octets unstuffed at a time: 0.3 ms
_DOT_LINE: Final = b".\r\n"
_VERB_OCTETS: Final = 16  # enough of a line to look up its limit


class LineFlaw(StrEnum):
    """The reason why a line is unusable."""

    LONG = "long"
    BARE = "bare"  # ended by a line feed without carriage return


class ReceivedLine(Struct, frozen=True, gc=False):
    """A line without its CRLF; `octets` is empty when it has a `flaw`."""

    octets: bytes
    flaw: LineFlaw | None = None


class SmtpBuffer:
    """Octets that one client sent and that were not taken yet.

    `feed` adds octets; `take_line` removes one line. For content: `begin_content`, then `find_content_end` after each
    `feed` until it is 0 or more, then `take_content`. `discard_content` frees the memory of content that is refused.
    """

    __slots__ = ("_discarded", "_octets", "_searched", "discarded_line")

    def __init__(self) -> None:
        self._octets = bytearray()
        self._searched = 0  # no line end or content end starts before here
        self._discarded = 0  # octets of the present content
        self.discarded_line = 0  # octets of the present line, which exceeds its limit

    def __len__(self) -> int:
        return len(self._octets)

    def feed(self, data: bytes) -> None:
        """Add octets from the client."""
        self._octets += data

    def clear(self) -> None:
        """Discard all octets: before TLS, they may have been injected (RFC 3207 6)."""
        self._octets.clear()
        self._searched = self._discarded = self.discarded_line = 0

    def take_line(self, max_octets: Callable[[bytes], int]) -> ReceivedLine | None:
        """Remove and return the next line, or return None while it is incomplete.

        `max_octets` is given the beginning of the line and returns its limit without CRLF. Octets beyond the limit are
        discarded as they arrive and counted in `discarded_line`.
        """
        octets = self._octets
        end = octets.find(b"\n", self._searched)
        if end < 0:
            if self.discarded_line or len(octets) > max_octets(bytes(octets[:_VERB_OCTETS])) + 1:
                self.discarded_line += len(octets)
                del octets[:-1]  # the last octet may be the CR of the CRLF
            self._searched = len(octets)
            return None
        line = bytes(octets[:end])
        del octets[: end + 1]
        discarded, self.discarded_line, self._searched = self.discarded_line, 0, 0
        if not line.endswith(b"\r"):
            return ReceivedLine(b"", LineFlaw.BARE)
        return ReceivedLine(b"", LineFlaw.LONG) if discarded or end - 1 > max_octets(line) else ReceivedLine(line[:-1])

    def begin_content(self) -> None:
        """Read content from here on."""
        self._searched = self._discarded = 0

    @property
    def content_octets(self) -> int:
        """Octets of the present content that arrived so far, discarded ones included."""
        return self._discarded + len(self._octets)

    def find_content_end(self) -> int:
        """Return the number of octets before the line of the final dot, or -1 while it is missing.

        Searches each octet once.
        """
        # The CRLF that ended the DATA command may begin the end of empty content (RFC 5321 4.1.1.4).
        if not self._discarded and self._octets.startswith(_DOT_LINE):
            return 0
        found = self._octets.find(CONTENT_END, self._searched)
        if found < 0:
            self._searched = max(0, len(self._octets) - len(CONTENT_END) + 1)
            return -1
        return found + 2

    def discard_content(self) -> None:
        """Forget the content that arrived, except for its end, or octets that may begin it."""
        if not self._discarded and self._octets.startswith(_DOT_LINE):
            return
        found = self._octets.find(CONTENT_END, self._searched)  # arrived, and not looked for yet
        count = found if found >= 0 else max(0, len(self._octets) - len(CONTENT_END) + 1)
        del self._octets[:count]
        self._discarded += count
        self._searched = 0

    def take_content(self, end: int, *, keep: bool = True) -> bytes:
        """Remove the content whose end `find_content_end` found, and return it with its dots still stuffed."""
        octets = _copied(self._octets, end) if keep else b""
        del self._octets[: end + len(_DOT_LINE)]
        self._searched = self._discarded = 0
        return octets


def _copied(octets: bytearray, end: int) -> bytes:
    """Return the first `end` octets; through a view, since slicing a bytearray would copy them twice."""
    with memoryview(octets) as whole, whole[:end] as part:
        return bytes(part)


def max_stuffed(max_octets: int) -> int:
    """Return how many octets to accept on the wire for content of `max_octets`: stuffed dots need some room."""
    return max_octets + max_octets // 64


def unstuffed(octets: bytes) -> bytes:
    """Return content without the dots that protect its lines (RFC 5321 4.5.2): the first octet of a line if a dot."""
    if octets[:1] == b".":
        octets = octets[1:]
    if len(octets) <= SLICE:
        return octets.replace(b"\r\n.", b"\r\n")
    stuffed = any(octets.find(b"\r\n.", at, at + SLICE + 2) >= 0 for at in range(0, len(octets), SLICE))
    return b"".join(_unstuffed_slices(octets)) if stuffed else octets


def _unstuffed_slices(octets: bytes) -> Iterator[bytes]:
    """Yield unstuffed slices, each but the first from a CRLF on: in a thread, other threads run between them."""
    start = 0
    while start < len(octets):
        end = octets.find(b"\r\n", start + SLICE)
        end = len(octets) if end < 0 else end
        yield octets[start:end].replace(b"\r\n.", b"\r\n")
        start = end
