"""Keeps the tasks that deliver in one process: stages start them, draining awaits and cancels them."""

import asyncio
import time
from collections.abc import Coroutine

import structlog

_log = structlog.get_logger("mta")


class DeliveryTasks:
    """The running tasks. Their number is bounded by the active queue: each works on deliveries that it holds."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Run a coroutine beside the others; log the fault that ends it, if any."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def finish(self, grace_s: float) -> None:
        """Wait for all tasks, those started meanwhile included, then cancel the ones that last longer."""
        deadline = time.monotonic() + grace_s
        while self._running and time.monotonic() < deadline:
            await asyncio.wait(self._running, timeout=max(0.0, deadline - time.monotonic()))
        self.cancel()

    def cancel(self) -> None:
        """Cancel all running tasks."""
        for task in list(self._running):
            task.cancel()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("delivery task failed", exc_info=task.exception())
