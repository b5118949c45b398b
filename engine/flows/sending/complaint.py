"""A complaint: a recipient has reported a message as spam, and that becomes history in one transaction.

account head locked → recipient held → known already? → recipient and message status → count of the day → suppression →
events. A complaint that is reported again changes nothing.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import asyncpg

from engine.areas.suppressions import store as suppressions
from engine.areas.suppressions.types import Reason
from engine.base import ids
from engine.base.events import MOVES, SETTLED, AccountEvent, EventType, Status, status_of_message
from engine.ledger import heads, log, quota_usage
from engine.ledger.events import append_locked
from engine.mail.address import canonical
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "complaint.sql")
_WHOSE = _SQL.command("whose")
_AS_IT_STANDS = _SQL.command("recipient_as_it_stands")
_MARK_RECIPIENT = _SQL.command("mark_recipient")
_STATUSES = _SQL.command("statuses_of")
_MARK_MESSAGE = _SQL.command("mark_message")
_COUNT = _SQL.command("count_complaint")

# A recipient complains about what it got; only a message of several may have another status by then.
_RECIPIENTS_MOVES = [Status.DELIVERED.value]


class Complaint(StrEnum):
    """What became of a report."""

    WRITTEN = "written"
    KNOWN = "known"  # it was reported before
    EARLY = "early"  # what became of the recipient is not on record yet: to be asked again
    UNKNOWN = "unknown"  # there is no such message or recipient, or not any more


async def complain(
    pool: asyncpg.Pool,
    message_id: UUID,
    place: int,
    *,
    at: datetime,
    report: Mapping[str, str] | None = None,
    simulated: bool = False,
) -> Complaint:
    """Recipient number `place` of a message has reported it as spam, at that moment; idempotent.

    `report` is what the report says of itself (snake_case), for the event's detail. A `simulated` complaint suppresses
    nobody and says nothing of its account. One about what was never delivered, as far as is known, is told and
    suppresses like any, and moves no status.
    """
    rows = await _WHOSE.records(pool, message_id, place)
    if not rows:
        return Complaint.UNKNOWN
    account, address = rows[0]["account_id"], rows[0]["address"]
    async with pool.acquire() as connection, connection.transaction():
        locked = await heads.lock(connection, [account])
        if account not in locked or locked[account].status == "closing":
            return Complaint.UNKNOWN
        found = await _AS_IT_STANDS.records(connection, message_id, place, address)
        if not found:  # erased meanwhile
            return Complaint.UNKNOWN
        if found[0]["known"]:
            return Complaint.KNOWN
        if Status(found[0]["status"]) not in SETTLED:
            return Complaint.EARLY
        await _move(connection, message_id, place)
        await _COUNT.execute(connection, account, at.date())
        if simulated:
            await quota_usage.count_simulated(connection, [quota_usage.Simulated(account, at.date(), complained=1)])
        detail = {"recipient": address, "feedback_type": "abuse", **(report or {}), "suppressed": not simulated}
        entries = [_entry(account, message_id, detail | ({"simulated": True} if simulated else {}), at)]
        if not simulated:
            entries += await _suppress(connection, account, address, message_id, at)
        await append_locked(connection, locked, entries)
    return Complaint.WRITTEN


async def _move(connection: Conn, message_id: UUID, place: int) -> None:
    await _MARK_RECIPIENT.execute(connection, message_id, place, _RECIPIENTS_MOVES)
    statuses = [Status(row["status"]) for row in await _STATUSES.records(connection, message_id)]
    status = status_of_message(statuses)
    if status is Status.COMPLAINED:  # else others are still on their way, or this one never got it
        await _MARK_MESSAGE.execute(connection, message_id, status.value, [one.value for one in MOVES[status]])


def _entry(account: UUID, message_id: UUID, detail: dict[str, object], at: datetime) -> log.Entry:
    public = ids.format_id(ids.Kind.MESSAGE, message_id)
    return log.Entry(account, EventType.COMPLAINED, log.detail_text(detail), at, message_id, public)


async def _suppress(connection: Conn, account: UUID, address: str, message_id: UUID, at: datetime) -> list[log.Entry]:
    """The address gets nothing more; its event, unless a complaint suppressed it before."""
    hits = await suppressions.add(
        connection, [account], [canonical(address)], [Reason.COMPLAINT.value], [message_id], [None]
    )
    message = ids.format_id(ids.Kind.MESSAGE, message_id)
    return [
        log.Entry(
            account,
            AccountEvent.SUPPRESSION_ADDED,
            log.detail_text(
                {"address": hit.address, "reason": hit.reason, "source": "complaint", "message_id": message}
            ),
            at,
        )
        for hit in hits
    ]
