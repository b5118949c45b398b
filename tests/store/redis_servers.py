"""Valkeys on loopback for tests of what several of them do together: a cluster, a primary with a replica."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from engine.store import redis as redis_store
from loadtests.drill.valkey_servers import Valkey, form_cluster, valkey_servers
from tests.harness.patience import PATIENCE_S

__all__ = ["Valkey", "clustered", "eventually", "form_cluster", "valkey_servers"]


@asynccontextmanager
async def clustered() -> AsyncIterator[tuple[list[Valkey], redis_store.RedisClient]]:
    """Three primaries with all slots among them, and a client that knows two of them."""
    with valkey_servers(3, clustered=True) as servers:
        await asyncio.to_thread(form_cluster, servers)
        client = redis_store.connect("redis+cluster://" + ",".join(one.address for one in servers[:2]))
        try:
            yield servers, client
        finally:
            await client.aclose()


async def eventually(rule: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Wait until `rule` holds; TimeoutError when it does not."""
    async with asyncio.timeout(within_s):
        while not rule():
            await asyncio.sleep(0.02)
