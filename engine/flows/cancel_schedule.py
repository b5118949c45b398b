"""Canceling a scheduled message before its release.

The row in `schedules` is what cancel and release contend for: both lock it before the account's head, and the one
that comes second finds it gone. So there is one winner, and the waybill tells of one.
"""

from uuid import UUID

import asyncpg

from engine.areas.api_keys.rules import KeyRestrictions
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import EventType
from engine.ledger import heads, log
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "cancel_schedule.sql")
_TAKE = _SQL.command("take_schedule")
_STATUS = _SQL.command("status_of")
_CANCEL = _SQL.command("cancel_message")


async def cancel_schedule(
    pool: asyncpg.Pool, account: UUID, message: UUID, *, reach: KeyRestrictions | None = None, actor: str | None = None
) -> None:
    """Cancel one message of the account, its recipients with it; returns after the commit. `actor`: who did it.

    Raises 404 for a message that the account does not have, 409 `invalid_state` with its status for one that waits
    no more, 403 for one that the caller's key, limited to `reach`, could not have sent.
    """
    async with pool.acquire() as connection, connection.transaction():
        taken = await take(connection, account, message, reach)
        locked = await heads.lock(connection, [account])
        await _CANCEL.execute(connection, message)
        locked[account].scheduled -= 1
        detail = {"scheduled_at": clock.iso(taken["due_at"])}
        entry = log.Entry(
            account,
            EventType.SCHEDULE_CANCELED,
            log.detail_text(detail if actor is None else {**detail, "actor": actor}),
            clock.now(),
            message,
            ids.format_id(ids.Kind.MESSAGE, message),
        )
        await log.append(connection, log.seal_all(locked, [entry]))
        await heads.save(connection, locked.values())


async def take(connection: Conn, account: UUID, message: UUID, reach: KeyRestrictions | None) -> asyncpg.Record:
    """The message's place in the schedule, locked until the transaction ends: `due_at` and `deliver_by`.

    Raises as `cancel_schedule`.
    """
    taken = await _TAKE.records(connection, message, account)
    if taken:
        if reach is not None:
            reach.check(taken[0]["from_domain"], taken[0]["stream"])
        return taken[0]
    found = await _STATUS.records(connection, message, account)
    if not found:
        raise not_found("message")
    status = found[0]["status"]
    raise Refusal(
        ErrorType.INVALID_STATE,
        f"The message does not wait for its time (any more); it is {status}.",
        status=status,
    )
