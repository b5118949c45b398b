"""Use the present primary among several Redis servers without automatic election, and follow manual promotions.

A check asks every server for its role: if no primary is known, if the primary fails or accepts no writes, and otherwise
every few seconds, because a server that was cut off may still call itself primary.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import structlog
from msgspec import Struct

from engine.store.redis_client import PING, RedisClient, is_demoted
from engine.store.redis_errors import RedisUnavailable
from engine.store.redis_node import Node, RedisCommand
from engine.store.redis_subscription import Subscription

LOOK_EVERY_S = 5.0
LOOK_TIMEOUT_S = 0.4  # less than that of a command, so that commands waiting for it still get a reply
_INFO = RedisCommand(None, ("INFO", "replication"))

_log = structlog.get_logger("redis")


class ReplicationRole(Struct, frozen=True):
    """The replication role that a server reports."""

    primary: bool
    replicas: int = 0
    lineage: str = ""  # replication id (master_replid)
    before: str = ""  # replication id before its promotion (master_replid2)


class RedisPrimary(RedisClient):
    """A client of several servers, and which of them is the primary; lives as long as the process."""

    def __init__(self, urls: Sequence[str], timeout_s: float) -> None:
        super().__init__(timeout_s)
        self._nodes = [Node(url) for url in urls]
        self._through = [node.address for node in self._nodes]
        self._primary: Node | None = None
        self._generation = 0
        self._looked_at = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._has_two = False

    @property
    def generation(self) -> int:
        """Return the number of changes of the primary."""
        return self._generation

    async def ping(self) -> None:
        """Raise RedisUnavailable if there is no primary, or it does not respond."""
        await self._ask((PING,), self._timeout_s)

    async def pubsub(self) -> Subscription:
        """Return a subscription on the primary, which receives all publications."""
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
            raise RedisUnavailable(f"{node.address} is no longer the primary")
        return answers

    async def _present(self) -> Node:
        if self._primary is None:
            # All waiting callers share the check; cancelling one of them must not end it.
            await asyncio.shield(self._look_soon())
        if self._primary is None:
            raise RedisUnavailable(f"no primary was found through {self._through}")
        return self._primary

    def _look_soon(self) -> "asyncio.Task[None]":
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        return self._looking

    async def _look(self) -> None:
        found = await self._find()
        self._looked_at = time.monotonic()
        if found is self._primary:
            return
        self._primary, before = found, self._primary
        if found is not None:
            _log.info("Redis primary changed", server=found.address)
            self._generation += 1
        if before is not None:
            await before.drop()

    async def _find(self) -> Node | None:
        """Return the primary; the known one if no better one is found, None if there is none."""
        roles = dict(zip(self._nodes, await asyncio.gather(*map(role_of, self._nodes)), strict=True))
        primaries = [node for node in self._nodes if roles[node].primary]
        if len(primaries) > 1 and not self._has_two:
            _log.warning("two Redis servers report to be primary", servers=[node.address for node in primaries])
        self._has_two = len(primaries) > 1
        # If there is none, the known one may only be slow.
        return chosen(primaries, roles) if primaries else self._primary


def chosen(primaries: Sequence[Node], roles: dict[Node, ReplicationRole]) -> Node:
    """Choose the primary so that all processes agree: the one promoted last as far as replication ids tell, then the
    one with most replicas, then the first in the URL.
    """
    superseded = {roles[node].before for node in primaries}
    candidates = [node for node in primaries if roles[node].lineage not in superseded] or list(primaries)
    return max(candidates, key=lambda node: roles[node].replicas)


async def role_of(node: Node) -> ReplicationRole:
    """Return the role that a server reports; not primary if it does not answer."""
    try:
        [answer] = await node.ask((_INFO,), LOOK_TIMEOUT_S)
    except RedisUnavailable:
        return ReplicationRole(primary=False)
    return read_role(answer.decode("utf-8", "replace")) if isinstance(answer, bytes) else ReplicationRole(primary=False)


def read_role(info: str) -> ReplicationRole:
    """Parse the reply to `INFO replication`."""
    fields = dict(line.partition(":")[::2] for line in info.splitlines())
    return ReplicationRole(
        primary=fields.get("role") == "master",
        replicas=int(fields.get("connected_slaves", "0")),
        lineage=fields.get("master_replid", ""),
        before=fields.get("master_replid2", ""),
    )
