"""TCP servers of a test's own: a coroutine plays the server's part of each connection."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

from tests.harness.patience import PATIENCE_S

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]]
Address = tuple[str, int]


@contextlib.asynccontextmanager
async def listening(
    serve: Serve, host: str = "127.0.0.1", port: int = 0, *, tls: ssl.SSLContext | None = None, backlog: int = 100
) -> AsyncIterator[Address]:
    """Play `serve` on each connection and yield the address.

    When the block ends, every connection is closed and every `serve` has ended, also of connections that the kernel
    had accepted and the loop had not yet met. An OSError, a timeout or an early end of the stream ends `serve` quietly.
    """
    open_ = True
    tasks: set[asyncio.Task[object]] = set()
    writers: set[asyncio.StreamWriter] = set()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        writers.add(writer)
        try:
            if open_:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                    await serve(reader, writer)
        finally:
            tasks.discard(task)
            writers.discard(writer)
            writer.close() if open_ else writer.transport.abort()

    server = await asyncio.start_server(meet, host, port, ssl=tls, backlog=backlog)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        open_ = False
        server.close()
        left = list(tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await server.wait_closed()


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    """Return True if a server accepts connections at this port."""
    try:
        socket.create_connection((host, port), timeout=PATIENCE_S).close()
    except OSError:
        return False
    return True
