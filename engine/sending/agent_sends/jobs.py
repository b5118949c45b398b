"""Tell people by mail what waits for them, delete the emails of sends that were not sent in time, and old sends."""

from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg

from engine.base import clock
from engine.ledger import heads
from engine.people.account import store as accounts
from engine.people.people import store as people
from engine.people.system_mail.store import enqueue_many
from engine.people.system_mail.types import SystemMailKind
from engine.sending.agent_sends import store
from engine.sending.agent_sends.types import KEPT, MAX_TOLD, TOLD_EVERY
from engine.store.jobs import Job

BATCH: Final = 500


async def look_after(pool: asyncpg.Pool) -> None:
    """Tell of sends that wait, and delete what is no longer needed, in small batches."""
    at = clock.now()
    for row in await store.UNTOLD.records(pool, at, at - TOLD_EVERY, BATCH):
        await _tell(pool, row["account_id"], at)
    for statement, before in ((store.FORGET_EXPIRED, at), (store.PURGE, at - KEPT)):
        while int((await statement.execute(pool, before, BATCH)).rpartition(" ")[2]) >= BATCH:
            pass


JOB = Job("agent sends", every_s=60, run=lambda pool, _: look_after(pool))


async def _tell(pool: asyncpg.Pool, account: UUID, at: datetime) -> None:
    """Queue a mail to those who may approve, unless another worker did. It names no subject: an agent wrote those."""
    async with pool.acquire() as connection, connection.transaction():
        head = (await heads.lock(connection, [account])).get(account)
        if head is None or head.status != "active":
            return
        if not await store.MARK_TOLD.records(connection, account, at, at - TOLD_EVERY):
            return
        known = await accounts.READ.first(connection, account)
        waiting = (await store.COUNT_PENDING.records(connection, account, at))[0]["pending"]
        detail = {"account_name": "" if known is None else known.name, "waiting": waiting}
        told = await people.APPROVERS.fetch(connection, account, MAX_TOLD)
        await enqueue_many(
            connection, SystemMailKind.AGENT_SENDS_WAITING, [(person.email, detail) for person in told], at=at
        )
