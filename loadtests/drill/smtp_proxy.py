"""A TCP proxy in front of the sink that recognises the reply to an accepted message.

TLS would hide the reply, so the proxy removes STARTTLS from the sink's extensions.
"""

import asyncio
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

KEPT: Final = b"250 2.0.0 ok: kept as "  # the sink's words; see `ops.local.sink_session`
_CHUNK: Final = 64 * 1024
_SMALL_BUFFER: Final = 64 * 1024  # of the kernel's, so that a sender that is not read from knows it soon
_CONNECT_S: Final = 10.0
_REMEMBERED: Final = 10_000


class SmtpProxy:
    """Forwards connections from `address` to `target`.

    `on_kept` is awaited before the sink's 250 is forwarded; if it returns False the connection is cut instead.
    """

    def __init__(self, address: tuple[str, int], target: tuple[str, int]) -> None:
        self.on_kept: Callable[[], Awaitable[bool]] | None = None
        self.connections = 0  # ever taken
        self.holding = 0  # replies in hand just now
        self.stalled = 0  # conversations whose content is not read on just now
        self._passed: deque[float] = deque(maxlen=_REMEMBERED)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._limit = 0
        self._address = address
        self._target = target
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Return the port on which it listens."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen in this loop; all other methods except `stop` may be called from other threads."""
        self._loop = asyncio.get_running_loop()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
        listener.bind(self._address)
        self._server = await asyncio.start_server(self._serve, sock=listener, backlog=512, limit=_CHUNK)

    async def stop(self) -> None:
        """Close the listener and all connections."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def stall(self, limit: int) -> None:
        """Read at most `limit` octets of each connection from now on."""
        self._limit = limit
        self._in_loop(self._flowing.clear)

    def flow(self) -> None:
        """Read without limit again."""
        self._in_loop(self._flowing.set)

    def _in_loop(self, change: Callable[[], None]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(change)

    def passed_since(self, at: float) -> int:
        """Return how many such replies have been forwarded since `at` (monotonic)."""
        return sum(moment >= at for moment in self._passed.copy())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            async with asyncio.timeout(_CONNECT_S):
                behind_reader, behind = await asyncio.open_connection(*self._target, limit=_CHUNK)
            try:
                up = asyncio.create_task(self._up(reader, behind))
                down = asyncio.create_task(self._down(behind_reader, writer))
                try:
                    await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for one in (up, down):
                        one.cancel()
                    await asyncio.gather(up, down, return_exceptions=True)
            finally:
                behind.transport.abort()
        except OSError:  # the time-out is one: the sink may be gone for a moment
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _up(self, reader: asyncio.StreamReader, behind: asyncio.StreamWriter) -> None:
        """Forward from the service to the sink."""
        read = 0
        with suppress(OSError):
            while True:
                await self._hold_back(read)
                data = await reader.read(_CHUNK)
                if not data:
                    return
                read += len(data)
                behind.write(data)
                await behind.drain()

    async def _hold_back(self, read: int) -> None:
        if self._flowing.is_set() or read < self._limit:
            return
        self.stalled += 1
        try:
            await self._flowing.wait()  # a dead sender's octets in the kernel come through afterwards, and no dot
        finally:
            self.stalled -= 1

    async def _down(self, behind: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward from the sink to the service."""
        with suppress(OSError):
            while data := await behind.read(_CHUNK):
                if b"STARTTLS" in data:
                    data = data.replace(b"STARTTLS", b"XNOTLS00")
                if KEPT in data and not await self._kept():
                    return
                writer.write(data)
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
