"""Connect a process to Redis: one server, a primary with replicas (watched by Sentinel or not), or a cluster, by
the URL.

Redis may be unavailable at any time: PostgreSQL holds all data and Redis only hints, so every caller works without it.
`engine.base.redis_url` documents the URLs.
"""

import asyncio

from engine.base.redis_url import RedisTopology, parse
from engine.base.server_versions import UnsupportedServer
from engine.store.redis_client import PING, RedisClient, SingleRedis
from engine.store.redis_cluster import RedisCluster
from engine.store.redis_errors import RedisRefused, RedisTooOld, RedisUnavailable
from engine.store.redis_node import OPEN_S, Node, RedisCommand, RedisScript, Word
from engine.store.redis_primary import RedisPrimary
from engine.store.redis_sentinel import RedisSentinel

__all__ = [
    "OPEN_S",
    "RedisClient",
    "RedisCommand",
    "RedisRefused",
    "RedisScript",
    "RedisTooOld",
    "RedisUnavailable",
    "Word",
    "connect",
    "refuse_old",
]

COMMAND_TIMEOUT_S = 0.5
START_TIMEOUT_S = 2.0


def connect(redis_url: str, *, timeout_s: float = COMMAND_TIMEOUT_S) -> RedisClient:
    """Return a client whose commands time out after `timeout_s` and are not retried. Does not connect yet. Raises
    ValueError for an invalid URL.
    """
    servers = parse(redis_url)
    match servers.kind:
        case RedisTopology.SINGLE:
            return SingleRedis(servers.urls[0], timeout_s)
        case RedisTopology.PRIMARY:
            return RedisPrimary(servers.urls, timeout_s)
        case RedisTopology.SENTINEL:
            return RedisSentinel(servers, timeout_s)
        case RedisTopology.CLUSTER:
            return RedisCluster(servers.urls, timeout_s)


async def refuse_old(redis_url: str) -> None:
    """Raise UnsupportedServer if a server of the URL is too old; called at the start of a process.

    A server that does not respond passes: each later connection checks it again.
    """
    nodes = [Node(url) for url in parse(redis_url).urls]
    try:
        asked = [node.ask((PING,), START_TIMEOUT_S) for node in nodes]
        for found in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(found, RedisTooOld):
                raise UnsupportedServer(str(found))
    finally:
        for node in nodes:
            await node.aclose()
