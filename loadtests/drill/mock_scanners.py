"""Peers that speak clamd's and rspamd's protocols, and fail as told: they hang, answer garbage, close, or are away.

They remember the content for which they gave a verdict, so that a drill can tell what was scanned.
"""

import asyncio
import hashlib
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Final, Self

from loadtests.drill.mx_client import INFECTED

SCORE: Final = 1.25  # what the rspamd peer answers
VIRUS: Final = "Drill.Test"
_MAX_HEADER: Final = 64 * 1024
_GARBAGE: Final = b"\xff\x00HTTP/9.9 okay\r\n\r\n" + bytes(range(256))


class ScannerMode(StrEnum):
    """The simulated behaviour of a scanner."""

    WORKING = "working"
    HANGING = "hanging"  # reads and never answers
    GARBAGE = "garbage"
    CLOSING = "closing"  # accepts and closes
    AWAY = "away"  # nothing listens


class MockScanner:
    """A listening peer; use as an async context manager. `scanned`: SHA-256 of all content with a verdict."""

    def __init__(self, port: int) -> None:
        self.scanned: set[bytes] = set()
        self.mode = ScannerMode.WORKING
        self._port = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    async def change(self, mode: ScannerMode) -> None:
        """Behave like this from now on; open connections are closed."""
        self._close()
        self.mode = mode
        if mode is not ScannerMode.AWAY:
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=_MAX_HEADER)

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with suppress(OSError, EOFError, asyncio.LimitOverrunError):
                if self.mode is not ScannerMode.CLOSING:
                    await self._converse(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        content = await self.read(reader)
        if self.mode is ScannerMode.HANGING:
            await reader.read()  # until the service gives up
        elif self.mode is ScannerMode.GARBAGE:
            writer.write(_GARBAGE)
            await writer.drain()
        elif self.mode is ScannerMode.WORKING:
            self.scanned.add(hashlib.sha256(content).digest())
            writer.write(self.answer(content))
            await writer.drain()

    async def read(self, reader: asyncio.StreamReader) -> bytes:
        """Read one request and return the content to scan."""
        raise NotImplementedError

    def answer(self, content: bytes) -> bytes:
        """Return the answer of a working scanner."""
        raise NotImplementedError


class MockClamd(MockScanner):
    """clamd's INSTREAM command (clamd(8)): pieces with a length before each, and one of no octets at the end."""

    async def read(self, reader: asyncio.StreamReader) -> bytes:
        """Read a command and the pieces of its stream."""
        await reader.readuntil(b"\0")
        pieces: list[bytes] = []
        while length := int.from_bytes(await reader.readexactly(4), "big"):
            pieces.append(await reader.readexactly(length))
        return b"".join(pieces)

    def answer(self, content: bytes) -> bytes:
        """Return OK, or the name of the drill's own virus."""
        return b"stream: OK\0" if INFECTED not in content else f"stream: {VIRUS} FOUND\0".encode()


class MockRspamd(MockScanner):
    """rspamd's HTTP protocol: a message in the body of a POST, and a score in JSON."""

    async def read(self, reader: asyncio.StreamReader) -> bytes:
        """Read a request and return its body."""
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        return await reader.readexactly(int(length.partition(b":")[2]))

    def answer(self, content: bytes) -> bytes:  # noqa: ARG002 - every message gets the same score
        """Return the score."""
        body = b'{"score": %.2f, "required_score": 15.0, "action": "no action", "symbols": {}}' % SCORE
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        return head % len(body) + body
