"""Use the primary that Redis Sentinel names, and follow its failovers.

A check asks all sentinels of the URL at once, at the same moments as `redis_primary` asks its servers. The answer of
the latest failover (`config-epoch`) counts, because a sentinel that was cut off still names the last primary; and a
server is used only if it reports the role primary itself.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct
from redis.exceptions import RedisError

from engine.base.redis_url import RedisServers
from engine.base.server_url import MAX_PORT
from engine.store.redis_errors import RedisUnavailable
from engine.store.redis_node import Node, RedisCommand
from engine.store.redis_primary import LOOK_TIMEOUT_S, RedisPrimary, role_of

_NO_PRIMARY: Final = "its reply names no primary"


class WatchedPrimary(Struct, frozen=True):
    """The state of a primary as one sentinel reports it (`SENTINEL MASTER`)."""

    host: str
    port: int
    epoch: int  # of the last failover that the sentinel knows
    flags: str  # "master", with "s_down" and "o_down" if it does not answer
    replicas: int
    sentinels: int  # that watch the same primary, the reporting one included
    quorum: int


class RedisSentinel(RedisPrimary):
    """A client of the servers that sentinels watch; lives as long as the process."""

    def __init__(self, servers: RedisServers, timeout_s: float) -> None:
        super().__init__((), timeout_s)
        self._sentinels = [Node(url) for url in servers.urls]
        self._through = [one.address for one in self._sentinels]
        self._name = servers.primary_name
        self._url = servers.watched_url("localhost")  # `Node` replaces the host

    async def aclose(self) -> None:
        """Close every connection."""
        await super().aclose()
        for sentinel in self._sentinels:
            await sentinel.aclose()

    async def _find(self) -> Node | None:
        answers = await asyncio.gather(*[ask_sentinel(one, self._name, LOOK_TIMEOUT_S) for one in self._sentinels])
        named = latest(answers)
        if named is None:
            return self._primary  # Sentinel is away, which says nothing about the primary
        address = (named.host, named.port)
        node = next((one for one in self._nodes if one.address == address), None) or Node(self._url, address)
        if node not in self._nodes:
            for other in [one for one in self._nodes if one is not self._primary]:
                self._nodes.remove(other)
                await other.aclose()
            self._nodes.append(node)
        role = await role_of(node)
        # The known primary may only be slow. Another one counts once it says that it is the primary; until then the
        # known one has been replaced, and is left.
        return node if role.primary or node is self._primary else None


def latest(answers: Iterable[WatchedPrimary | str]) -> WatchedPrimary | None:
    """Return the answer with the latest failover; None if no sentinel names a primary."""
    return max((one for one in answers if isinstance(one, WatchedPrimary)), key=lambda one: one.epoch, default=None)


async def ask_sentinel(sentinel: Node, name: str, timeout_s: float) -> WatchedPrimary | str:
    """Return the primary `name` as a sentinel sees it, or why it gives no answer."""
    try:
        [answer] = await sentinel.ask((RedisCommand(None, ("SENTINEL", "MASTER", name)),), timeout_s)
    except RedisUnavailable as away:
        return str(away)
    return str(answer) if isinstance(answer, RedisError) else read_watched(answer)


def read_watched(answer: Any) -> WatchedPrimary | str:
    """Parse the reply to `SENTINEL MASTER`, names and values in turn; another server's reply may be anything."""
    try:
        words = [word.decode("utf-8", "replace") for word in answer]
        fields = dict(zip(words[::2], words[1::2], strict=False))
        found = WatchedPrimary(
            host=fields["ip"],
            port=int(fields["port"]),
            epoch=int(fields.get("config-epoch", "0")),
            flags=fields.get("flags", ""),
            replicas=int(fields.get("num-slaves", "0")),
            sentinels=int(fields.get("num-other-sentinels", "0")) + 1,
            quorum=int(fields.get("quorum", "0")),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return _NO_PRIMARY
    return found if found.host and 0 < found.port <= MAX_PORT else _NO_PRIMARY
