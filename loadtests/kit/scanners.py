"""Peers that speak clamd's and rspamd's protocols, and fail as told: they hang, answer garbage, close, or are away.

They remember the content for which they gave a verdict, so that a drill or test can tell what was scanned.
"""

import asyncio
import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.base.settings import SocketAddress
from loadtests.kit.servers import HOST, HttpRequest, ScriptedServer, http_answer, read_request

EICAR: Final = rb"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"
SCORE: Final = 1.25
_GARBAGE: Final = b"\xff\x00HTTP/9.9 okay\r\n\r\n" + bytes(range(256))


class ScannerMode(StrEnum):
    """The simulated behaviour of a scanner."""

    WORKING = "working"
    HANGING = "hanging"  # reads and never answers
    GARBAGE = "garbage"
    CLOSING = "closing"  # accepts and closes
    AWAY = "away"  # nothing listens


class ScannerPeer(ScriptedServer):
    """A scanner; `mode` can be set at any time. `scanned` holds all content with a verdict, in order."""

    def __init__(self, port: int = 0, *, path: Path | None = None) -> None:
        super().__init__(port, path=path)
        self.scanned: list[bytes] = []
        self.mode = ScannerMode.WORKING

    @property
    def digests(self) -> set[bytes]:
        """Return the SHA-256 of all content with a verdict."""
        return {hashlib.sha256(content).digest() for content in self.scanned}

    async def change(self, mode: ScannerMode) -> None:
        """Behave like this from now on; open connections are closed."""
        await self.stop()
        self.mode = mode
        if mode is not ScannerMode.AWAY:
            await self.start()

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request as the mode says."""
        if self.mode is ScannerMode.CLOSING:
            return
        content, answer = await self.examine(reader)
        if self.mode is ScannerMode.HANGING:
            await reader.read()  # until the service gives up
        elif self.mode is ScannerMode.GARBAGE:
            writer.write(_GARBAGE)
        else:
            self.scanned += [] if content is None else [content]
            writer.write(answer)

    @abstractmethod
    async def examine(self, reader: asyncio.StreamReader) -> tuple[bytes | None, bytes]:
        """Read one request; return its content (None: without a verdict) and the answer to it."""


class ClamdPeer(ScannerPeer):
    """clamd's INSTREAM command (clamd(8)). `viruses` are names by content; `max_bytes` as its StreamMaxLength."""

    def __init__(self, port: int = 0, *, path: Path | None = None, viruses: Mapping[bytes, str] | None = None) -> None:
        super().__init__(port, path=path)
        self.max_bytes = 64 * 1024 * 1024
        self._viruses = viruses or {EICAR: "Eicar-Test-Signature"}

    @property
    def address(self) -> SocketAddress:
        """Return the address for the setting."""
        return SocketAddress(path=str(self.path)) if self.path else SocketAddress(host=HOST, port=self.port)

    async def examine(self, reader: asyncio.StreamReader) -> tuple[bytes | None, bytes]:
        """Read pieces with a length before each, and one of no octets at the end."""
        await reader.readuntil(b"\0")
        content = bytearray()
        while length := int.from_bytes(await reader.readexactly(4), "big"):
            if len(content) + length > self.max_bytes:
                return None, b"INSTREAM size limit exceeded. ERROR\0"  # the rest is not read
            content += await reader.readexactly(length)
        found = next((name for virus, name in self._viruses.items() if virus in content), None)
        return bytes(content), b"stream: OK\0" if found is None else f"stream: {found} FOUND\0".encode()


class RspamdPeer(ScannerPeer):
    """rspamd's HTTP protocol: a message in the body of a POST, and a score in JSON, or the octets of `reply`."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self.reply: dict[str, Any] | bytes = {"score": SCORE, "required_score": 15, "action": "no action"}
        self.status = 200
        self.asked: list[HttpRequest] = []

    @property
    def url(self) -> str:
        """Return the URL for the setting."""
        return f"http://{HOST}:{self.port}"

    async def examine(self, reader: asyncio.StreamReader) -> tuple[bytes | None, bytes]:
        """Read a request; every message gets the same score."""
        request = await read_request(reader)
        self.asked.append(request)
        body = self.reply if isinstance(self.reply, bytes) else msgspec.json.encode(self.reply)
        return request.body, http_answer(self.status, body, close=True)
