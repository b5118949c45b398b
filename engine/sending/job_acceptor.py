"""Accept messages in background jobs, which send few or none: connections are opened at the first message."""

from collections.abc import Iterable
from typing import Any

import asyncpg
import structlog

from engine.base.settings import Settings, variable
from engine.delivery.hints import Hints
from engine.sending.accept import Acceptor
from engine.store import redis as redis_store
from engine.store.caches import Cache, Stamps
from engine.store.rate_limits import RateLimiter

_log = structlog.get_logger("acceptance")


class _Connections:
    def __init__(self, pool: asyncpg.Pool, settings: Settings, caches: Iterable[Cache[Any, Any]]) -> None:
        assert settings.redis_url is not None
        self.client = redis_store.connect(settings.redis_url)
        self.hints = Hints(self.client)
        self.acceptor = Acceptor(pool, self.hints, settings)
        self.stamps = Stamps(pool, [*self.acceptor.caches, *caches])
        self.limits = RateLimiter(self.client)


class JobAcceptor:
    """Acceptance for one job, named `what` in logs; `caches` of the job are cleared with those of acceptance."""

    def __init__(
        self, pool: asyncpg.Pool, settings: Settings, what: str, caches: Iterable[Cache[Any, Any]] = ()
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._what = what
        self._caches = tuple(caches)
        self._connections: _Connections | None = None
        self._said = ""

    def is_ready(self, lacks: str = "") -> bool:
        """Return True if mail can be sent: `lacks` is empty and the required settings exist. Log once if not."""
        if not lacks and (self._settings.redis_url is None or self._settings.key_pepper is None):
            lacks = f"set {variable('redis_url')} and {variable('key_pepper')}"
        if lacks and lacks != self._said:
            _log.warning("a job waits", job=self._what, why=lacks)
        self._said = lacks
        return not lacks

    async def refresh(self) -> None:
        """Clear what has changed from the caches; call it before each batch."""
        await self._opened.stamps.check()

    @property
    def acceptor(self) -> Acceptor:
        """Return the acceptor, which `is_ready` allows."""
        return self._opened.acceptor

    @property
    def limits(self) -> RateLimiter:
        """Return the rate limiter on the same connection."""
        return self._opened.limits

    async def close(self) -> None:
        """Finish pending work, and close the connections."""
        if self._connections is not None:
            await self._connections.acceptor.drain()
            await self._connections.hints.drain()
            await self._connections.client.aclose()

    @property
    def _opened(self) -> _Connections:
        if self._connections is None:
            self._connections = _Connections(self._pool, self._settings, self._caches)
        return self._connections
