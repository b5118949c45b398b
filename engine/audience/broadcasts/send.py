"""Send a broadcast: repeat all checks, pin the template's version, and hand it to the workers or to the reviewer.

draft or scheduled → checks of a draft → time within the plan's window → somebody on the list → pinned → `in_review`,
`scheduled` or `sending`. The list can't be deleted between these checks and the start.
"""

from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from uuid import UUID

import asyncpg

from engine.audience.broadcasts import audience as broadcast_audience
from engine.audience.broadcasts import checks as broadcast_checks
from engine.audience.broadcasts import rules, service, store
from engine.audience.broadcasts.start import hold_for_review
from engine.audience.broadcasts.types import Broadcast, BroadcastStatus
from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.events import AccountEvent
from engine.ledger import heads
from engine.sending.accept import Acceptor
from engine.sending.admission import beyond_window
from engine.sending.emails.timing import timing_of
from engine.sending.preparation import Origin
from engine.sending.templates.types import VersionRow
from engine.store.concurrency_limiter import SEARCHES
from engine.store.queries import Conn, Queries

_KEEP_LIST = Queries.beside(__file__, "send.sql").command("keep_list")


async def send(
    pool: asyncpg.Pool,
    acceptor: Acceptor,
    broadcast: UUID,
    scheduled_at: str | None,
    origin: Origin,
    *,
    give_up_s: float,
    actor: str,
) -> Broadcast:
    """Send a draft, now or at its time, or move the time of a scheduled broadcast; return it as it stands then.

    Raises the 404, the 409 for another status or without recipients, and the refusals of a draft's checks.
    """
    account = origin.account_id
    row = await service.read(pool, account, broadcast)
    rules.check_sendable(row)
    template = await broadcast_checks.check(
        pool, acceptor, row, origin, await broadcast_checks.caps_of(pool, account), sending=True
    )
    at = clock.now()
    later = timing_of(scheduled_at, None, at, give_up_s=give_up_s).scheduled_at
    async with _place(row), pool.acquire() as connection, connection.transaction():
        locked = await service.locked(connection, account, broadcast)
        rules.check_sendable(locked)
        if locked.updated_at != row.updated_at:
            raise Refusal(
                ErrorType.INVALID_STATE,
                "The broadcast changed since you read it. Check it, then send it again.",
                state=locked.status,
            )
        await _check_window(connection, account, later, at)
        await _check_recipients(connection, locked)
        await _hand_over(connection, locked, template, later, actor)
    return await service.read(pool, account, broadcast)


def _place(row: Broadcast) -> AbstractAsyncContextManager[None]:
    """Return the place among searches that counting a segment takes; waited for without a database session."""
    return nullcontext() if row.segment_id is None else SEARCHES.of(row.account_id)


async def _hand_over(
    connection: Conn, row: Broadcast, template: VersionRow | None, later: datetime | None, actor: str
) -> None:
    version = _pinned(row, template)
    status = BroadcastStatus.SENDING if later is None else BroadcastStatus.SCHEDULED
    await store.send(connection, row.id, status, version, later)
    if later is not None:
        when = {"scheduled_at": clock.iso(later)}
        await service.record(connection, row, AccountEvent.BROADCAST_SCHEDULED, actor, **when)
    if await store.approved_before(connection, row.account_id):
        return
    if await broadcast_audience.needs_review(connection, row.account_id, row.id, row.audience):
        await hold_for_review(connection, row, actor)


def _pinned(row: Broadcast, template: VersionRow | None) -> int | None:
    """Return the version to use: the one that the first `send` pinned, else the latest."""
    if row.template_version is not None:
        return row.template_version
    return None if template is None else template.version


async def _check_window(connection: Conn, account: UUID, later: datetime | None, at: datetime) -> None:
    """Raise the 400 for a time beyond the plan's schedule window."""
    head = await heads.read(connection, account)
    refusal = None if later is None or head is None else beyond_window(head, later, at)
    if refusal is not None:
        raise refusal


async def _check_recipients(connection: Conn, row: Broadcast) -> None:
    """Raise the 409 for an audience without contacts; keep the list from being deleted until the commit."""
    if row.list_id is not None:
        await _KEEP_LIST.execute(connection, row.account_id, row.list_id)
    if not await broadcast_audience.count(connection, row.account_id, row.audience):
        raise Refusal(
            ErrorType.INVALID_STATE, "The broadcast has no recipients: its list or segment is empty.", state=row.status
        )
