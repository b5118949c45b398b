"""A process's way to Redis: one server, whichever of several is primary, or a cluster; chosen by the URL.

Everything here may be away: Postgres holds the truth and Redis only hints, so that every caller knows what to do
without. `engine.base.redis_url` says what URLs there are.
"""

from engine.base.redis_url import RedisTopology, parse
from engine.store.redis_client import Client, Single
from engine.store.redis_cluster import Cluster
from engine.store.redis_node import AWAY, OPEN_S, Away, Command, Script, Word
from engine.store.redis_primary import Primary

__all__ = ["AWAY", "OPEN_S", "Away", "Client", "Command", "Script", "Word", "connect"]

COMMAND_TIMEOUT_S = 0.5


def connect(redis_url: str, *, timeout_s: float = COMMAND_TIMEOUT_S) -> Client:
    """A client that gives up after `timeout_s` and does not retry. Nothing is asked yet; raises ValueError for a URL
    that can't be used."""
    servers = parse(redis_url)
    match servers.kind:
        case RedisTopology.SINGLE:
            return Single(servers.urls[0], timeout_s)
        case RedisTopology.PRIMARY:
            return Primary(servers.urls, timeout_s)
        case RedisTopology.CLUSTER:
            return Cluster(servers.urls, timeout_s)
