"""Answers that many ask for at once, such as those of DNS: each is made once, and kept as long as it is good."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

K = TypeVar("K")


class Dated(Protocol):
    """Something that is good until a moment of the cache's clock."""

    @property
    def until(self) -> float:
        """Monotonic seconds."""


V = TypeVar("V", bound=Dated)


class Shared(Generic[K, V]):
    """A bounded cache in which every caller of a key waits for one and the same computation.

    A caller that is cancelled leaves the computation running for the others; `make` bounds its own time.
    """

    def __init__(self, make: Callable[[K], Awaitable[V]], capacity: int, clock: Callable[[], float]) -> None:
        self._make = make
        self._capacity = capacity
        self._clock = clock
        self._known: dict[K, V] = {}
        self._under_way: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K) -> V:
        """The cached value, or the one just made."""
        found = self.begin(key)
        return await asyncio.shield(found) if isinstance(found, asyncio.Task) else found

    def begin(self, key: K) -> V | asyncio.Task[V]:
        """The cached value, or the computation under way, which is not the caller's to cancel."""
        value = self._known.get(key)
        if value is not None and self._clock() < value.until:
            return value
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._fill(key))
            self._under_way[key] = task
        return task

    async def close(self) -> None:
        """Cancel what is under way and wait until it is gone."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fill(self, key: K) -> V:
        try:
            value = await self._make(key)
        finally:
            self._under_way.pop(key, None)
        self._known.pop(key, None)
        if len(self._known) >= self._capacity:
            del self._known[next(iter(self._known))]  # the oldest entry: first in, first out
        self._known[key] = value
        return value
