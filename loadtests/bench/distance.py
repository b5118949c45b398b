"""A TCP relay that delays octets, so that a server on loopback seems to be a round trip away.

Octets are passed on in order, half a round trip after they arrived; the number of connections and the octets under way
are not limited. The relay itself accepts at once. It connects to the server one and a half round trips later, so the
greeting arrives after two: one for TCP's handshake, one for the greeting (RFC 9293 3.5).

The bench runs it as `python -m loadtests.bench.distance --port PORT --target PORT --rtt-ms MS`.
"""

import argparse
import asyncio
import time
from collections import deque
from typing import Final, Self, cast

import uvloop

from engine.store import stopping
from ops.host.process_specs import LOOPBACK

_SAMPLES: Final = 20
_REPLY_S: Final = 10.0
_BACKLOG: Final = 1_024
_TIMER_S: Final = 0.001  # uvloop rounds timers to milliseconds, so one may fire early


class Distance:
    """The relay: listens on `port` and connects to `target`, both on loopback."""

    def __init__(self, port: int, target: int, rtt_s: float) -> None:
        self.port = port
        self.target = target
        self.rtt_s = rtt_s
        self.opening: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Near(self), LOOPBACK, self.port, backlog=_BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self.opening):
            task.cancel()
        await asyncio.gather(*self.opening, return_exceptions=True)


class _End(asyncio.Protocol):
    """Write what one end of a connection receives to the `other` end half a round trip later."""

    def __init__(self, delay_s: float) -> None:
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._delay_s = delay_s
        self._under_way: deque[tuple[float, bytes | None]] = deque()  # None: the end of the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are not subclasses

    def data_received(self, data: bytes) -> None:
        """Send octets on their way."""
        self._send(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Send the end of the connection on its way."""
        self.transport = None
        self._send(None)

    def arrive(self) -> None:
        """Write what has travelled long enough; call it again once there is an `other` end."""
        now = self._loop.time() + _TIMER_S
        other = self.other
        while other is not None and self._under_way and self._under_way[0][0] <= now:
            _, data = self._under_way.popleft()
            if other.transport is None:
                continue
            if data is None:
                other.transport.close()
            else:
                other.transport.write(data)

    def _send(self, data: bytes | None) -> None:
        due = self._loop.time() + self._delay_s
        self._under_way.append((due, data))
        self._loop.call_at(due, self.arrive)


class _Near(_End):
    """Take the client's connection, and open the one to the server."""

    def __init__(self, distance: Distance) -> None:
        super().__init__(distance.rtt_s / 2)
        self._distance = distance

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the connection to the server."""
        super().connection_made(transport)
        task = asyncio.create_task(self._open())
        self._distance.opening.add(task)
        task.add_done_callback(self._distance.opening.discard)

    async def _open(self) -> None:
        await asyncio.sleep(1.5 * self._distance.rtt_s)
        far = _End(self._distance.rtt_s / 2)
        far.other = self
        try:
            await self._loop.create_connection(lambda: far, LOOPBACK, self._distance.target)
        except OSError:
            if self.transport is not None:
                self.transport.abort()
            return
        self.other = far
        self.arrive()


async def round_trip_ms(port: int) -> float:
    """Return the median time of a NOOP to the SMTP server at `port`."""
    async with asyncio.timeout(_REPLY_S):
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        await reader.readline()
        took = []
        for _ in range(_SAMPLES):
            began = time.monotonic()
            writer.write(b"NOOP\r\n")
            await reader.readline()
            took.append(time.monotonic() - began)
        writer.close()
    return sorted(took)[_SAMPLES // 2] * 1000


async def _serve(port: int, target: int, rtt_s: float) -> None:
    async with Distance(port, target, rtt_s):
        await stopping.stop_event().wait()


def main() -> None:
    """Run the relay until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench.distance", description="a relay that delays")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--target", type=int, required=True)
    parser.add_argument("--rtt-ms", type=float, required=True)
    given = parser.parse_args()
    uvloop.run(_serve(given.port, given.target, given.rtt_ms / 1000))


if __name__ == "__main__":
    main()
