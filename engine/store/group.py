"""Group commit: concurrent callers of one process share transactions.

While one flush is in flight the next batch gathers; when idle a single item flushes at once. A least interval
between flushes, where one is given, trades a few milliseconds under load for fewer and larger transactions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Overloaded(Exception):  # noqa: N818 - an answer, not a fault
    """More is waiting than may wait."""


class GroupCommit(Generic[Item, Result]):
    """Gathers items into batches and hands each item its own result.

    `flush` takes a batch in arrival order and returns one result (or exception to raise) per item. When it
    raises one of `bad_data` for a batch of several, each item is flushed alone, so that one item that the
    database can't store fails by itself.
    """

    def __init__(
        self,
        flush: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        most_items: int = 128,
        most_waiting: int = 10_000,
        least_interval_s: float = 0.0,
        bad_data: tuple[type[Exception], ...] = (),
    ) -> None:
        self._flush = flush
        self._most_items = most_items
        self._most_waiting = most_waiting
        self._least_interval_s = least_interval_s
        self._last_at = 0.0
        self._bad_data = bad_data
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Items not yet in a flush."""
        return len(self._waiting)

    async def submit(self, item: Item) -> Result:
        """The item's result, after the transaction that holds it was committed."""
        return await self.enqueue(item)

    def enqueue(self, item: Item) -> "asyncio.Future[Result]":
        """The same without waiting: a future of the result. Raises Overloaded.

        Cancelling the future before its flush withdraws the item.
        """
        if len(self._waiting) >= self._most_waiting:
            raise Overloaded
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return future

    async def idle(self) -> None:
        """Wait until everything submitted so far has been flushed."""
        while self._task is not None and not self._task.done():
            await asyncio.shield(self._task)

    async def _run(self) -> None:
        while self._waiting:
            await self._pace()
            batch = [pair for pair in self._waiting[: self._most_items] if not pair[1].cancelled()]
            del self._waiting[: self._most_items]
            if batch:
                await self._settle(batch)

    async def _pace(self) -> None:
        """Under load, let the batch grow until the interval since the last flush has passed."""
        clock = asyncio.get_running_loop().time
        left = self._last_at + self._least_interval_s - clock()
        if left > 0 and len(self._waiting) < self._most_items:
            await asyncio.sleep(left)
        self._last_at = clock()

    async def _settle(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._flush([item for item, _ in batch])
        except self._bad_data as error:
            if len(batch) > 1:
                for pair in batch:
                    await self._settle([pair])
                return
            _fail(batch, error)
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - process loop: every waiter must hear of it
            _fail(batch, error)
        else:
            if len(results) != len(batch):
                _fail(batch, RuntimeError("a flush must answer every item"))
                return
            for (_, future), result in zip(batch, results, strict=True):
                _answer(future, result)


def _answer(future: asyncio.Future[Result], result: Result | Exception) -> None:
    if future.done():  # its caller went away
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


def _fail(batch: list[tuple[Item, asyncio.Future[Result]]], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
