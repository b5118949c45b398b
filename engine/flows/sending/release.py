"""The release of scheduled messages: when their time has come, what acceptance decided is decided again.

account active → sender domain still verified → nobody suppressed meanwhile → daily and monthly allowance → platform
ceiling → queued with an `accepted` event. Quota is waited for, within a grace; every other refusal is final at once.
Any number of workers may do this beside each other, and one that is killed leaves everything as it was.
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

from engine.areas.suppressions import store as suppressions
from engine.areas.suppressions.rules import blocks
from engine.base import clock, ids
from engine.base.events import EventType, Status
from engine.base.settings import Settings
from engine.delivery import partition, splits
from engine.flows.sending.accepted_rows import QUEUED, QueuedRow, by_domain
from engine.ledger import heads, log, quota, quota_usage
from engine.ledger.events import append_locked
from engine.ledger.heads import Head
from engine.ledger.quota_usage import Ceiling, Simulated
from engine.mail.address import canonical
from engine.mail.simulator import domain_of
from engine.store import metrics
from engine.store.database_clock import DatabaseClock
from engine.store.database_errors import DatabaseUnavailable
from engine.store.queries import Conn, Queries
from engine.store.row_sets import Column, RowSet

BATCH = 128
FAIR_SHARE = 8  # of any account, in every other batch of a backlog
AGAIN_S = 60.0  # quota is asked for again after this
AGAIN_PER_S = 1_000  # times in all that the waiting messages of one account are looked at again
BROKEN_S = 600.0  # a message whose release fails by a fault of ours is left alone for so long

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
    """A message whose time has come."""

    message_id: UUID
    account_id: UUID
    due_at: datetime
    deliver_by: datetime | None
    min_tls: str | None = None


_TAKE = _SQL.rows("take_due", DueMessage)
TAKE_FAIRLY = _SQL.rows("take_fairly", DueMessage)


class WaitingMessage(Struct, frozen=True, kw_only=True):
    """A due message with what its release looks at. `suppressed` is (address, reason) of the first such recipient."""

    due: DueMessage
    source: str
    stream: str
    from_domain: str
    domain_status: str | None  # None: the domain is gone
    recipients: list[tuple[int, str]]
    suppressed: tuple[str, str] | None


class ReleaseDecision(Struct, frozen=True):
    """What becomes of a due message; `look_at` when it goes on waiting."""

    status: Status
    kind: EventType | None
    detail: dict[str, object]
    look_at: datetime | None = None


class BrokenBatch(Exception):  # noqa: N818 - named for what the messages are
    """A batch failed by a fault of ours; names its messages."""

    def __init__(self, messages: list[UUID]) -> None:
        super().__init__(messages)
        self.messages = messages


async def release_due(pool: asyncpg.Pool, settings: Settings) -> int:
    """Release everything that is due; returns how many messages left the schedule, whatever became of them."""
    due = await _ANY_DUE.records(pool)
    if not due:
        return 0
    time = DatabaseClock(due[0]["at"])  # that of this host would send all of them early, or late
    ceiling = Ceiling(settings.platform_daily_ceiling)
    left, alone, fairly = 0, 0, False
    try:
        while True:
            size = 1 if alone else BATCH
            try:
                taken, gone = await _release(pool, settings, ceiling, size, time, fairly=fairly)
            except BrokenBatch as broken:
                if alone:
                    until = time.now() + timedelta(seconds=BROKEN_S)
                    await _PUT_OFF.execute(pool, broken.messages[0], until)
                else:
                    alone, fairly = BATCH, False  # one by one: the one at fault is put off, the others go their way
                continue
            left += gone
            if taken < size and not fairly:
                return left
            alone = max(0, alone - 1)
            fairly = not fairly and not alone
    finally:
        with suppress(DatabaseUnavailable):  # what can't be given back lies unused until midnight
            async with pool.acquire() as connection:
                await ceiling.give_back(connection)


async def _release(
    pool: asyncpg.Pool, settings: Settings, ceiling: Ceiling, size: int, time: DatabaseClock, *, fairly: bool
) -> tuple[int, int]:
    """One transaction; returns how many messages it looked at and how many left the schedule."""
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
                released, gone = await _transact(connection, settings, taken, ceiling.room(at.date()), at)
        except DatabaseUnavailable:
            ceiling.take(at.date(), min(size, ceiling.room(at.date())))  # it may be committed for all we know
            raise
        except Exception as error:
            if not taken:
                raise
            messages = [one.message_id for one in taken]
            _log.exception("release failed", messages=len(messages), first=str(messages[0]))
            raise BrokenBatch(messages) from error
    ceiling.take(at.date(), released)
    metrics.ACCEPTED.inc(released)
    return len(taken), gone


async def _transact(
    connection: Conn, settings: Settings, taken: Sequence[DueMessage], room: int, at: datetime
) -> tuple[int, int]:
    if not taken:
        return 0, 0
    locked = await heads.lock_counted(connection, {one.account_id for one in taken})
    await quota_usage.turn_all(connection, locked, at.date())
    in_order = sorted(taken, key=lambda one: (one.due_at, one.message_id))
    waiting = await _load(connection, [one for one in in_order if one.account_id in locked])
    grace = timedelta(seconds=settings.schedule_grace_s)
    verdicts: list[tuple[WaitingMessage, ReleaseDecision]] = []
    released = 0
    for one in waiting:
        head = locked[one.due.account_id]
        parent = None if head.parent_id is None else locked.get(head.parent_id)
        verdict = decide(one, head, room=room - released, at=at, grace=grace, parent=parent)
        released += verdict.status is Status.QUEUED
        head.scheduled -= verdict.status is not Status.SCHEDULED
        verdicts.append((one, verdict))
    known = {one.due.message_id for one in waiting}
    lost = [one for one in taken if one.message_id not in known]  # erased: there is nobody to tell
    for gone in lost:
        if gone.account_id in locked:
            locked[gone.account_id].scheduled -= 1
    await _write(connection, settings, verdicts, lost, at)
    await quota_usage.count_simulated(connection, _simulated(verdicts, domain_of(settings.mail_host), at))
    await append_locked(connection, locked, _entries(verdicts, at))
    return released, sum(verdict.status is not Status.SCHEDULED for _, verdict in verdicts)


async def _load(connection: Conn, taken: Sequence[DueMessage]) -> list[WaitingMessage]:
    """What is known of them, in their order; read under the heads' locks, so that a new standing is seen."""
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
        own, stream = recipients[one.message_id], rows[one.message_id]["stream"]
        hits = ((address, found.get((one.account_id, canonical(address)))) for _, address in own) if found else ()
        waiting.append(
            WaitingMessage(
                due=one,
                source=rows[one.message_id]["source"],
                stream=stream,
                from_domain=rows[one.message_id]["from_domain"],
                domain_status=rows[one.message_id]["domain_status"],
                recipients=own,
                suppressed=next(
                    ((address, why) for address, why in hits if why is not None and blocks(why, stream)), None
                ),
            )
        )
    return waiting


