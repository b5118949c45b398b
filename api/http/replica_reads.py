"""Send operations that tolerate lag to a replica, except for callers whose last write it does not show yet."""

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from uuid import UUID

import structlog
from msgspec import structs

from api.http.operation import Call
from api.http.paging import Page
from api.http.services import ApiServices
from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.store import metrics
from engine.store.database_errors import DatabaseError
from engine.store.deadlines import within
from engine.store.last_writes import LastWrites
from engine.store.replica_pool import LaggingSource
from engine.store.replicas import Replicas

CLOCKS_DIFFER_S: Final = 5.0  # at most, those of two hosts of the API; and the time from an id to its commit
_CURSORS: Final = ("before", "after", "cursor", "offset")

_log = structlog.get_logger("replica")


class ReplicaReads:
    """Where the reads of one process go; lives as long as the process."""

    def __init__(self, replicas: Replicas, writes: LastWrites) -> None:
        self._replicas = replicas
        self._writes = writes

    @classmethod
    def of(cls, services: ApiServices) -> "ReplicaReads | None":
        """Return the reads of a process with these services; None without replicas."""
        writes = LastWrites.from_settings(services.settings, services.redis)
        return None if services.replicas is None or writes is None else cls(services.replicas, writes)

    async def wrote(self, call: Call) -> None:
        """Note that the caller may have written; called before the response of every operation that is no GET."""
        if call.credential is not None:
            await self._writes.note(call.credential)

    async def answer(
        self, call: Call, given: Mapping[str, Any], handle: Callable[[], Awaitable[Any]], deadline_s: float
    ) -> Any:
        """Return what `handle` answers, on a replica if one may serve the caller, else on the primary; it is `given`
        a query or a page.

        A failure on the replica, and a refusal, which may be due to its lag, are repeated on the primary. The replica
        has half of the time limit, and the primary then has all of it.
        """
        pool = await self._source_for(call, given)
        if pool is not None:
            primary = call.services
            call.services = structs.replace(primary, pool=pool)
            try:
                with within(deadline_s / 2):
                    answer = await handle()
            except (Refusal, DatabaseError, OSError) as error:
                _log.info("operation repeated on the primary", request=call.request.context.id, error=repr(error))
                metrics.TALLY.add(metrics.LAGGING_READS, "repeated")
                call.services, call.status, call.cookies, call.headers = primary, None, (), ()
            else:
                metrics.TALLY.add(metrics.LAGGING_READS, "replica")
                return answer
        with within(deadline_s):
            return await handle()

    async def _source_for(self, call: Call, given: Mapping[str, Any]) -> LaggingSource | None:
        """Return a replica that shows everything that the caller wrote, and what the page before may have shown; None
        if there is none.
        """
        if not self._replicas.any_able:
            return self._on_primary("lag")
        last = None if call.credential is None else await self._writes.last(call.credential)
        if last is None:
            return self._on_primary("redis")
        since = max(last, _made(call), _continued(given))
        return self._replicas.choose(since) or self._on_primary("written")

    @staticmethod
    def _on_primary(why: str) -> LaggingSource | None:
        metrics.TALLY.add(metrics.LAGGING_READS, why)
        return None


def _made(call: Call) -> float:
    """Return the time by which the session or key was made, a write without a credential; monotonic, as below."""
    made = call.signed_in.session_id if call.signed_in is not None else call.caller.id if call.caller else None
    return math.inf if made is None else _committed(made)


def _continued(given: Mapping[str, Any]) -> float:
    """Return the time by which everything was committed that belongs below the page before; unknown, thus inf, if its
    cursor is no id. A source that lags more would leave a gap between the pages.
    """
    page: Page | None = given.get("page")
    if page is not None:
        return -math.inf if page.before is None else _committed(page.before)
    return math.inf if any(getattr(given.get("query"), name, None) for name in _CURSORS) else -math.inf


def _committed(row: UUID) -> float:
    """Return the time by which a row with this id, and all with lower ones, were committed."""
    age_s = clock.now().timestamp() - ids.milliseconds_of(row) / 1000
    return time.monotonic() - age_s + CLOCKS_DIFFER_S
