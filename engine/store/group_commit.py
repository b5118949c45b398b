"""Group concurrent items of one process into shared transactions.

While one flush runs, the next batch collects; when idle, a single item is flushed at once. A minimum interval between
flushes trades a few milliseconds under load for fewer and larger transactions. Items that are submitted together are
flushed together.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from engine.store import service_time
from engine.store.database_errors import AccountMoving
from engine.store.pace import PACE

MOVING_INTERVAL_S: Final = 0.005  # while the clock of local mode moves; measured: ops/decisions/0100
Item = TypeVar("Item")
Result = TypeVar("Result")


class Overloaded(Exception):  # noqa: N818 - an answer, not a fault
    """More than `max_waiting` items are waiting."""


class _Entry(NamedTuple):
    """The items of one caller. The future of a single item is its result, that of a set the list of its results."""

    items: Sequence[Any]
    future: "asyncio.Future[Any]"
    single: bool


class GroupCommit(Generic[Item, Result]):
    """Collect items into batches and return its own result to each item.

    `flush` takes a batch in the order of arrival and returns one result (or exception to raise) per item. A set may
    make its batch larger than `max_items`. If `flush` raises one of `bad_data` or AccountMoving for a batch of several
    callers, each caller's items are flushed separately, and those of a set one by one if that fails too: an item that
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
        self._bad_data: tuple[type[Exception], ...] = (*bad_data, AccountMoving)
        self._entries: list[_Entry] = []
        self._batch: list[_Entry] = []  # being flushed
        self._began = 0.0
        self._count = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Return the number of items that are not in a flush yet."""
        return self._count

    @property
    def flushing_s(self) -> float:
        """Return how long the present batch has been flushed; 0 between two batches."""
        return asyncio.get_running_loop().time() - self._began if self._batch else 0.0

    def unfinished(self) -> list[Item]:
        """Return the items that have no result yet, in the order of arrival."""
        entries = (*self._batch, *self._entries)
        return [item for entry in entries if not entry.future.done() for item in entry.items]

    async def submit(self, item: Item) -> Result:
        """Return the item's result after the commit of its transaction."""
        return await self.enqueue(item)

    async def submit_set(self, items: Sequence[Item]) -> list[Result | Exception]:
        """Return the results of items that share one transaction, in order; a failed item has an exception as its
        result.

        Raises an error that concerns all of them. An empty set needs no transaction.
        """
        if not items:
            return []
        found: list[Result | Exception] = await self._add(items, single=False)
        return found

    def enqueue(self, item: Item) -> "asyncio.Future[Result]":
        """Submit an item without waiting; return a future of its result. Raises Overloaded.

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
            self._batch = self._taken()
            PACE.touch()
            self._began = asyncio.get_running_loop().time()
            if self._batch:
                await self._settle(self._batch)
                self._batch = []

    async def _pace(self) -> None:
        """Under load, let the batch grow until the interval since the last flush has passed. A moving clock waits for
        each flush at each of its stops: then the interval is short."""
        clock = asyncio.get_running_loop().time
        interval_s = min(self._min_interval_s, MOVING_INTERVAL_S) if service_time.moves() else self._min_interval_s
        left = self._last_at + interval_s - clock()
        if left > 0 and self._count < self._max_items:
            await asyncio.sleep(left)
        self._last_at = clock()

    def _taken(self) -> list[_Entry]:
        """Remove the next batch from the waiting entries; return it without the cancelled ones."""
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
        except Exception as error:  # noqa: BLE001 - process loop: every waiter gets the error
            _fail(batch, error)
        else:
            if len(results) != len(items):
                _fail(batch, RuntimeError("flush must return one result per item"))
                return
            at = 0
            for entry in batch:
                _answer(entry, results[at : at + len(entry.items)])
                at += len(entry.items)

    async def _settle_one_by_one(self, entry: _Entry) -> None:
        """Flush each item of a set in a transaction of its own, in order, because one can't be stored.

        An error of a later item then concerns that item only, because earlier ones are stored already.
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
    if future.done():  # the caller was cancelled
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
