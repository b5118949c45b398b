"""The kinds of cases: a request to the running API, or input for a parser in this process."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

SIZE_BYTES = 2 * 1024 * 1024


class ReaderTarget(Struct, frozen=True):
    """The API under measurement, with a key that has all scopes."""

    host: str
    port: int
    key: str
    sender: str


class RawRequest(Struct, frozen=True):
    """The octets to send over a socket. With `apart` each piece is a TCP segment of its own."""

    pieces: Sequence[bytes]
    apart: bool = False


class HttpCase(Struct, frozen=True):
    """The worst request for one reader; `bound` names the limit that ends it."""

    reader: str
    worst: str
    bound: str
    request: Callable[[ReaderTarget], RawRequest]


class FunctionCase(Struct, frozen=True):
    """The worst input for one function; an exception of `read` counts as an answer."""

    reader: str
    worst: str
    bound: str
    content: Callable[[], bytes]
    read: Callable[[bytes], Any]


Case = HttpCase | FunctionCase
