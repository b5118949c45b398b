"""Answers that many ask for at once, such as those of DNS: each is made once, and kept as long as it is good."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

REFRESH: Final = (
    0.9  # of its time: a value that is asked for later is made anew before it expires (as Unbound prefetch)
)
REFRESH_AGAIN_S: Final = 1.0  # after a refresh that failed

K = TypeVar("K")


class Dated(Protocol):
    """Something that is good until a moment of the cache's clock."""

    @property
    def until(self) -> float:
        """Monotonic seconds."""


V = TypeVar("V", bound=Dated)


class _Kept(NamedTuple, Generic[V]):
    value: V
    refresh_at: float


class SingleFlightCache(Generic[K, V]):
    """A bounded cache in which every caller of a key waits for one and the same computation.

    A value in use is made anew shortly before it expires, so that nobody waits for that. Where the new one is
    `is_failure`, the old one stays as long as it is good. A caller that is cancelled leaves the computation running for
    the others; `make` bounds its own time.
    """

    def __init__(
        self,
        make: Callable[[K], Awaitable[V]],
        capacity: int,
        clock: Callable[[], float],
        is_failure: Callable[[V], bool] = lambda _: False,
    ) -> None:
        self._make = make
        self._capacity = capacity
        self._clock = clock
        self._is_failure = is_failure
        self._known: dict[K, _Kept[V]] = {}
        self._under_way: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K) -> V:
        """The cached value, or the one just made."""
        found = self.begin(key)
        return await asyncio.shield(found) if isinstance(found, asyncio.Task) else found

    def begin(self, key: K) -> V | asyncio.Task[V]:
        """The cached value, or the computation under way, which is not the caller's to cancel."""
        kept = self._known.get(key)
        if kept is not None:
            now = self._clock()
            if now < kept.value.until:
                if now >= kept.refresh_at and key not in self._under_way:
                    self._start(key)
                return kept.value
        return self._under_way.get(key) or self._start(key)

    async def close(self) -> None:
        """Cancel what is under way and wait until it is gone."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, key: K) -> asyncio.Task[V]:
        task = self._under_way[key] = asyncio.create_task(self._fill(key))
        task.add_done_callback(_retrieve)
        return task

    async def _fill(self, key: K) -> V:
        try:
            value = await self._make(key)
        finally:
            self._under_way.pop(key, None)
        now = self._clock()
        kept = self._known.get(key)
        if kept is not None and now < kept.value.until and self._is_failure(value):
            self._known[key] = kept._replace(refresh_at=now + REFRESH_AGAIN_S)
            return kept.value
        self._known.pop(key, None)
        if len(self._known) >= self._capacity:
            del self._known[next(iter(self._known))]  # the oldest entry: first in, first out
        self._known[key] = _Kept(value, now + REFRESH * (value.until - now))
        return value


def _retrieve(task: "asyncio.Task[V]") -> None:
    """Take note of a refresh that raised, for which nobody waits."""
    if not task.cancelled():
        task.exception()
