"""Move a scheduled message to another time, before its release.

As in cancel_schedule, the row in `schedules` is locked before the account's head, so that only one of release, cancel
and reschedule takes effect. The new time is checked like the first one at acceptance.
"""

from datetime import datetime
from functools import partial
from uuid import UUID

import asyncpg
import orjson

from engine.base import clock, ids, trace_context
from engine.base.errors import invalid
from engine.base.events import EventType
from engine.base.secrets import Pepper
from engine.delivery.sealed_mail import MailSealer
from engine.ledger import heads, log, quota, quota_usage
from engine.ledger.events import append_locked
from engine.mail.headers import date_field
from engine.sending.admission import beyond_window
from engine.sending.cancel_schedule import lock_schedule
from engine.sending.emails.timing import timing_of
from engine.sending.forget_content import opened
from engine.store.large_mail import run_sized
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "reschedule.sql")
_FACTS = _SQL.command("facts_of")
_MOVE = _SQL.command("move_schedule")
_SEALED = _SQL.command("sealed_content")
_SEAL_AGAIN = _SQL.command("seal_again")


async def reschedule(
    pool: asyncpg.Pool,
    account: UUID,
    message: UUID,
    scheduled_at: str,
    *,
    give_up_s: float,
    pepper: Pepper,
    actor: str | None = None,
) -> datetime:
    """Move one message of the account to another time; return the time as stored, after the commit.

    A time in the past or within a minute means now: the next release takes it. Raises 404 and 409 as
    `cancel_schedule`, 400 for a time beyond the plan's window or not before the message's `deliverBy`, 429 for a day or
    a month whose allowance is used up.
    """
    at = clock.now()
    wanted = timing_of(scheduled_at, None, at, give_up_s=give_up_s).scheduled_at or at
    async with pool.acquire() as connection, connection.transaction():
        taken = await lock_schedule(connection, account, message)
        if taken["deliver_by"] is not None and taken["deliver_by"] <= wanted:
            raise invalid(
                "scheduledAt",
                f"`scheduledAt` must be before the message's `deliverBy`, {clock.iso(taken['deliver_by'])}. Choose an"
                " earlier time.",
            )
        locked = await heads.lock_counted(connection, [account])
        await quota_usage.advance_all(connection, locked, at.date())
        head = locked[account]
        parent = None if head.parent_id is None else locked.get(head.parent_id)
        refusal = beyond_window(head, wanted, at) or quota.used_up(head, at, of=wanted, parent=parent)
        if refusal is not None:
            raise refusal
        before: datetime = taken["due_at"]
        await _MOVE.execute(connection, message, wanted, _date_of(before), _date_of(wanted))
        await _redate_sealed(connection, message, before, wanted, pepper)
        detail = await _event_detail(connection, message, before, wanted)
        entry = log.Entry(
            account,
            EventType.SCHEDULED,
            log.detail_text(detail if actor is None else {**detail, "actor": actor}),
            at,
            message,
            ids.format_id(ids.Kind.MESSAGE, message),
        )
        await append_locked(connection, locked, [entry])
    return wanted


async def _redate_sealed(connection: Conn, message: UUID, before: datetime, now: datetime, pepper: Pepper) -> None:
    """Replace the `Date` line of content that is encrypted with a key of its own, under a new key."""
    for row in await _SEALED.records(connection, message):
        mime = await opened(message, row["mime"], forgets=True, sealed_key=row["sealed_key"], pepper=pepper)
        if mime is None:
            return  # the release finds it unreadable too
        header, end, body = mime.partition(b"\r\n\r\n")
        moved = header.replace(_date_of(before), _date_of(now), 1) + end + body
        sealed = await run_sized(len(moved), partial(MailSealer(pepper).seal_apart, message, moved))
        await _SEAL_AGAIN.execute(connection, message, *sealed)


def _date_of(at: datetime) -> bytes:
    """Return the whole `Date` line that acceptance writes, between two line ends; its length is the same for any
    time.
    """
    return f"\r\n{date_field(at)}".encode()


async def _event_detail(connection: Conn, message: UUID, before: datetime, now: datetime) -> dict[str, object]:
    """Return the detail of a `scheduled` event, with the time that this one replaces."""
    facts = (await _FACTS.records(connection, message))[0]
    detail: dict[str, object] = trace_context.detail_of(facts["traceparent"]) | {
        "to_domain": facts["address"].rpartition("@")[2],
        "from_domain": facts["from_domain"],
        "stream": facts["stream"],
        "source": facts["source"],
    }
    if facts["attachments"] is not None:
        kept = ("filename", "content_type", "size_bytes", "sha256")
        detail["attachments"] = [{name: one[name] for name in kept} for one in orjson.loads(facts["attachments"])]
    return detail | {"scheduled_at": clock.iso(now), "previously_at": clock.iso(before)}
