"""Send each command to the server of Redis Cluster that has the slot of its key, commands for one server together.

Every server has its own circuit breaker, so a failed one affects only its slots. The slot map is read again when a
server is unavailable, replies MOVED or accepts no writes: at most once a second, without delaying callers.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import structlog
from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, RedisError, TryAgainError

from engine.store.redis_client import PING, RedisClient, is_demoted
from engine.store.redis_errors import RedisUnavailable
from engine.store.redis_node import Node, RedisCommand
from engine.store.redis_subscription import Subscription

SLOTS = 16_384
READ_EVERY_S = 1.0
READ_TIMEOUT_S = 0.4  # less than that of a command, so that commands waiting for the map still get a reply
REDIRECTIONS = 3
_ASKING = RedisCommand(None, ("ASKING",))
_MAP = RedisCommand(None, ("CLUSTER", "SLOTS"))

Address = tuple[str, int]
Way = tuple[Address, bool]  # a server; True: send ASKING first, because the slot is being moved there

_log = structlog.get_logger("redis")


class RedisCluster(RedisClient):
    """A client of one cluster: its slot map, and a connection pool per server."""

    def __init__(self, urls: Sequence[str], timeout_s: float) -> None:
        super().__init__(timeout_s)
        self._url = urls[0]  # credentials and options apply to all servers
        self._seeds = [Node(url).address for url in urls]
        self._nodes: dict[Address, Node] = {}
        self._slots: list[Address | None] = [None] * SLOTS
        self._primaries: list[Address] = []
        self._generation = 0
        self._read_at = 0.0
        self._reading: asyncio.Task[None] | None = None

    @property
    def generation(self) -> int:
        """Return the number of changes of the primaries: a subscription on a removed server receives nothing."""
        return self._generation

    async def ping(self) -> None:
        """Raise RedisUnavailable if the servers of some slots do not respond."""
        await self._wait_for_map()
        nodes = [self._node(address) for address in self._primaries]
        answers = await asyncio.gather(*[node.ask((PING,), self._timeout_s) for node in nodes], return_exceptions=True)
        away = [
            node.address for node, answer in zip(nodes, answers, strict=True) if isinstance(answer, RedisUnavailable)
        ]
        if away or None in self._slots:
            self._read_soon()
            raise RedisUnavailable(f"some slots are unavailable: {away or 'no server has them'}")

    async def pubsub(self) -> Subscription:
        """Return a subscription on any server that responds: publications reach them all."""
        await self._wait_for_map()
        for node in self._shuffled_nodes():
            try:
                await node.ask((PING,), self._timeout_s)
            except RedisUnavailable:
                continue
            return node.pubsub()
        raise RedisUnavailable("no server of the cluster answers")

    async def aclose(self) -> None:
        """Close every connection."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
        for node in self._nodes.values():
            await node.aclose()

    # -- commands ------------------------------------------------------------------------------

    async def _ask(self, commands: Sequence[RedisCommand], timeout_s: float) -> list[Any]:
        await self._wait_for_map()
        answers: list[Any] = [RedisUnavailable("no server has the slot")] * len(commands)
        left: dict[int, Way] = {}
        for at, command in enumerate(commands):
            address = self._server_of(command)
            if address is not None:
                left[at] = (address, False)
        for _ in range(REDIRECTIONS + 1):
            if not left:
                break
            await self._round(commands, left, answers, timeout_s)
            left = self._redirected(left, answers)
        for at, answer in enumerate(answers):
            if isinstance(answer, ClusterDownError | AskError | TryAgainError) or is_demoted(answer):
                answers[at] = RedisUnavailable(f"{type(answer).__name__} {answer}")
        if any(isinstance(answer, RedisUnavailable) for answer in answers):
            self._read_soon()
            if all(isinstance(answer, RedisUnavailable) for answer in answers):
                raise answers[0]
        return answers

    async def _round(
        self, commands: Sequence[RedisCommand], left: dict[int, Way], answers: list[Any], timeout_s: float
    ) -> None:
        """Send the commands to all servers concerned, in parallel."""
        by_way: dict[Way, list[int]] = defaultdict(list)
        for at, way in left.items():
            by_way[way].append(at)
        calls = [self._ask_server(commands, way, places, answers, timeout_s) for way, places in by_way.items()]
        if len(calls) == 1:
            await calls[0]
        else:
            await asyncio.gather(*calls)

    async def _ask_server(
        self, commands: Sequence[RedisCommand], way: Way, places: list[int], answers: list[Any], timeout_s: float
    ) -> None:
        address, asking = way
        chosen = [commands[at] for at in places]
        if asking:  # before each command: ASKING applies to one command
            chosen = [one for command in chosen for one in (_ASKING, command)]
        try:
            found = await self._node(address).ask(chosen, timeout_s)
        except RedisUnavailable as away:
            found = [away] * len(chosen)
        for at, answer in zip(places, found[1::2] if asking else found, strict=True):
            answers[at] = answer

    def _redirected(self, left: dict[int, Way], answers: Sequence[Any]) -> dict[int, Way]:
        """Return the commands to send again: to the new server of a slot (MOVED, remembered), or with ASKING while the
        slot is being moved there (ASK).
        """
        again: dict[int, Way] = {}
        for at, (asked, _) in left.items():
            answer = answers[at]
            if isinstance(answer, AskError):  # MovedError is one
                target = (answer.host or asked[0], answer.port)
                for_good = isinstance(answer, MovedError)
                again[at] = (target, not for_good)
                if for_good:
                    self._slots[answer.slot_id] = target
                    self._read_soon()
        return again

    def _server_of(self, command: RedisCommand) -> Address | None:
        if command.key is not None:
            return self._slots[_slot(command.key)]
        reachable = [address for address in self._primaries if not self._node(address).circuit.open]
        return random.choice(reachable or self._primaries) if self._primaries else None

    def _node(self, address: Address) -> Node:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = Node(self._url, address)
        return node

    def _shuffled_nodes(self) -> list[Node]:
        known = list(dict.fromkeys([*self._primaries, *self._seeds]))
        return [self._node(address) for address in random.sample(known, len(known))]

    # -- the slot map --------------------------------------------------------------------------

    async def _wait_for_map(self) -> None:
        """Wait for the first slot map; later ones are read in the background."""
        if not self._primaries:
            await asyncio.shield(self._read_soon())
        if not self._primaries:
            raise RedisUnavailable("no server of the cluster returns the slot map")

    def _read_soon(self) -> "asyncio.Task[None]":
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        return self._reading

    async def _read(self) -> None:
        """Read the slot map from the first server that has one; at most once per READ_EVERY_S."""
        wait_s = self._read_at + READ_EVERY_S - time.monotonic()
        if wait_s > 0 and self._primaries:
            await asyncio.sleep(wait_s)
        self._read_at = time.monotonic()
        for node in self._shuffled_nodes():
            try:
                [answer] = await node.ask((_MAP,), READ_TIMEOUT_S)
            except RedisUnavailable:
                continue
            if isinstance(answer, RedisError):
                _log.warning("Redis server is not in cluster mode", server=node.address, error=str(answer))
            elif answer:
                await self._take_over(read_slots(answer, node.address[0]))
                return

    async def _take_over(self, slots: list[Address | None]) -> None:
        primaries = list(dict.fromkeys(address for address in slots if address is not None))
        if set(primaries) != set(self._primaries):
            _log.info("Redis cluster primaries changed", servers=sorted(primaries))
            self._generation += 1
        self._slots, self._primaries = slots, primaries
        for address in [one for one in self._nodes if one not in primaries]:
            await self._nodes[address].drop()


def read_slots(answer: Sequence[Any], asked: str) -> list[Address | None]:
    """Return the primary of every slot from a CLUSTER SLOTS reply; a server that omits its own name is `asked`."""
    slots: list[Address | None] = [None] * SLOTS
    for first, last, primary, *_ in answer:
        host = primary[0].decode() if primary[0] else ""
        address = (host if host not in ("", "?") else asked, int(primary[1]))
        slots[first : last + 1] = [address] * (last + 1 - first)
    return slots


@lru_cache(maxsize=65_536)
def _slot(key: str) -> int:
    return key_slot(key.encode())
