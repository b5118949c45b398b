"""A TCP proxy in front of the sink that recognises the reply to an accepted message.

TLS would hide the reply, so the proxy removes STARTTLS from the sink's extensions.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from loadtests.kit.servers import HOST, ScriptedServer

KEPT: Final = b"250 2.0.0 ok: kept as "  # the sink's words; see `ops.local.sink_session`
_CHUNK: Final = 64 * 1024
_SMALL_BUFFER: Final = 64 * 1024  # of the kernel's, so that a sender that is not read from knows it soon
_CONNECT_S: Final = 10.0
_REMEMBERED: Final = 10_000


class SmtpProxy(ScriptedServer):
    """Forwards connections at `host` to the sink at `target`. All methods may be called from other threads.

    `on_kept` is awaited before the sink's 250 is forwarded; if it returns False the connection is cut instead.
    """

    def __init__(self, host: str, port: int, target: int) -> None:
        super().__init__(port, host, receive_buffer=_SMALL_BUFFER)
        self.on_kept: Callable[[], Awaitable[bool]] | None = None
        self.holding = 0  # replies in hand just now
        self.stalled = 0  # conversations whose content is not read on just now
        self._target = target
        self._passed: deque[float] = deque(maxlen=_REMEMBERED)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._limit = 0

    async def start(self) -> None:
        """Listen in this event loop."""
        self._loop = asyncio.get_running_loop()
        await super().start()

    def stall(self, limit: int) -> None:
        """Read at most `limit` octets of each connection from now on."""
        self._limit = limit
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def flow(self) -> None:
        """Read without limit again."""
        self._loop.call_soon_threadsafe(self._flowing.set)

    def passed_since(self, at: float) -> int:
        """Return how many such replies have been forwarded since `at` (monotonic)."""
        return sum(moment >= at for moment in self._passed.copy())

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward in both directions until one side has ended; the sink may be gone for a moment."""
        async with asyncio.timeout(_CONNECT_S):
            sink_reader, sink = await asyncio.open_connection(HOST, self._target, limit=_CHUNK)
        both = {asyncio.create_task(self._up(reader, sink)), asyncio.create_task(self._down(sink_reader, writer))}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            sink.transport.abort()
            writer.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Forward from the service to the sink."""
        read = 0
        with suppress(OSError):
            while True:
                await self._hold_back(read)
                data = await reader.read(_CHUNK)
                if not data:
                    return
                read += len(data)
                sink.write(data)
                await sink.drain()

    async def _hold_back(self, read: int) -> None:
        if self._flowing.is_set() or read < self._limit:
            return
        self.stalled += 1
        try:
            await self._flowing.wait()  # a dead sender's octets in the kernel come through afterwards, and no dot
        finally:
            self.stalled -= 1

    async def _down(self, sink_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward from the sink to the service."""
        with suppress(OSError):
            while data := await sink_reader.read(_CHUNK):
                if KEPT in data and not await self._kept():
                    return
                writer.write(data.replace(b"STARTTLS", b"XNOTLS00"))
                await writer.drain()

    async def _kept(self) -> bool:
        self.holding += 1
        try:
            passes = self.on_kept is None or await self.on_kept()
        finally:
            self.holding -= 1
        if passes:
            self._passed.append(time.monotonic())
        return passes
