"""Look whether the reason of a pause has ended: a limit, a suspension, an unverified domain, a deleted stream."""

from datetime import datetime
from uuid import UUID

import asyncpg

from engine.audience.broadcasts.batch import BroadcastSender
from engine.audience.broadcasts.types import BroadcastSummary, PauseReason
from engine.base.errors import Refusal
from engine.ledger import heads, quota
from engine.store.queries import Queries, Source

ACTIVE = "active"

_STATUS = Queries.beside(__file__, "pauses.sql").command("account_status")


async def account_status(source: Source, account: UUID) -> str | None:
    """Return the status of an account, None if it was erased."""
    found = await _STATUS.records(source, account)
    return str(found[0]["status"]) if found else None


async def has_ended(
    pool: asyncpg.Pool, sender: BroadcastSender, row: BroadcastSummary, at: datetime, *, reserve: float
) -> bool:
    """Return True if the reason why a broadcast is paused has ended at `at`."""
    why = PauseReason(row.paused_because or "")
    if await account_status(pool, row.account_id) != ACTIVE:
        return False
    if why in {PauseReason.DAILY_LIMIT, PauseReason.MONTHLY_LIMIT}:
        return not await _is_used_up(pool, row.account_id, at, reserve)
    if why is PauseReason.SUSPENDED:
        return True
    try:
        await sender.composer(row)
    except Refusal:
        return False
    return True


async def _is_used_up(source: Source, account: UUID, at: datetime, reserve: float) -> bool:
    """Return True if the account has no allowance left for broadcasts; reads the heads without a lock."""
    head = await heads.READ.first(source, account)
    if head is None:
        return True
    parent = None if head.parent_id is None else await heads.READ.first(source, head.parent_id)
    for one in (head, parent):
        if one is not None:
            quota.advance_to(one, at.date())
    return quota.used_up(head, at, parent=parent, reserve=reserve) is not None
