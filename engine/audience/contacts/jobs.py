"""Background work for contacts: merge the search index, and delete expired confirmation links."""

from datetime import datetime

import asyncpg

from engine.base import clock
from engine.store.jobs import Job
from engine.store.queries import Queries

_SQL = Queries.beside(__file__, "jobs.sql")
_MERGE = _SQL.command("merge_trigrams")
_FORGET = _SQL.command("forget_expired")


async def merge_trigrams(pool: asyncpg.Pool) -> int:
    """Merge pending entries into the search index; return the number of merged pages.

    Without this job an import merges them once they take 16 MB: half a second.
    """
    return int((await _MERGE.records(pool))[0]["pages"])


async def forget_expired(pool: asyncpg.Pool, at: datetime) -> None:
    """Delete confirmation links that expired before `at`; their contacts stay unconfirmed."""
    await _FORGET.execute(pool, at)


JOBS = (
    Job("contact searches", every_s=2, run=lambda pool, _: merge_trigrams(pool)),
    Job("contact confirmations", every_s=3600, run=lambda pool, _: forget_expired(pool, clock.now())),
)
