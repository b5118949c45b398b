"""Requests written octet by octet over a socket of their own: what no HTTP client would send."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import orjson

from tests.harness.api import Answer, Api, SignedIn
from tests.harness.patience import PATIENCE_S

ANSWER_S = PATIENCE_S


class Wire:
    """A connection to the API."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host

    async def head(
        self, method: str, path: str, *fields: str, token: str | None = None, person: SignedIn | None = None
    ) -> None:
        """Write a request's head; `fields` are whole lines."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._host}", *fields]
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        if person is not None:
            lines += [f"Cookie: svc_session={person.secret}", f"X-CSRF-Token: {person.csrf}"]
        await self.write("\r\n".join([*lines, "", ""]).encode())

    async def write(self, octets: bytes) -> None:
        """Write; an answer may come before all is written, and the connection end."""
        with suppress(ConnectionError):
            self._writer.write(octets)
            await self._writer.drain()

    def finish(self) -> None:
        """End our side: no more octets will come."""
        self._writer.write_eof()

    async def answer(self) -> Answer:
        """The next answer; its body needs a Content-Length."""
        async with asyncio.timeout(ANSWER_S):
            head = await self._reader.readuntil(b"\r\n\r\n")
            size = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
            body = await self._reader.readexactly(int(size[1]) if size else 0)
        lines = head.decode("latin-1").split("\r\n")[1:-2]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return Answer(int(head[9:12]), headers, body)

    async def ended(self) -> bool:
        """Return True if the server closes the connection."""
        async with asyncio.timeout(ANSWER_S):
            with suppress(ConnectionError):
                while await self._reader.read(65_536):
                    pass
            return True


@asynccontextmanager
async def wire(api: Api, source: str | None = None) -> AsyncIterator[Wire]:
    """A connection, from the address `source` of this host where one is given."""
    host, _, port = api.base_url.removeprefix("http://").partition(":")
    local = None if source is None else (source, 0)
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=local)
    try:
        yield Wire(reader, writer, host)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def chunked(pieces: Sequence[bytes], *, end: bool = True) -> bytes:
    """The pieces as chunks (RFC 9112 7.1)."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + (b"0\r\n\r\n" if end else b"")


def padded(content: object, size: int) -> bytes:
    """JSON of exactly `size` octets, with white space behind it."""
    return orjson.dumps(content).ljust(size)
