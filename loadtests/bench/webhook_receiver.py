"""The receiver process of the webhook bench: one port answers at once, the other never answers.

`python -m loadtests.bench.webhook_receiver` prints its two ports as JSON. On the first port `GET /count` returns the
number of posts, and `GET /arrivals` a line `<delivery id> <Unix ms>` for each.
"""

import asyncio
import contextlib
import json
import signal
import time
from typing import Final, cast

import uvloop

HOST: Final = "127.0.0.1"
_MAX_WAITING: Final = 4_096
_ID: Final = b"Service-Delivery-Id: "
_LENGTH: Final = b"content-length: "
_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

_arrivals: list[tuple[bytes, int]] = []


class ImmediateResponder(asyncio.Protocol):
    """Receives requests one after the other and answers each at once."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class

    def data_received(self, data: bytes) -> None:
        """Collect a request and answer it."""
        assert self._transport is not None
        self._got += data
        end = self._got.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._got[: end + 2]
        if len(self._got) < end + 4 + _length(head):
            return
        self._got = b""
        if head.startswith(b"POST"):
            _arrivals.append((_field(head, _ID), time.time_ns() // 1_000_000))
            self._transport.write(_OK)
            return
        text = str(len(_arrivals)) if head.startswith(b"GET /count") else _arrival_lines()
        body = text.encode()
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def _field(head: bytes, name: bytes) -> bytes:
    at = head.find(name)
    return head[at + len(name) : head.find(b"\r\n", at)] if at >= 0 else b""


def _length(head: bytes) -> int:
    return int(_field(head.lower(), _LENGTH) or 0)


def _arrival_lines() -> str:
    return "\n".join(f"{name.decode()} {at}" for name, at in _arrivals)


async def _never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read until the client closes the connection."""
    with contextlib.suppress(OSError):
        while await reader.read(65_536):
            pass
    writer.close()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    quick = await loop.create_server(ImmediateResponder, HOST, 0, backlog=_MAX_WAITING)
    never = await asyncio.start_server(_never, HOST, 0, backlog=_MAX_WAITING)
    print(json.dumps({"quick": _port(quick), "never": _port(never)}), flush=True)
    await stop.wait()


def _port(server: asyncio.AbstractServer) -> int:
    return int(cast("asyncio.Server", server).sockets[0].getsockname()[1])


if __name__ == "__main__":
    uvloop.run(_serve())
