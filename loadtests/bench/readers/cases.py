"""What a case is: a request that the running API reads, or octets that a parser takes in this process."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

SIZE_BYTES = 2 * 1024 * 1024


class ReaderTarget(Struct, frozen=True):
    """The API under measurement, and a key that may do everything."""

    host: str
    port: int
    key: str
    sender: str


class RawRequest(Struct, frozen=True):
    """What goes over a socket. With `apart` each piece is a TCP segment of its own."""

    pieces: Sequence[bytes]
    apart: bool = False


class HttpCase(Struct, frozen=True):
    """A request at its worst for one reader; `bound` says what ends it."""

    reader: str
    worst: str
    bound: str
    request: Callable[[ReaderTarget], RawRequest]


class FunctionCase(Struct, frozen=True):
    """Input at its worst for one function; what `read` raises counts as an answer."""

    reader: str
    worst: str
    bound: str
    content: Callable[[], bytes]
    read: Callable[[bytes], Any]


Case = HttpCase | FunctionCase
