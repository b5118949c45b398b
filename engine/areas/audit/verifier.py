"""Verifications of one process: one at a time for an account, few at a time for all, longer than a request if need be.

A log of millions of events takes longer to replay than a request may take. The request that started it is told to ask
again; the verification goes on, and whoever asks while it does, or soon after, gets its verdict.
"""

import asyncio
import time
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.areas.audit import store
from engine.areas.audit.types import ChainVerdict
from engine.base.errors import ErrorType, Refusal

PATIENCE_S: Final = 25.0  # of one request; proxies give up at 30 or 60 s
AT_ONCE: Final = 2
KEPT_S: Final = 300.0
ASK_AGAIN_S: Final = 20


class _Run(Struct):
    task: "asyncio.Task[ChainVerdict]"
    outlived: bool = False  # a request gave up waiting: the verdict is kept for the next one
    ended_at: float = 0.0


class Verifier:
    """Replays logs for the requests of one process."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._runs: dict[UUID, _Run] = {}

    async def verdict(self, account: UUID, *, patience_s: float = PATIENCE_S) -> ChainVerdict:
        """The verdict on an account's log; raises 503 when it takes longer than `patience_s`."""
        self._forget_old()
        run = self._runs.get(account)
        if run is None:
            run = self._runs[account] = _Run(asyncio.create_task(self._verify(account)))
        try:
            async with asyncio.timeout(patience_s) as patience:
                verdict = await asyncio.shield(run.task)
        except TimeoutError:
            if not patience.expired():  # Postgres took too long for one page
                raise
            run.outlived = True
            raise Refusal(
                ErrorType.UNAVAILABLE,
                "The log is long and its verification goes on. Ask again: the answer will be the verdict.",
                retry_after_s=ASK_AGAIN_S,
            ) from None
        if self._runs.get(account) is run:
            del self._runs[account]
        return verdict

    async def close(self) -> None:
        """End what is under way."""
        tasks = [run.task for run in self._runs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _verify(self, account: UUID) -> ChainVerdict:
        try:
            async with self._gate:
                return await store.verify(self._pool, account)
        finally:
            run = self._runs.get(account)
            if run is not None:
                run.ended_at = time.monotonic()
                if not run.outlived:
                    del self._runs[account]

    def _forget_old(self) -> None:
        now = time.monotonic()
        for account, run in list(self._runs.items()):
            if run.task.done() and (_failed(run.task) or now - run.ended_at > KEPT_S):
                del self._runs[account]


def _failed(task: "asyncio.Task[ChainVerdict]") -> bool:
    return task.cancelled() or task.exception() is not None
