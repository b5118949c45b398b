"""Redis in the simulated world: the commands and scripts that hints and site windows use, and what can go wrong."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Self

from engine.store.redis import RedisClient, RedisCommand, RedisUnavailable
from loadtests.simulation.process import Process, current
from loadtests.simulation.world import EPOCH, START, World
from mta.outbound.sites import windows

_LATENCY_S: Final = (0.0002, 0.003)
_LEASE_SCRIPT: Final = windows._LEASE.command("").words[1]  # noqa: SLF001 - its digest

Entry = tuple[bytes, list[bytes]]


class RedisServer:
    """The data of the one server, and its faults: `lossy` is the probability that a call gets no answer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng("redis")
        self.lossy = 0.0
        self.down_until = 0.0
        self._streams: dict[str, list[Entry]] = {}
        self._leases: dict[str, dict[str, tuple[int, int, float]]] = {}
        self._paused: dict[str, float] = {}
        self._probing: set[str] = set()
        self._last = (0, 0)
        self.subscriptions: dict[SimulatedSubscription, None] = {}

    def restart(self, seconds: float) -> None:
        """Lose all data and connections, and be down for `seconds`."""
        self.world.note("redis", f"down for {seconds:.3f} s, empty")
        self.down_until = self.world.now + seconds
        for data in (self._streams, self._leases, self._paused, self._probing):
            data.clear()
        for one in list(self.subscriptions):
            one.lose()

    def run(self, command: RedisCommand) -> Any:
        """Run a command."""
        name, *words = command.words
        match name:
            case "PING":
                return b"PONG"
            case "XADD":
                return self._add(str(words[0]), words[5:])
            case "XRANGE":
                return self._range(str(words[0]), bytes(words[1]))[: int(words[4])]  # type: ignore[arg-type]
            case "XREVRANGE":
                return self._streams.get(str(words[0]), [])[::-1][: int(words[4])]
            case "PUBLISH":
                return self._publish(str(words[1]).encode())
            case "EVALSHA" if words[0] == _LEASE_SCRIPT:
                return self._lease(str(words[2]), words[3:])
        raise RuntimeError(f"the simulated Redis has no {command.words[:2]}")

    # -- streams and channel -----------------------------------------------------------------------

    def _add(self, stream: str, fields: Sequence[Any]) -> bytes:
        now_ms = self._now_ms()
        self._last = (now_ms, self._last[1] + 1 if self._last[0] == now_ms else 0)
        entry = "{}-{}".format(*self._last).encode()
        values = [one if isinstance(one, bytes) else str(one).encode() for one in fields]
        self._streams.setdefault(stream, []).append((entry, values))
        return entry

    def _range(self, stream: str, first: bytes) -> list[Entry]:
        return [one for one in self._streams.get(stream, []) if _number(one[0]) >= _number(first)]

    def _publish(self, data: bytes) -> int:
        for one in list(self.subscriptions):
            self.world.after(self.rng.uniform(*_LATENCY_S), lambda one=one: one.arrived(data))  # type: ignore[misc]
        return len(self.subscriptions)

    # -- the script of site windows -----------------------------------------------------------------

    def _lease(self, key: str, words: Sequence[Any]) -> list[int]:
        """Lease connections of a site, as the script in `mta.outbound.sites.windows` does."""
        me, (limit, wanted, held, lease_ms, rotation_ms, pause_ms, recovered) = str(words[0]), map(int, words[1:8])
        now, all_leases = self._now_ms(), self._leases.setdefault(key, {})
        for name in [one for one, lease in all_leases.items() if one != me and lease[2] < now]:
            del all_leases[name]
        taken = sum(granted for name, (granted, _, _) in all_leases.items() if name != me)
        wants = {name: want for name, (_, want, _) in all_leases.items() if name != me and want > 0}
        if pause_ms > 0:
            self._paused[key] = now + pause_ms
            self._probing.add(key)
        elif recovered:
            self._probing.discard(key)
        granted = 0
        if key in self._probing:
            granted = max(0, min(wanted, limit - taken, 1 - taken))
        elif wanted > 0:
            granted = _share(me, wants | {me: wanted}, limit, taken, now // rotation_ms)
        if wanted > 0 or held > 0:
            all_leases[me] = (max(granted, held), wanted, now + lease_ms)
        else:
            all_leases.pop(me, None)
        return [granted, max(0, round(self._paused.get(key, 0) - now)), int(key in self._probing)]

    def _now_ms(self) -> int:
        return round(EPOCH.timestamp() * 1000) + int((self.world.now - START) * 1000)


class SimulatedRedis(RedisClient):
    """The client of one process."""

    def __init__(self, server: RedisServer, timeout_s: float = 0.5) -> None:
        super().__init__(timeout_s)
        self._server = server

    @property
    def generation(self) -> int:
        """Return 0: the server does not change."""
        return 0

    async def ping(self) -> None:
        """Raise RedisUnavailable if the server does not respond."""
        await self._ask((RedisCommand(None, ("PING",)),), self._timeout_s)

    async def pubsub(self) -> "SimulatedSubscription":  # type: ignore[override]
        """Return a subscription."""
        return SimulatedSubscription(self._server)

    async def aclose(self) -> None:
        """Do nothing: it holds no connection."""

    async def _ask(self, commands: Sequence[RedisCommand], timeout_s: float) -> list[Any]:
        server = self._server
        lost = server.rng.random() < server.lossy
        await asyncio.sleep(server.rng.uniform(*_LATENCY_S))
        if server.world.now < server.down_until or (lost and server.rng.random() < 0.5):
            await asyncio.sleep(server.rng.choice((0.0, timeout_s)))
            server.world.note(_name(), f"redis {commands[0].words[0]!s}: unavailable")
            raise RedisUnavailable("the simulated Redis does not respond")
        answers = [server.run(one) for one in commands]
        server.world.note(_name(), f"redis {' '.join(str(one.words[0]) for one in commands)}{', reply lost' * lost}")
        if lost:
            await asyncio.sleep(timeout_s)
            raise RedisUnavailable("the reply of the simulated Redis was lost")
        await asyncio.sleep(server.rng.uniform(*_LATENCY_S))
        return answers


class SimulatedSubscription:
    """A subscription to the wake channel."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._process: Process | None = current()
        self._messages: deque[dict[str, Any]] = deque()
        self._changed: asyncio.Event = asyncio.Event()
        self._lost = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.subscriptions.pop(self, None)

    async def subscribe(self, _channel: str, *, timeout_s: float) -> None:
        """Subscribe. Raises RedisUnavailable."""
        if self._server.world.now < self._server.down_until:
            await asyncio.sleep(timeout_s / 10)
            raise RedisUnavailable("the simulated Redis is down")
        self._server.subscriptions[self] = None

    async def ping(self, *, timeout_s: float) -> None:
        """Send a PING, whose reply arrives as a message."""
        await asyncio.sleep(self._server.rng.uniform(*_LATENCY_S) + timeout_s * 0)
        self._put({"type": "pong", "data": b""})

    async def get_message(self, *, timeout_s: float) -> dict[str, Any] | None:
        """Return the next message, or None after `timeout_s`. Raises RedisUnavailable."""
        if not self._messages and not self._lost:
            self._changed.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                return None
        if self._lost:
            raise RedisUnavailable("the simulated Redis closed the subscription")
        return self._messages.popleft()

    def arrived(self, data: bytes) -> None:
        """Take a publication; lose it sometimes, as a slow reader's."""
        if self in self._server.subscriptions and self._server.rng.random() >= self._server.lossy:
            self._put({"type": "message", "data": data})

    def lose(self) -> None:
        """Lose the connection."""
        self._lost = True
        self._server.subscriptions.pop(self, None)
        self._wake()

    def _put(self, message: dict[str, Any]) -> None:
        self._messages.append(message)
        self._wake()

    def _wake(self) -> None:
        if self._process is None or self._process.alive:
            self._changed.set()


def _share(me: str, wants: dict[str, int], limit: int, taken: int, turn: int) -> int:
    each, over = divmod(limit, len(wants))
    fair, mine = 0, each
    for place, name in enumerate(sorted(wants), 1):
        part = each + ((place + turn) % len(wants) < over)
        if name == me:
            mine = part
        else:
            fair += min(part, wants[name])
    return max(0, min(wants[me], limit - taken, max(mine, limit - fair)))


def _number(entry: bytes) -> tuple[int, int]:
    milliseconds, _, step = entry.partition(b"-")
    return int(milliseconds), int(step)


def _name() -> str:
    process = current()
    return "" if process is None else process.name
