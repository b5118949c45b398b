"""Scripted servers on loopback: a method plays the server's part of each connection."""

import asyncio
import hashlib
import hmac
import json
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

MAX_HEADER: Final = 64 * 1024
HOST: Final = "127.0.0.1"


class ScriptedServer(ABC):
    """A TCP server; a subclass plays its part of a connection in `converse`, after which the connection is closed.

    An asynchronous context manager; it may be stopped and started again on its port. `path` makes it listen on a Unix
    socket instead. `receive_buffer` is the size of the kernel's buffers in octets, 0 for the usual one.
    """

    def __init__(self, port: int = 0, host: str = HOST, *, path: Path | None = None, receive_buffer: int = 0) -> None:
        self.path = path
        self.host = host
        self.port = port  # the real one once started
        self.connections = 0  # ever accepted
        self._receive_buffer = receive_buffer
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen in this event loop."""
        if self.path is not None:
            self._server = await asyncio.start_unix_server(self._serve, self.path, limit=MAX_HEADER)
            return
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self._receive_buffer:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        listener.bind((self.host, self.port))
        self.port = listener.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, sock=listener, backlog=512, limit=MAX_HEADER)

    async def stop(self) -> None:
        """Close the listening socket and all connections."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if server is not None:
            await server.wait_closed()

    @abstractmethod
    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Play the server's part of one connection; errors of the connection end it."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            with suppress(OSError, EOFError, asyncio.LimitOverrunError):
                await self.converse(reader, writer)
                await writer.drain()
            writer.close()
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._tasks.discard(task)


class HttpRequest(Struct, frozen=True):
    """A request as a scripted server received it: the lines of its head, and its body."""

    lines: list[str]
    body: bytes

    @property
    def fields(self) -> dict[str, str]:
        """Return the header fields; names are in lower case."""
        return _fields(self.lines)


async def read_request(reader: asyncio.StreamReader) -> HttpRequest:
    """Read one HTTP/1.1 request with a Content-Length; raises IncompleteReadError at the end of the connection."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    return HttpRequest(lines, await reader.readexactly(int(_fields(lines).get("content-length", "0"))))


def _fields(lines: list[str]) -> dict[str, str]:
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}


def http_answer(status: int, body: bytes = b"", *, close: bool = False) -> bytes:
    """Return an HTTP/1.1 answer; `close` announces the end of the connection."""
    end = "Connection: close\r\n" if close else ""
    head = f"HTTP/1.1 {status} scripted\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{end}\r\n"
    return head.encode() + body


class ReceivedPost(Struct, frozen=True):
    """A post to a webhook endpoint. Times are Unix seconds: `at` by this machine's clock, `signed_at` as signed."""

    event: str
    attempt: int
    at: float
    signed_at: int
    genuine: bool  # signed by the endpoint's secret
    body: bytes


class WebhookEndpoint(ScriptedServer):
    """A webhook endpoint that records all posts; it refuses the first attempts of each event by 503.

    Set `secret` once the endpoint is registered.
    """

    def __init__(self, *, refuses: int = 0) -> None:
        super().__init__()
        self.posts: list[ReceivedPost] = []
        self.secret = ""
        self._refuses = refuses

    @property
    def url(self) -> str:
        """Return the URL to register."""
        return f"http://{HOST}:{self.port}/hook"

    def by_event(self) -> dict[str, list[ReceivedPost]]:
        """Return the posts of each event in order of arrival."""
        found: dict[str, list[ReceivedPost]] = {}
        for post in self.posts:
            found.setdefault(post.event, []).append(post)
        return found

    def waits_s(self) -> Iterator[float]:
        """Yield the seconds from each event's first post to its second."""
        return (posts[1].at - posts[0].at for posts in self.by_event().values() if len(posts) > 1)

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Record and answer posts until the client leaves."""
        while True:
            request = await read_request(reader)
            fields = request.fields
            parts = dict(part.split("=", 1) for part in fields["service-signature"].split(","))
            signed = f"{parts['t']}.".encode() + request.body
            made = hmac.new(self.secret.encode(), signed, hashlib.sha256).hexdigest()
            post = ReceivedPost(
                event=str(json.loads(request.body)["id"]), attempt=int(fields["service-attempt"]),
                at=time.time(), signed_at=int(parts["t"]), genuine=hmac.compare_digest(made, parts["v1"]),
                body=request.body,
            )  # fmt: skip
            self.posts.append(post)
            writer.write(http_answer(503 if post.attempt <= self._refuses else 200))
            await writer.drain()
