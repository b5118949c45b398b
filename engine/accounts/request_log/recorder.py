"""Record answered requests off their way: buffered in the process, written in batches.

A crash loses what was buffered, up to a second. So does a database that is away for longer than the buffer lasts: the
log is for people who look for a mistake, and never delays or refuses a request. Billing and audit do not read it.
"""

import asyncio
from typing import Any, Final
from uuid import UUID

import asyncpg
import structlog

from engine.accounts.request_log import rules, store
from engine.base import ids
from engine.store.database_errors import BadData, DatabaseError

FLUSH_S: Final = 1.0
BATCH: Final = 1_000  # rows of one statement: encoding them takes about 2 ms
MAX_BUFFERED: Final = 10_000  # rows of one process, about 5 MB; more are dropped and counted
MAX_OF_ACCOUNT: Final = 5_000  # of those, so that a flood of one account leaves room for the others

_log = structlog.get_logger("requests")


class RequestRecorder:
    """The requests of one process that are not written yet; lives as long as the process."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._rows: list[tuple[Any, ...]] = []
        self._counts: dict[UUID, int] = {}
        self.dropped = 0

    def record(
        self,
        account: UUID,
        key: UUID | None,
        person: UUID | None,
        method: str,
        path: str,
        status: int,
        seconds: float,
        request_id: str,
        error_type: str | None,
        agent: str | None = None,
    ) -> None:
        """Add one answered request to the buffer, or drop it if the buffer or the account's share is full."""
        count = self._counts.get(account, 0)
        if count >= MAX_OF_ACCOUNT or len(self._rows) >= MAX_BUFFERED:
            self.dropped += 1
            return
        self._counts[account] = count + 1
        self._rows.append(
            (
                ids.uuid7(), account, key, person, method, rules.stored_path(path), status,
                min(int(seconds * 1e6), rules.MAX_MICROSECONDS), request_id, error_type,
                agent,
            )
        )  # fmt: skip

    async def run(self) -> None:
        """Write the buffer every second until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Write the buffer; after a failure, keep it for the next time."""
        rows, self._rows, self._counts = self._rows, [], {}
        for start in range(0, len(rows), BATCH):
            try:
                await store.insert(self._pool, rows[start : start + BATCH])
            except BadData as error:  # a row that PostgreSQL never takes must not keep the next ones out
                self.dropped += len(rows[start : start + BATCH])
                _log.error("requests left out of the request log: a value can't be stored", error=repr(error))
            except (DatabaseError, OSError) as error:
                self._keep(rows[start:])
                _log.warning("request log not written", error=repr(error), rows=len(self._rows))
                break
        if self.dropped:
            _log.warning("requests left out of the request log", count=self.dropped)
            self.dropped = 0

    def _keep(self, rows: list[tuple[Any, ...]]) -> None:
        room = MAX_BUFFERED - len(self._rows)
        self.dropped += max(0, len(rows) - room)
        self._rows = rows[:room] + self._rows
