"""Subscribe to a Redis channel over a connection of its own; failures raise RedisUnavailable."""

import asyncio
from types import TracebackType
from typing import Any, Self

from redis.asyncio import ConnectionPool
from redis.asyncio.client import PubSub

from engine.store.cancellation import raise_if_cancelled
from engine.store.redis_errors import CLIENT_ERRORS, unavailable


class Subscription:
    """A subscription to one channel; lives as long as its `async with` block."""

    def __init__(self, pool: ConnectionPool, server: str) -> None:
        self._pubsub = PubSub(connection_pool=pool)
        self._server = server

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._pubsub.aclose()  # type: ignore[no-untyped-call]
        except CLIENT_ERRORS as failed:
            raise unavailable(failed, self._server) from failed

    async def subscribe(self, channel: str, *, timeout_s: float) -> None:
        """Subscribe to `channel`. Raises RedisUnavailable."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._pubsub.subscribe(channel)
        except CLIENT_ERRORS as error:
            raise unavailable(error, self._server) from error

    async def ping(self, *, timeout_s: float) -> None:
        """Send a PING, whose reply arrives as a message. Raises RedisUnavailable."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._pubsub.ping()
        except CLIENT_ERRORS as error:
            raise unavailable(error, self._server) from error

    async def get_message(self, *, timeout_s: float) -> dict[str, Any] | None:
        """Return the next message as redis-py's dict, or None after `timeout_s`. Raises RedisUnavailable."""
        try:
            message: dict[str, Any] | None = await self._pubsub.get_message(timeout=timeout_s)
        except CLIENT_ERRORS as error:
            raise unavailable(error, self._server) from error
        raise_if_cancelled()  # redis-py swallows a cancellation that coincides with its own time-out
        return message
