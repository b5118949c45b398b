"""Valkeys on loopback for tests of what several of them do together: a cluster, a primary with a replica."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from engine.store import redis as redis_store
from engine.store import redis_cluster, redis_node, redis_primary
from loadtests.drill.valkey_servers import Valkey, form_cluster, valkey_servers
from tests.harness.patience import PATIENCE_S

__all__ = ["Valkey", "clustered", "eventually", "form_cluster", "unhurried", "valkey_servers"]


@contextmanager
def unhurried() -> Iterator[None]:
    """Raise the time limits of the client's own questions: a server that answers late on a busy machine is not dead.

    A server that was killed refuses connections, which takes no time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis_node, "CONNECT_TIMEOUT_S", PATIENCE_S)
        patch.setattr(redis_store, "START_TIMEOUT_S", PATIENCE_S)
        patch.setattr(redis_primary, "LOOK_TIMEOUT_S", PATIENCE_S)
        patch.setattr(redis_cluster, "READ_TIMEOUT_S", PATIENCE_S)
        yield


@asynccontextmanager
async def clustered() -> AsyncIterator[tuple[list[Valkey], redis_store.RedisClient]]:
    """Three primaries with all slots among them, and a client that knows two of them."""
    with unhurried(), valkey_servers(3, clustered=True) as servers:
        await asyncio.to_thread(form_cluster, servers)
        known = ",".join(one.address for one in servers[:2])
        client = redis_store.connect(f"redis+cluster://{known}", timeout_s=PATIENCE_S)
        try:
            yield servers, client
        finally:
            await client.aclose()


async def eventually(rule: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Wait until `rule` holds; TimeoutError when it does not."""
    async with asyncio.timeout(within_s):
        while not rule():
            await asyncio.sleep(0.02)
