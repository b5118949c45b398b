"""The simulated network: connections between protocols of asyncio, with delays and breaks."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any, Final

from loadtests.simulation.process import Process, current, here
from loadtests.simulation.world import World

_LATENCY_S: Final = (0.0002, 0.004)
_FIRST_PORT: Final = 40_000

Factory = Callable[[], asyncio.BaseProtocol]


class Network:
    """The servers that listen, by host and port, and the delays."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng("network")
        self._listening: dict[tuple[str, int], tuple[Factory, Context, Process | None]] = {}
        self._port = _FIRST_PORT

    def listen(self, factory: Factory, host: str, port: int) -> "Listening":
        """Accept connections to `host` and `port` (0: any) until the process ends."""
        if not port:
            self._port += 1
            port = self._port
        self._listening[host, port] = (factory, here(), current())
        return Listening(host, port)

    async def connect(self, factory: Factory, host: str, port: int) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect the protocols of both sides. Raises ConnectionRefusedError where nobody listens."""
        await asyncio.sleep(self.delay())
        found = self._listening.get((host, port))
        if found is None or (found[2] is not None and not found[2].alive):
            raise ConnectionRefusedError(111, "Connection refused")
        server_factory, server_context, server_process = found
        ours = SimulatedTransport(self._world, self, current(), here(), (host, port))
        theirs = SimulatedTransport(self._world, self, server_process, server_context.copy(), (host, port))
        ours.peer, theirs.peer = theirs, ours
        theirs.begin(server_context.copy().run(server_factory))
        protocol = factory()
        ours.begin(protocol)
        return ours, protocol

    def delay(self) -> float:
        """Return the time that octets take to the other side."""
        return self._rng.uniform(*_LATENCY_S)


class Listening:
    """A listening server with the used part of the interface of `asyncio.Server`."""

    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)

    @property
    def sockets(self) -> "list[Listening]":
        """Return the listening sockets."""
        return [self]

    def getsockname(self) -> tuple[str, int]:
        """Return host and port."""
        return self._name

    def close(self) -> None:
        """Do nothing: the process ends."""


class SimulatedTransport(asyncio.Transport):
    """The transport of one side of a connection; writes arrive at the other side later, in order."""

    peer: "SimulatedTransport"

    def __init__(
        self, world: World, network: Network, process: Process | None, context: Context, address: tuple[str, int]
    ) -> None:
        super().__init__({"peername": address, "sockname": ("127.0.0.1", 0)})
        self._world = world
        self._network = network
        self.process = process
        self._context = context
        self._protocol: Any = None
        self._arrives_at = 0.0  # of what was written last
        self._closing = False
        self._lost = False
        self._paused = False
        self._held: list[Callable[[], None]] = []
        if process is not None:
            process.connections[self] = None

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the connection to its protocol."""
        self._protocol = protocol
        self._run(protocol.connection_made, self)

    # -- asyncio.Transport -----------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview, *, heard: Callable[[], None] | None = None) -> None:
        """Send octets; call `heard` when the process of the other side has them."""
        if not self._closing and data:
            self._later(partial(self.peer._received, bytes(data), heard))  # noqa: SLF001

    def writelines(self, list_of_data: Any) -> None:
        """Send octets."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """Close: nothing here half-closes."""
        self.close()

    def can_write_eof(self) -> bool:
        """Return False."""
        return False

    def close(self) -> None:
        """Close once everything is sent."""
        self._end(None)

    def abort(self) -> None:
        """Close at once."""
        self._end(None, reset=True)

    def is_closing(self) -> bool:
        """Return True once closed."""
        return self._closing

    def pause_reading(self) -> None:
        """Keep what arrives."""
        self._paused = True

    def resume_reading(self) -> None:
        """Hand over what was kept."""
        self._paused = False
        held, self._held = self._held, []
        for call in held:
            call()

    def is_reading(self) -> bool:
        """Return False while paused."""
        return not self._paused

    def get_write_buffer_size(self) -> int:
        """Return 0: the kernel takes everything."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: writing never pauses."""

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Change the protocol."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    # -- the wire ------------------------------------------------------------------------------

    def sever(self) -> None:
        """Break the connection: the process of this side was killed."""
        if not self._lost:
            self._lost = self._closing = True
            self._later(lambda: self.peer._dropped(ConnectionResetError(104, "Connection reset by peer")))  # noqa: SLF001

    def break_now(self) -> None:
        """Break the connection for both sides, and lose what is under way."""
        for side in (self, self.peer):
            side._closing = True  # noqa: SLF001 - the other side of the same connection
            side._dropped(ConnectionResetError(104, "Connection reset by peer"))  # noqa: SLF001

    def _later(self, call: Callable[[], None]) -> None:
        self._arrives_at = max(self._arrives_at, self._world.now + self._network.delay())
        self._world.at(self._arrives_at, call)

    def _end(self, error: Exception | None, *, reset: bool = False) -> None:
        if self._closing:
            return
        self._closing = True
        lost = ConnectionResetError(104, "Connection reset by peer") if reset else None
        self._later(lambda: self.peer._dropped(lost))  # noqa: SLF001
        asyncio.get_running_loop().call_soon(self._ended_here, error, context=self._context.copy())

    def _ended_here(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            if self.process is not None:
                self.process.connections.pop(self, None)
            self._protocol.connection_lost(error)

    def _received(self, octets: bytes, heard: Callable[[], None] | None) -> None:
        if self._lost or self._closing:
            return
        if self._paused:
            self._held.append(partial(self._received, octets, heard))
            return
        if heard is not None and (self.process is None or self.process.alive):
            heard()
        self._run(self._protocol.data_received, octets)

    def _dropped(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        if self.process is not None:
            self.process.connections.pop(self, None)
        if error is None and not self._paused:
            self._run(self._protocol.eof_received)
        self._run(self._protocol.connection_lost, error)

    def _run(self, call: Callable[..., object], *args: object) -> None:
        """Run a callback of the protocol unless its process was killed."""
        if self.process is None or self.process.alive:
            asyncio.get_running_loop().call_soon(call, *args, context=self._context.copy())
