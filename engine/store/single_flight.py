"""Cache values that many callers request at once, such as DNS responses, and compute each only once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

REFRESH: Final = 0.9  # of its lifetime: a later request refreshes the value before it expires (as Unbound prefetch)
REFRESH_AGAIN_S: Final = 1.0  # after a refresh that failed

K = TypeVar("K")


class Dated(Protocol):
    """A value with an expiry time on the cache's clock."""

    @property
    def until(self) -> float:
        """Return the expiry time in monotonic seconds."""


V = TypeVar("V", bound=Dated)


class _Kept(NamedTuple, Generic[V]):
    value: V
    refresh_at: float


class SingleFlightCache(Generic[K, V]):
    """A bounded cache in which concurrent callers of a key share one computation.

    The cache refreshes a value in use shortly before it expires, so that no caller waits for it. If the new value is a
    failure (`is_failure`), the old one stays until it expires. For `stale_s` seconds after expiry, a value that is not
    a failure is still returned while its refresh runs. Cancelling a caller does not stop the computation; `make` limits
    its own time.
    """

    def __init__(
        self,
        make: Callable[[K], Awaitable[V]],
        capacity: int,
        clock: Callable[[], float],
        is_failure: Callable[[V], bool] = lambda _: False,
        stale_s: float = 0.0,
    ) -> None:
        self._make = make
        self._capacity = capacity
        self._clock = clock
        self._is_failure = is_failure
        self._stale_s = stale_s
        self._known: dict[K, _Kept[V]] = {}
        self._under_way: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K) -> V:
        """Return the cached value, or wait for a new one."""
        found = self.begin(key)
        return await asyncio.shield(found) if isinstance(found, asyncio.Task) else found

    def begin(self, key: K) -> V | asyncio.Task[V]:
        """Return the cached value, or the running computation, which the caller must not cancel."""
        kept = self._known.get(key)
        if kept is not None:
            now = self._clock()
            if now < self._usable_until(kept.value):
                if now >= kept.refresh_at and key not in self._under_way:
                    self._start(key)
                return kept.value
        return self._under_way.get(key) or self._start(key)

    def peek(self, key: K) -> V | None:
        """Return the cached value; None if there is none to be used. Starts nothing."""
        kept = self._known.get(key)
        return None if kept is None or self._clock() >= self._usable_until(kept.value) else kept.value

    def _usable_until(self, value: V) -> float:
        return value.until + (0.0 if self._is_failure(value) else self._stale_s)

    async def close(self) -> None:
        """Cancel the running computations and wait for their end."""
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
        if kept is not None and now < self._usable_until(kept.value) and self._is_failure(value):
            self._known[key] = kept._replace(refresh_at=now + REFRESH_AGAIN_S)
            return kept.value
        self._known.pop(key, None)
        if len(self._known) >= self._capacity:
            del self._known[next(iter(self._known))]  # the oldest entry: first in, first out
        self._known[key] = _Kept(value, now + REFRESH * (value.until - now))
        return value


def _retrieve(task: "asyncio.Task[V]") -> None:
    """Retrieve the exception of a refresh without a waiter, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
