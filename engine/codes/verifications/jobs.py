"""Write the events of finished verifications, and delete verifications and destinations that have served."""

from typing import Final

import asyncpg

from engine.base import clock, ids
from engine.base.events import AccountEvent
from engine.codes.verifications import store
from engine.ledger import heads, log
from engine.ledger.events import append_locked
from engine.store.jobs import Job

BATCH: Final = 500


async def look_after(pool: asyncpg.Pool) -> None:
    """Announce what has ended, then delete what is no longer kept; all times are the database's."""
    while await announce(pool) >= BATCH:
        pass
    for statement in (store.PURGE, store.FORGET_DESTINATIONS):
        while int((await statement.execute(pool, BATCH)).rpartition(" ")[2]) >= BATCH:
            pass


JOB = Job("verifications", every_s=0.5, run=lambda pool, _: look_after(pool))


async def announce(pool: asyncpg.Pool) -> int:
    """Write the `verification.finished` events of at most BATCH verifications; return how many had ended."""
    due = await store.DUE.fetch(pool, BATCH)
    if not due:
        return 0
    async with pool.acquire() as connection, connection.transaction():
        locked = await heads.lock(connection, {one.account_id for one in due})
        rows = await store.MARK_ANNOUNCED.fetch(connection, [one.id for one in due])
        entries = [
            log.Entry(
                row.account_id,
                AccountEvent.VERIFICATION_FINISHED,
                log.detail_text(
                    {
                        "id": ids.format_id(ids.Kind.VERIFICATION, row.id),
                        "status": row.status,
                        "message_id": ids.format_id(ids.Kind.MESSAGE, row.message_id),
                    }
                ),
                clock.now(),
            )
            for row in rows
        ]
        await append_locked(connection, locked, entries)
    return len(due)
