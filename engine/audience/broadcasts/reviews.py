"""Tell the operator by mail which broadcasts wait for review: the owners of the platform account, once each."""

from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.accounts import platform_account
from engine.audience.broadcasts import audience as broadcast_audience
from engine.audience.broadcasts.types import REVIEWED_ABOVE, BroadcastAudience
from engine.base import clock, ids
from engine.people.people import store as people
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.store.jobs import Job
from engine.store.queries import Conn, Queries

MAX_TOLD: Final = 20  # at once

_log = structlog.get_logger("broadcasts")


class WaitingReview(Struct, frozen=True):
    """A broadcast that waits for review, of which the operator has not been told."""

    id: UUID
    account_id: UUID
    account_name: str
    name: str
    sender: str
    list_id: UUID | None
    segment_id: UUID | None


_SQL = Queries.beside(__file__, "reviews.sql")
_TAKE = _SQL.rows("take_untold", WaitingReview)
_TOLD = _SQL.command("mark_told")


async def notify(pool: asyncpg.Pool, at: datetime) -> int:
    """Mail the operator about broadcasts that wait for review; return about how many.

    Without a platform account, or without people on it, that waits; `ops review list` shows them all the same.
    """
    platform = await platform_account.read(pool, at)
    if platform.account_id is None:
        return 0
    async with pool.acquire() as connection, connection.transaction():
        owners = [one.email for one in await people.OWNERS.fetch(connection, platform.account_id)]
        waiting = await _TAKE.fetch(connection, MAX_TOLD) if owners else []
        for one in waiting:
            await _tell(connection, one, owners, at)
    return len(waiting)


JOB = Job("broadcast reviews", every_s=15, run=lambda pool, _: notify(pool, clock.now()))


async def _tell(connection: Conn, one: WaitingReview, owners: list[str], at: datetime) -> None:
    public_id = ids.format_id(ids.Kind.BROADCAST, one.id)
    recipients = await _recipients(connection, one)
    for owner in owners:
        await enqueue(
            connection,
            SystemMailKind.BROADCAST_IN_REVIEW,
            owner,
            at=at,
            account_name=one.account_name,
            name=one.name,
            sender=one.sender,
            recipients=recipients,
            id=public_id,
        )
    await _TOLD.execute(connection, one.id, at)
    _log.info("operator told of a review", broadcast=public_id)


async def _recipients(connection: Conn, one: WaitingReview) -> str:
    """Return the number of recipients in words, for a segment at most a bound."""
    chosen = BroadcastAudience(one.list_id, one.segment_id)
    if chosen.segment_id is not None:
        return f"more than {REVIEWED_ABOVE}"
    return str(await broadcast_audience.count(connection, one.account_id, chosen) or 0)