def decide(
    one: WaitingMessage, head: Head, *, room: int, at: datetime, grace: timedelta, parent: Head | None = None
) -> ReleaseDecision:
    """What becomes of a due message; counts it, on its parent too, when it is released. Pure but for that."""
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
        wait = timedelta(seconds=max(AGAIN_S, head.scheduled / AGAIN_PER_S))
        return ReleaseDecision(Status.SCHEDULED, None, {}, min(at + wait, end))
    if one.due.deliver_by is not None and one.due.deliver_by <= at:
        return _failed(one, {"reason": "deliver_by_passed", "deliver_by": clock.iso(one.due.deliver_by)})
    quota.take(head, at, parent)
    return ReleaseDecision(
        Status.QUEUED, EventType.ACCEPTED, {"scheduled": True, "scheduled_at": clock.iso(one.due.due_at)}
    )


def _shortage(head: Head, room: int, at: datetime, parent: Head | None) -> dict[str, object] | None:
    """Which allowance is used up, with its numbers; the platform's has none to show."""
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
    verdicts: Sequence[tuple[WaitingMessage, ReleaseDecision]], domain: str, at: datetime
) -> list[Simulated]:
    """Those that go out now, to the simulator's recipients alone."""
    return [
        Simulated(one.due.account_id, at.date(), messages=1)
        for one, verdict in verdicts
        if verdict.status is Status.QUEUED and all(address.endswith(f"@{domain}") for _, address in one.recipients)
    ]


def _entries(verdicts: Sequence[tuple[WaitingMessage, ReleaseDecision]], at: datetime) -> list[log.Entry]:
    return [
        log.Entry(
            one.due.account_id,
            verdict.kind,
            log.detail_text(verdict.detail),
            at,
            one.due.message_id,
            ids.format_id(ids.Kind.MESSAGE, one.due.message_id),
        )
        for one, verdict in verdicts
        if verdict.kind is not None
    ]


async def _write(
    connection: Conn,
    settings: Settings,
    verdicts: Sequence[tuple[WaitingMessage, ReleaseDecision]],
    lost: Sequence[DueMessage],
    at: datetime,
) -> None:
    leaving = [(one.message_id, Status.REJECTED.value) for one in lost]
    staying: list[tuple[UUID, datetime]] = []
    queued: list[QueuedRow] = []
    split = await splits.read(connection)
    for one, verdict in verdicts:
        message = one.due.message_id
        if verdict.look_at is not None:
            staying.append((message, verdict.look_at))
            continue
        leaving.append((message, verdict.status.value))
        if verdict.status is Status.QUEUED:
            queued += _queued(one, settings.shards, split)
    touched = [message for message, _ in leaving] or [UUID(int=0)]
    await _WRITE.run(
        connection, _LEAVING.of(leaving), _STAYING.of(staying), QUEUED.of(queued),
        low=min(touched), high=max(touched), at=at,
    )  # fmt: skip


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
        )
        for domain, group in by_domain(one.recipients).items()
    ]
