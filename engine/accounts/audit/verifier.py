"""Run verifications for one process: one at a time per account, AT_ONCE in all.

A long log takes longer to verify than a request may take. The request then fails with a 503 and the verification
continues; later requests get its result.
"""

import asyncio
import time
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.accounts.audit import store
from engine.accounts.audit.types import ChainVerdict
from engine.base.errors import ErrorType, Refusal

MAX_WAIT_S: Final = 25.0  # per request; proxies time out after 30 or 60 s
AT_ONCE: Final = 2
KEPT_S: Final = 300.0
ASK_AGAIN_S: Final = 20


class _Run(Struct):
    task: "asyncio.Task[ChainVerdict]"
    outlived: bool = False  # a request timed out: keep the verdict for the next one
    ended_at: float = 0.0


class Verifier:
    """Verify account logs for the requests of one process; hold running verifications and recent verdicts."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._runs: dict[UUID, _Run] = {}

    async def verdict(self, account: UUID, *, max_wait_s: float = MAX_WAIT_S) -> ChainVerdict:
        """Return the verdict on an account's log; raise the 503 if it takes longer than `max_wait_s`."""
        self._forget_old()
        run = self._runs.get(account)
        if run is None:
            run = self._runs[account] = _Run(asyncio.create_task(self._verify(account)))
        try:
            async with asyncio.timeout(max_wait_s) as patience:
                verdict = await asyncio.shield(run.task)
        except TimeoutError:
            if not patience.expired():  # PostgreSQL took too long for one page
                raise
            run.outlived = True
            raise Refusal(
                ErrorType.UNAVAILABLE,
                "The verification of this long log is still running. Repeat the request later to get the result.",
                retry_after_s=ASK_AGAIN_S,
            ) from None
        if self._runs.get(account) is run:
            del self._runs[account]
        return verdict

    async def close(self) -> None:
        """Cancel running verifications."""
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
