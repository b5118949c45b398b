"""Release scheduled messages that are due: repeat the decisions of acceptance, then queue them.

account active → sender domain still verified → no recipient suppressed → daily and monthly allowance → platform ceiling
→ queued with an `accepted` event. A used-up allowance is retried within a grace period; every other refusal is final.
Any number of workers can do this at once; killing one loses nothing.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from operator import itemgetter
from uuid import UUID

import asyncpg
import orjson
import structlog
from msgspec import Struct

from engine.base import clock, ids, trace_context
from engine.base.events import EventType, Status
from engine.base.settings import Settings
from engine.delivery import partition, splits
from engine.ledger import heads, log, quota, quota_usage
from engine.ledger.events import append_locked
from engine.ledger.heads import AccountHead
from engine.ledger.quota_usage import Ceiling, Simulated
from engine.mail.address import canonical
from engine.mail.simulator import domain_of
from engine.sending.accepted_rows import QUEUED, QueuedRow, by_domain
from engine.sending.forget_content import forget_ended
from engine.sending.suppressions import store as suppressions
from engine.sending.suppressions.rules import blocks
from engine.store import metrics
from engine.store.database_clock import DatabaseClock
from engine.store.database_errors import DatabaseUnavailable
from engine.store.jobs import Job
from engine.store.queries import Conn, Queries
from engine.store.row_sets import Column, RowSet

BATCH = 128
FAIR_SHARE = 8  # messages of one account, in every other batch of a backlog
MIN_RECHECK_S = 60.0  # until a message that waits for quota is checked again
RECHECKS_PER_S = 1_000  # of all waiting messages of one account
BROKEN_S = 600.0  # until a message whose release raised an error is tried again

_SQL = Queries.beside(__file__, "release.sql")
_ANY_DUE = _SQL.command("any_due")
_LOAD = _SQL.command("load_due")
_LEAVING = RowSet("leaving", tuple, Column("id", "uuid", itemgetter(0)), Column("status", "text", itemgetter(1)))
_STAYING = RowSet(
    "staying", tuple, Column("id", "uuid", itemgetter(0)), Column("look_at", "timestamptz", itemgetter(1))
)
_WRITE = _SQL.wide("write_released", _LEAVING, _STAYING, QUEUED)
_PUT_OFF = _SQL.command("put_off")

_log = structlog.get_logger("release")


class DueMessage(Struct, frozen=True):
    """A scheduled message that is due."""

    message_id: UUID
    account_id: UUID
    due_at: datetime
    deliver_by: datetime | None
    min_tls: str | None = None


_TAKE = _SQL.rows("take_due", DueMessage)
TAKE_FAIRLY = _SQL.rows("take_fairly", DueMessage)


class WaitingMessage(Struct, frozen=True, kw_only=True):
    """A due message with the facts for its release; `suppressed` is (address, reason) of the first suppressed
    recipient.
    """

    due: DueMessage
    source: str
    stream: str
    forgets: bool  # the content has a key of its own, which is deleted after the last outcome
    traceparent: str | None
    from_domain: str
    domain_status: str | None  # None: the domain was deleted
    recipients: list[tuple[int, str]]
    suppressed: tuple[str, str] | None


class ReleaseDecision(Struct, frozen=True):
    """The decision on a due message; `look_at` is the time of the next check if it keeps waiting."""

    status: Status
    kind: EventType | None
    detail: dict[str, object]
    look_at: datetime | None = None


class BrokenBatch(Exception):  # noqa: N818 - named for what the messages are
    """A batch raised an unexpected error; `messages` are its message ids."""

    def __init__(self, messages: list[UUID]) -> None:
        super().__init__(messages)
        self.messages = messages


async def release_due(pool: asyncpg.Pool, settings: Settings) -> int:
    """Release all due messages; return how many left the schedule, released or refused."""
    due = await _ANY_DUE.records(pool)
    if not due:
        return 0
    time = DatabaseClock(due[0]["at"])  # this host's clock could send all of them early or late
    ceiling = Ceiling(settings.platform_daily_ceiling)
    left, single, fairly = 0, 0, False
    try:
        while True:
            size = 1 if single else BATCH
            try:
                taken, departed = await _release(pool, settings, ceiling, size, time, fairly=fairly)
            except BrokenBatch as broken:
                if single:
                    until = time.now() + timedelta(seconds=BROKEN_S)
                    await _PUT_OFF.execute(pool, broken.messages[0], until)
                else:
                    single, fairly = BATCH, False  # one by one, to postpone only the message at fault
                continue
            left += departed
            if taken < size and not fairly:
                return left
            single = max(0, single - 1)
            fairly = not fairly and not single
    finally:
        with suppress(DatabaseUnavailable):  # a lease that is not returned stays unused until midnight
            async with pool.acquire() as connection:
                await ceiling.give_back(connection)


JOB = Job("releases", every_s=1, run=release_due, quiet_s=1)


async def _release(
    pool: asyncpg.Pool, settings: Settings, ceiling: Ceiling, size: int, time: DatabaseClock, *, fairly: bool
) -> tuple[int, int]:
    """Release one batch in a transaction; return how many messages it checked and how many left the schedule."""
    async with pool.acquire() as connection:
        at = time.now()
        await ceiling.reserve(connection, at.date(), size)
        taken: list[DueMessage] = []
        try:
            async with connection.transaction():
                if fairly:
                    taken = await TAKE_FAIRLY.fetch(connection, at, size, FAIR_SHARE)
                else:
                    taken = await _TAKE.fetch(connection, at, size)
                released, departed = await _transact(connection, settings, taken, ceiling.room(at.date()), at)
        except DatabaseUnavailable:
            ceiling.take(at.date(), min(size, ceiling.room(at.date())))  # the transaction may have been committed
            raise
        except Exception as error:
            if not taken:
                raise
            messages = [one.message_id for one in taken]
            _log.exception("release failed", messages=len(messages), first=str(messages[0]))
            raise BrokenBatch(messages) from error
    ceiling.take(at.date(), released)
    metrics.ACCEPTED.inc(released)
    return len(taken), departed


async def _transact(
    connection: Conn, settings: Settings, taken: Sequence[DueMessage], room: int, at: datetime
) -> tuple[int, int]:
    if not taken:
        return 0, 0
    locked = await heads.lock_counted(connection, {one.account_id for one in taken})
    await quota_usage.advance_all(connection, locked, at.date())
    in_order = sorted(taken, key=lambda one: (one.due_at, one.message_id))
    waiting = await _load(connection, [one for one in in_order if one.account_id in locked])
    grace = timedelta(seconds=settings.schedule_grace_s)
    decisions: list[tuple[WaitingMessage, ReleaseDecision]] = []
    released = 0
    for one in waiting:
        head = locked[one.due.account_id]
        parent = None if head.parent_id is None else locked.get(head.parent_id)
        decision = decide(one, head, room=room - released, at=at, grace=grace, parent=parent)
        released += decision.status is Status.QUEUED
        head.scheduled -= decision.status is not Status.SCHEDULED
        decisions.append((one, decision))
    known = {one.due.message_id for one in waiting}
    lost = [one for one in taken if one.message_id not in known]  # erased meanwhile: no event is possible
    for erased in lost:
        if erased.account_id in locked:
            locked[erased.account_id].scheduled -= 1
    await _write(connection, settings, decisions, lost, at)
    await quota_usage.count_simulated(connection, _simulated(decisions, domain_of(settings.mail_host), at))
    await append_locked(connection, locked, _entries(decisions, at))
    return released, sum(decision.status is not Status.SCHEDULED for _, decision in decisions)


async def _load(connection: Conn, taken: Sequence[DueMessage]) -> list[WaitingMessage]:
    """Load the facts of due messages, in order; read under the heads' locks, so that a new status is seen."""
    if not taken:
        return []
    messages = [one.message_id for one in taken]
    rows = {row["id"]: row for row in await _LOAD.records(connection, messages, min(messages), max(messages))}
    recipients = {message: [(n, address) for n, address in row["recipients"]] for message, row in rows.items()}
    found_all = [one for one in taken if one.message_id in rows]
    pairs = [(one.account_id, canonical(address)) for one in found_all for _, address in recipients[one.message_id]]
    found = await suppressions.find(connection, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
    waiting = []
    for one in found_all:
        own, stream, source = recipients[one.message_id], rows[one.message_id]["stream"], rows[one.message_id]["source"]
        hits = ((address, found.get((one.account_id, canonical(address)))) for _, address in own) if found else ()
        waiting.append(
            WaitingMessage(
                due=one,
                source=source,
                stream=stream,
                forgets=rows[one.message_id]["forgets"],
                traceparent=rows[one.message_id]["traceparent"],
                from_domain=rows[one.message_id]["from_domain"],
                domain_status=rows[one.message_id]["domain_status"],
                recipients=own,
                suppressed=next(
                    (
                        (address, why)
                        for address, why in hits
                        if why is not None and blocks(why, stream=stream, source=source)
                    ),
                    None,
                ),
            )
        )
    return waiting


def decide(
    one: WaitingMessage,
    head: AccountHead,
    *,
    room: int,
    at: datetime,
    grace: timedelta,
    parent: AccountHead | None = None,
) -> ReleaseDecision:
    """Decide on a due message; count it on its head, and its parent's, if it is released. Otherwise pure."""
    if head.status != "active":
        return _failed(one, {"reason": f"account_{head.status}"})
    if one.domain_status != "verified":
        return _failed(one, {"reason": "domain_not_verified", "domain": one.from_domain})
    if one.suppressed is not None:
        address, reason = one.suppressed
        found: dict[str, object] = {"address": address, "reason": reason, "phase": "scheduled_release"}
        return ReleaseDecision(Status.REJECTED, EventType.SUPPRESSED, found)
    shortage = _shortage(head, room, at, parent)
    if shortage is not None:
        end = one.due.due_at + grace
        end = end if one.due.deliver_by is None else min(end, one.due.deliver_by)
        if at >= end:
            return _failed(one, shortage)
        wait = timedelta(seconds=max(MIN_RECHECK_S, head.scheduled / RECHECKS_PER_S))
        return ReleaseDecision(Status.SCHEDULED, None, {}, min(at + wait, end))
    if one.due.deliver_by is not None and one.due.deliver_by <= at:
        return _failed(one, {"reason": "deliver_by_passed", "deliver_by": clock.iso(one.due.deliver_by)})
    quota.take(head, at, parent)
    return ReleaseDecision(
        Status.QUEUED, EventType.ACCEPTED, {"scheduled": True, "scheduled_at": clock.iso(one.due.due_at)}
    )


def _shortage(head: AccountHead, room: int, at: datetime, parent: AccountHead | None) -> dict[str, object] | None:
    """Return the event detail of a used-up allowance, with its figures, or None."""
    refusal = quota.used_up(head, at, parent=parent)
    if refusal is None:
        return None if room > 0 else {"reason": quota.platform_refusal().kind.value}
    names = {
        "limit": "limit", "sentToday": "sent_today", "sentThisMonth": "sent_this_month", "allowance": "allowance",
    }  # fmt: skip
    return {"reason": refusal.kind.value} | {names[name]: value for name, value in refusal.fields.items()}


def _failed(one: WaitingMessage, why: dict[str, object]) -> ReleaseDecision:
    return ReleaseDecision(
        Status.REJECTED, EventType.SCHEDULE_FAILED, why | {"scheduled_at": clock.iso(one.due.due_at)}
    )


def _simulated(
    decisions: Sequence[tuple[WaitingMessage, ReleaseDecision]], domain: str, at: datetime
) -> list[Simulated]:
    """Return the counts of messages that go out now to the simulator's recipients alone."""
    return [
        Simulated(one.due.account_id, at.date(), messages=1)
        for one, decision in decisions
        if decision.status is Status.QUEUED and all(address.endswith(f"@{domain}") for _, address in one.recipients)
    ]


def _entries(decisions: Sequence[tuple[WaitingMessage, ReleaseDecision]], at: datetime) -> list[log.Entry]:
    return [
        log.Entry(
            one.due.account_id,
            decision.kind,
            log.detail_text(trace_context.detail_of(one.traceparent) | decision.detail),
            at,
            one.due.message_id,
            ids.format_id(ids.Kind.MESSAGE, one.due.message_id),
        )
        for one, decision in decisions
        if decision.kind is not None
    ]


async def _write(
    connection: Conn,
    settings: Settings,
    decisions: Sequence[tuple[WaitingMessage, ReleaseDecision]],
    lost: Sequence[DueMessage],
    at: datetime,
) -> None:
    leaving = [(one.message_id, Status.REJECTED.value) for one in lost]
    staying: list[tuple[UUID, datetime]] = []
    queued: list[QueuedRow] = []
    split = await splits.read(connection)
    for one, decision in decisions:
        message = one.due.message_id
        if decision.look_at is not None:
            staying.append((message, decision.look_at))
            continue
        leaving.append((message, decision.status.value))
        if decision.status is Status.QUEUED:
            queued += _queued(one, settings.shards, split)
    touched = [message for message, _ in leaving] or [UUID(int=0)]
    await _WRITE.run(
        connection, _LEAVING.of(leaving), _STAYING.of(staying), QUEUED.of(queued),
        low=min(touched), high=max(touched), at=at,
    )  # fmt: skip
    await forget_ended(connection, [message for message, status in leaving if status != Status.QUEUED])


def _queued(one: WaitingMessage, shards: int, split: Mapping[str, int]) -> list[QueuedRow]:
    """Return the deliveries of a message that is released."""
    due = one.due
    return [
        QueuedRow(
            message_id=due.message_id,
            domain=domain,
            shard=partition.shard_of(domain, shards, split=split, message_id=due.message_id),
            account_id=due.account_id,
            from_domain=one.from_domain,
            recipients=orjson.dumps(group).decode(),
            total=len(one.recipients),
            deliver_by=due.deliver_by,
            min_tls=due.min_tls,
            source=one.source,
            stream=one.stream,
            forgets=one.forgets,
            traceparent=one.traceparent,
        )
        for domain, group in by_domain(one.recipients).items()
    ]
