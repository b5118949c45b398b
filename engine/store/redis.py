"""The Redis connection of one process, and the circuit that keeps a dead or hanging Redis from costing time."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

COMMAND_TIMEOUT_S = 0.5
OPEN_S = 1.0  # after a failure nobody asks for this long

AWAY = (RedisError, OSError, TimeoutError)

Answer = TypeVar("Answer")


class Away(Exception):  # noqa: N818 - an answer, not a fault
    """Redis can't be asked just now."""


def connect(redis_url: str, *, timeout_s: float = COMMAND_TIMEOUT_S) -> redis.Redis:
    """A client that gives up quickly and does not retry: Postgres holds the truth, Redis only hints."""
    return redis.from_url(
        redis_url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )


class Circuit:
    """Lets calls through while Redis answers; after a failure refuses at once for a second."""

    def __init__(self) -> None:
        self._closed_again_at = 0.0
        self.failing = False  # from the first failure until the next success

    @property
    def open(self) -> bool:
        """True while nobody should ask."""
        return time.monotonic() < self._closed_again_at

    async def run(self, call: Awaitable[Answer], *, timeout_s: float = COMMAND_TIMEOUT_S) -> Answer:
        """The call's answer; raises Away when Redis fails, hangs, or has just done so."""
        if self.open:
            if asyncio.iscoroutine(call):
                call.close()
            raise Away
        try:
            async with asyncio.timeout(timeout_s):
                answer = await call
        except AWAY as error:
            self.failing = True
            self._closed_again_at = time.monotonic() + OPEN_S
            raise Away(repr(error)) from error
        self.failing = False
        return answer
