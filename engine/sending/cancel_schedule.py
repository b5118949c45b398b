"""Cancel a scheduled message before its release.

Cancel and release both lock the row in `schedules` before the account's head; the second to come finds the row gone. So
exactly one of them takes effect and is recorded in the waybill.
"""

from uuid import UUID

import asyncpg

from engine.base import clock, ids, trace_context
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import EventType
from engine.ledger import heads, log
from engine.ledger.events import append_locked
from engine.sending.forget_content import forget_ended
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "cancel_schedule.sql")
_LOCK = _SQL.command("lock_schedule")
_STATUS = _SQL.command("status_of")
_CANCEL = _SQL.command("cancel_message")


async def cancel_schedule(pool: asyncpg.Pool, account: UUID, message: UUID, *, actor: str | None = None) -> None:
    """Cancel one message of the account with its recipients; return after the commit. `actor` is who canceled it.

    Raises 404 for a message that the account does not have, 409 `invalid_state` with its status if it is no longer
    scheduled.
    """
    async with pool.acquire() as connection, connection.transaction():
        taken = await lock_schedule(connection, account, message)
        locked = await heads.lock(connection, [account])
        await _CANCEL.execute(connection, message)
        await forget_ended(connection, [message])
        locked[account].scheduled -= 1
        detail = trace_context.detail_of(taken["traceparent"]) | {"scheduled_at": clock.iso(taken["due_at"])}
        entry = log.Entry(
            account,
            EventType.SCHEDULE_CANCELED,
            log.detail_text(detail if actor is None else {**detail, "actor": actor}),
            clock.now(),
            message,
            ids.format_id(ids.Kind.MESSAGE, message),
        )
        await append_locked(connection, locked, [entry])


async def lock_schedule(connection: Conn, account: UUID, message: UUID) -> asyncpg.Record:
    """Lock the message's row in `schedules` until the transaction ends; return it with `due_at`, `deliver_by` and
    `traceparent`.

    Raises as `cancel_schedule`.
    """
    taken = await _LOCK.records(connection, message, account)
    if taken:
        return taken[0]
    found = await _STATUS.records(connection, message, account)
    if not found:
        raise not_found("message")
    status = found[0]["status"]
    raise Refusal(
        ErrorType.INVALID_STATE,
        f"The message is {status}; only a scheduled message can be changed or canceled.",
        state=status,
    )
