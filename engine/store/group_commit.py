"""Group commit: concurrent callers of one process share transactions.

While one flush is in flight the next batch gathers; when idle a single item flushes at once. A least interval
between flushes, where one is given, trades a few milliseconds under load for fewer and larger transactions.
Items that were handed over together stay together: a set is flushed whole.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Overloaded(Exception):  # noqa: N818 - an answer, not a fault
    """More is waiting than may wait."""


class _Entry(NamedTuple):
    """One caller's items. The future of a single item is its result, that of a set the list of its results."""

    items: Sequence[Any]
    future: "asyncio.Future[Any]"
    single: bool


class GroupCommit(Generic[Item, Result]):
    """Gathers items into batches and hands each item its own result.

    `flush` takes a batch in arrival order and returns one result (or exception to raise) per item. A set may make
    its batch larger than `max_items`. When `flush` raises one of `bad_data` for a batch of several callers, each
    caller's items are flushed by themselves, and those of a set one by one when that is not enough: an item that
    the database can't store fails alone.
    """

    def __init__(
        self,
        flush: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        max_items: int = 128,
        max_waiting: int = 10_000,
        min_interval_s: float = 0.0,
        bad_data: tuple[type[Exception], ...] = (),
    ) -> None:
        self._flush = flush
        self._max_items = max_items
        self._max_waiting = max_waiting
        self._min_interval_s = min_interval_s
        self._last_at = 0.0
        self._bad_data = bad_data
        self._entries: list[_Entry] = []
        self._count = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Items not yet in a flush."""
        return self._count

    async def submit(self, item: Item) -> Result:
        """The item's result, after the transaction that holds it was committed."""
        return await self.enqueue(item)

    async def submit_set(self, items: Sequence[Item]) -> list[Result | Exception]:
        """The results of items that share one transaction, in their order; those that failed are exceptions.

        Raises what befell all of them. An empty set needs no transaction.
        """
        if not items:
            return []
        found: list[Result | Exception] = await self._add(items, single=False)
        return found

    def enqueue(self, item: Item) -> "asyncio.Future[Result]":
        """The same as `submit` without waiting: a future of the result. Raises Overloaded.

        Cancelling the future before its flush withdraws the item.
        """
        return self._add((item,), single=True)

    async def idle(self) -> None:
        """Wait until everything submitted so far has been flushed."""
        while self._task is not None and not self._task.done():
            await asyncio.shield(self._task)

    def _add(self, items: Sequence[Item], *, single: bool) -> "asyncio.Future[Any]":
        if self._count + len(items) > self._max_waiting:
            raise Overloaded
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._entries.append(_Entry(items, future, single))
        self._count += len(items)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return future

    async def _run(self) -> None:
        while self._entries:
            await self._pace()
            batch = self._taken()
            if batch:
                await self._settle(batch)

    async def _pace(self) -> None:
        """Under load, let the batch grow until the interval since the last flush has passed."""
        clock = asyncio.get_running_loop().time
        left = self._last_at + self._min_interval_s - clock()
        if left > 0 and self._count < self._max_items:
            await asyncio.sleep(left)
        self._last_at = clock()

    def _taken(self) -> list[_Entry]:
        """The next batch, out of what waits, without what was withdrawn."""
        room, places = self._max_items, 0
        for entry in self._entries:
            if places and len(entry.items) > room:
                break
            room -= len(entry.items)
            places += 1
            if room <= 0:
                break
        taken = self._entries[:places]
        del self._entries[:places]
        self._count -= sum([len(entry.items) for entry in taken])
        return [entry for entry in taken if not entry.future.cancelled()]

    async def _settle(self, batch: list[_Entry]) -> None:
        items = batch[0].items if len(batch) == 1 else [item for entry in batch for item in entry.items]
        try:
            results = await self._flush(items)
        except self._bad_data as error:
            if len(batch) > 1:
                for entry in batch:
                    await self._settle([entry])
            elif len(items) > 1:
                await self._settle_one_by_one(batch[0])
            else:
                _answer(batch[0], [error])
        except asyncio.CancelledError:
            for entry in batch:
                entry.future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - process loop: every waiter must hear of it
            _fail(batch, error)
        else:
            if len(results) != len(items):
                _fail(batch, RuntimeError("a flush must answer every item"))
                return
            at = 0
            for entry in batch:
                _answer(entry, results[at : at + len(entry.items)])
                at += len(entry.items)

    async def _settle_one_by_one(self, entry: _Entry) -> None:
        """A set that holds what can't be stored: each item in a transaction of its own, in their order.

        Once some of them are stored, what befalls a later one is its own matter and not the set's.
        """
        loop = asyncio.get_running_loop()
        results: list[Any] = []
        for item in entry.items:
            alone = _Entry((item,), loop.create_future(), single=True)
            await self._settle([alone])
            results.append(alone.future.exception() or alone.future.result())
        _answer(entry, results)


def _answer(entry: _Entry, results: Sequence[Any]) -> None:
    future = entry.future
    if future.done():  # its caller went away
        return
    if not entry.single:
        future.set_result(list(results))
    elif isinstance(results[0], Exception):
        future.set_exception(results[0])
    else:
        future.set_result(results[0])


def _fail(batch: list[_Entry], error: Exception) -> None:
    for entry in batch:
        if not entry.future.done():
            entry.future.set_exception(error)
