"""A primary among its replicas, none of whom elects: whichever server of the URL says that it is primary is asked, and
a promotion by hand is followed within seconds.

A look asks every server for its role. It is made when there is no primary yet, when the present one fails or takes no
more writes, and every few seconds otherwise, because a server that was cut off may go on calling itself primary.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import structlog
from msgspec import Struct
from redis.asyncio.client import PubSub

from engine.store.redis_client import PING, RedisClient, is_demoted
from engine.store.redis_node import Node, RedisCommand, RedisUnavailable

LOOK_EVERY_S = 5.0
LOOK_TIMEOUT_S = 0.4  # below a command's: whoever waits for the look still gets an answer
_INFO = RedisCommand(None, ("INFO", "replication"))

_log = structlog.get_logger("redis")


class ReplicationRole(Struct, frozen=True):
    """What a server says of its part in replication."""

    primary: bool
    replicas: int = 0
    lineage: str = ""  # id of the history it writes
    before: str = ""  # id of the history that it followed before its promotion


class RedisPrimary(RedisClient):
    """The servers of one URL, and which of them is primary just now."""

    def __init__(self, urls: Sequence[str], timeout_s: float) -> None:
        super().__init__(timeout_s)
        self._nodes = [Node(url) for url in urls]
        self._primary: Node | None = None
        self._generation = 0
        self._looked_at = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._two = False

    @property
    def generation(self) -> int:
        """Counts the promotions seen."""
        return self._generation

    async def ping(self) -> None:
        """Raises Away when there is no primary, or it does not answer."""
        await self._ask((PING,), self._timeout_s)

    async def pubsub(self) -> PubSub:
        """At the primary: it hears all publications, its replicas hear them too."""
        return (await self._present()).pubsub()

    async def aclose(self) -> None:
        """Close every connection."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait((self._looking,))
        for node in self._nodes:
            await node.aclose()

    async def _ask(self, commands: Sequence[RedisCommand], timeout_s: float) -> list[Any]:
        node = await self._present()
        if time.monotonic() > self._looked_at + LOOK_EVERY_S:
            self._look_soon()
        try:
            answers = await node.ask(commands, timeout_s)
        except RedisUnavailable:
            self._look_soon()
            raise
        if any(is_demoted(answer) for answer in answers):
            self._primary = None
            self._look_soon()
            raise RedisUnavailable(f"{node.address} is no primary any more")
        return answers

    async def _present(self) -> Node:
        if self._primary is None:
            # Shared by all who wait; one of them giving up must not end it.
            await asyncio.shield(self._look_soon())
        if self._primary is None:
            raise RedisUnavailable(f"none of {[node.address for node in self._nodes]} is a primary")
        return self._primary

    def _look_soon(self) -> "asyncio.Task[None]":
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        return self._looking

    async def _look(self) -> None:
        roles = dict(zip(self._nodes, await asyncio.gather(*map(_role, self._nodes)), strict=True))
        self._looked_at = time.monotonic()
        primaries = [node for node in self._nodes if roles[node].primary]
        if len(primaries) > 1 and not self._two:
            _log.warning("two servers say that they are primary", servers=[node.address for node in primaries])
        self._two = len(primaries) > 1
        if not primaries:
            return  # the present one may be slow only; nobody else is better
        found = chosen(primaries, roles)
        if found is not self._primary:
            _log.info("primary", server=found.address)
            self._primary, before = found, self._primary
            self._generation += 1
            if before is not None:
                await before.drop()


def chosen(primaries: Sequence[Node], roles: dict[Node, ReplicationRole]) -> Node:
    """The primary that all processes shall agree on: the one promoted last as far as lineage tells, then the one with
    most replicas, then the first in the URL."""
    forsaken = {roles[node].before for node in primaries}
    heirs = [node for node in primaries if roles[node].lineage not in forsaken] or list(primaries)
    return max(heirs, key=lambda node: roles[node].replicas)


async def _role(node: Node) -> ReplicationRole:
    try:
        [answer] = await node.ask((_INFO,), LOOK_TIMEOUT_S)
    except RedisUnavailable:
        return ReplicationRole(primary=False)
    return read_role(answer.decode("utf-8", "replace")) if isinstance(answer, bytes) else ReplicationRole(primary=False)


def read_role(info: str) -> ReplicationRole:
    """What `INFO replication` says."""
    said = dict(line.partition(":")[::2] for line in info.splitlines())
    return ReplicationRole(
        primary=said.get("role") == "master",
        replicas=int(said.get("connected_slaves", "0")),
        lineage=said.get("master_replid", ""),
        before=said.get("master_replid2", ""),
    )
