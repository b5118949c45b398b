"""Record complaints: a recipient has reported a message as spam. One transaction.

lock the account head → lock the recipient → already recorded? → recipient and message status → count of the day →
suppression → events. A repeated report changes nothing.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import asyncpg

from engine.base import ids, trace_context
from engine.base.events import MOVES, SETTLED, AccountEvent, EventType, Status, status_of_message
from engine.delivery.sealed_mail import is_masked
from engine.ledger import heads, log, quota_usage
from engine.ledger.events import append_locked
from engine.mail.address import canonical
from engine.sending.suppressions import store as suppressions
from engine.sending.suppressions.types import Reason
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "complaint.sql")
_RECIPIENT = _SQL.command("recipient_address")
_LOCK_RECIPIENT = _SQL.command("lock_recipient")
_MARK_RECIPIENT = _SQL.command("mark_recipient")
_STATUSES = _SQL.command("statuses_of")
_MARK_MESSAGE = _SQL.command("mark_message")
_COUNT = _SQL.command("count_complaint")

# Only delivered recipients become `complained`; others keep their status.
_COMPLAINABLE = [Status.DELIVERED.value]


class Complaint(StrEnum):
    """The result of recording a report."""

    RECORDED = "recorded"
    KNOWN = "known"  # recorded before
    EARLY = "early"  # the recipient is not settled yet: the caller tries again
    UNKNOWN = "unknown"  # there is no such message or recipient (any more)


async def complain(
    pool: asyncpg.Pool,
    message_id: UUID,
    place: int,
    *,
    at: datetime,
    report: Mapping[str, str] | None = None,
    reporter: str | None = None,
    simulated: bool = False,
) -> Complaint:
    """Record that recipient number `place` of a message reported it as spam at `at`; idempotent.

    `report` holds the report's own fields (snake_case) for the event's detail. `reporter` is the domain of its
    authenticated author, by which the rule for suspensions counts complaints. A `simulated` complaint suppresses no
    address and does not count against the account. The address of a verification is not known any more, so it is not
    suppressed either. A complaint about mail that was not delivered is recorded and suppresses the address, but changes
    no status.
    """
    rows = await _RECIPIENT.records(pool, message_id, place)
    if not rows:
        return Complaint.UNKNOWN
    account, address = rows[0]["account_id"], rows[0]["address"]
    async with pool.acquire() as connection, connection.transaction():
        locked = await heads.lock(connection, [account])
        if account not in locked or locked[account].status == "closing":
            return Complaint.UNKNOWN
        found = await _LOCK_RECIPIENT.records(connection, message_id, place, address)
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
        suppressed = not simulated and not is_masked(address)
        said = {} if is_masked(address) else report or {}  # a report may quote the masked address
        by = {} if reporter is None else {"reporter": reporter}
        detail = trace_context.detail_of(rows[0]["traceparent"])
        detail |= {"recipient": address, "feedback_type": "abuse", **said, **by, "suppressed": suppressed}
        entries = [_entry(account, message_id, detail | ({"simulated": True} if simulated else {}), at)]
        if suppressed:
            entries += await _suppress(connection, account, address, message_id, at)
        await append_locked(connection, locked, entries)
    return Complaint.RECORDED


async def _move(connection: Conn, message_id: UUID, place: int) -> None:
    await _MARK_RECIPIENT.execute(connection, message_id, place, _COMPLAINABLE)
    statuses = [Status(row["status"]) for row in await _STATUSES.records(connection, message_id)]
    status = status_of_message(statuses)
    if status is Status.COMPLAINED:  # otherwise other recipients are unsettled, or this one was not delivered
        await _MARK_MESSAGE.execute(connection, message_id, status.value, [one.value for one in MOVES[status]])


def _entry(account: UUID, message_id: UUID, detail: dict[str, object], at: datetime) -> log.Entry:
    public = ids.format_id(ids.Kind.MESSAGE, message_id)
    return log.Entry(account, EventType.COMPLAINED, log.detail_text(detail), at, message_id, public)


async def _suppress(connection: Conn, account: UUID, address: str, message_id: UUID, at: datetime) -> list[log.Entry]:
    """Suppress the address; return the event, or none if a complaint suppressed it before."""
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
