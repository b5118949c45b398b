"""Delete the emails of sends that nobody decided on in time, and old sends."""

from typing import Final

import asyncpg

from engine.base import clock
from engine.sending.agent_sends import store
from engine.sending.agent_sends.types import KEPT
from engine.store.jobs import Job

BATCH: Final = 500


async def look_after(pool: asyncpg.Pool) -> None:
    """Delete what is no longer needed, in small batches."""
    at = clock.now()
    for statement, before in ((store.FORGET_EXPIRED, at), (store.PURGE, at - KEPT)):
        while int((await statement.execute(pool, before, BATCH)).rpartition(" ")[2]) >= BATCH:
            pass


JOB = Job("agent sends", every_s=60, run=lambda pool, _: look_after(pool))
