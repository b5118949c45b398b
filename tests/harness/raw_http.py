"""HTTP as octets on a socket: what no client library would send, and what comes back for it."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import orjson
from msgspec import Struct

PATIENCE_S = 20.0
_TRUSTING = ssl.create_default_context()  # the certificates of tests are nobody's
_TRUSTING.check_hostname = False
_TRUSTING.verify_mode = ssl.CERT_NONE


class RawAnswer(Struct, frozen=True):
    """A response as received; header names are lower-case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error_type(self) -> str | None:
        """The `type` of the error envelope; None where the body is none."""
        with suppress(orjson.JSONDecodeError, KeyError, TypeError):
            found: str = orjson.loads(self.body)["error"]["type"]
            return found
        return None


async def exchange(base_url: str, *pieces: bytes, ends: bool = False, most: int | None = None) -> list[RawAnswer]:
    """Write the pieces to a connection of their own and return every answer until the server closes it.

    `ends`: stop sending behind them (a half-close). `most`: return when so many answers are there. Raises TimeoutError
    for a server that does not close.
    """
    address = urlsplit(base_url)
    reader, writer = await asyncio.open_connection(
        address.hostname, address.port, ssl=_TRUSTING if address.scheme == "https" else None
    )
    try:
        received = asyncio.create_task(_received(reader, most))
        with suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if ends:
                writer.write_eof()
        async with asyncio.timeout(PATIENCE_S):
            return list(answers(await received))
    finally:
        received.cancel()
        writer.transport.abort()


async def _received(reader: asyncio.StreamReader, most: int | None) -> bytes:
    octets = b""
    with suppress(ConnectionError):  # a reset ends it as well
        while piece := await reader.read(65536):
            octets += piece
            with suppress(ValueError):  # the last one is not whole yet
                if most is not None and len(list(answers(octets))) >= most:
                    break
    return octets


def answers(octets: bytes) -> Iterator[RawAnswer]:
    """Split what a server sent into its responses; raises ValueError for what is none."""
    while octets:
        head, separator, octets = octets.partition(b"\r\n\r\n")
        if not separator or not head.startswith(b"HTTP/1."):
            raise ValueError(f"not an HTTP response: {head[:200]!r}")
        first, *fields = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in fields)}
        status = int(first.split(" ", 2)[1])
        size = 0 if status < 200 else int(headers.get("content-length", len(octets)))
        if len(octets) < size:
            raise ValueError(f"{size - len(octets)} octets of a response are missing")
        yield RawAnswer(status, headers, octets[:size])
        octets = octets[size:]
