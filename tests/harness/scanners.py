"""Scripted scanners on real sockets: clamd (INSTREAM) and rspamd (POST /checkv2)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson

from engine.base.settings import SocketAddress

EICAR = rb"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"
_Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Clamd:
    """A clamd that finds EICAR. `behaviour`: scan, hang, garbage, close; `max_bytes` as its
    StreamMaxLength; `scanned` are the streams that it got."""

    def __init__(self) -> None:
        self.behaviour = "scan"
        self.max_bytes = 1024 * 1024
        self.connections = 0
        self.scanned: list[bytes] = []
        self.address = SocketAddress()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        self.connections += 1
        if self.behaviour == "hang":
            await asyncio.sleep(3600)
        elif self.behaviour == "garbage":
            writer.write(b"\xff\xfe what? \0")
        elif self.behaviour == "scan":
            writer.write(await self._scanned(reader) + b"\0")
        await writer.drain()

    async def _scanned(self, reader: asyncio.StreamReader) -> bytes:
        assert await reader.readuntil(b"\0") == b"zINSTREAM\0"
        octets = b""
        while size := int.from_bytes(await reader.readexactly(4), "big"):
            assert size <= 64 * 1024
            if len(octets) + size > self.max_bytes:
                return b"INSTREAM size limit exceeded. ERROR"  # and closes, without reading the rest
            octets += await reader.readexactly(size)
        self.scanned.append(octets)
        return b"stream: Eicar-Test-Signature FOUND" if EICAR in octets else b"stream: OK"


@contextlib.asynccontextmanager
async def clamd(path: Path | None = None) -> AsyncIterator[Clamd]:
    """Run a clamd on a TCP port, or on a Unix socket at `path`."""
    scanner = Clamd()
    async with _served(scanner.serve, path) as port:
        scanner.address = SocketAddress(path=str(path)) if path else SocketAddress(host="127.0.0.1", port=port)
        yield scanner


class Rspamd:
    """An rspamd that gives `answer`, as JSON or as raw octets; None hangs. `asked` are the requests: head and body."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] | bytes | None = {"score": 1.5, "required_score": 15, "action": "no action"}
        self.status = 200
        self.asked: list[tuple[list[str], bytes]] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        length = next(int(line.partition(":")[2]) for line in head if line.lower().startswith("content-length:"))
        self.asked.append((head, await reader.readexactly(length)))
        if self.answer is None:
            await asyncio.sleep(3600)
        body = self.answer if isinstance(self.answer, bytes) else orjson.dumps(self.answer)
        writer.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (self.status, len(body)))
        writer.write(body)
        await writer.drain()


@contextlib.asynccontextmanager
async def rspamd() -> AsyncIterator[Rspamd]:
    """Run an rspamd on a free port."""
    scanner = Rspamd()
    async with _served(scanner.serve, None) as port:
        scanner.url = f"http://127.0.0.1:{port}"
        yield scanner


@contextlib.asynccontextmanager
async def _served(handler: _Handler, path: Path | None) -> AsyncIterator[int]:
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await handler(reader, writer)
        writer.close()
        tasks.discard(task)

    if path is not None:
        server = await asyncio.start_unix_server(serve, path)
    else:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield 0 if path is not None else server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
