"""Count deliveries from the account logs, and read their rates and times.

The counts follow each account's log, so that delivery itself does no work for them. A reader first counts the last
events of its account, unless there are many.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.base.events import EventType
from engine.receiving.analytics import delivery_rules, histogram, rules, waits
from engine.receiving.analytics.delivery_rules import CountedMessage, GroupCounts, RecordedMessages
from engine.receiving.analytics.rules import KEPT_DAYS, MAX_DAYS
from engine.receiving.analytics.types import CountedEvent, DeliveryFiguresRow, DeliverySums, DeliveryWanted, GroupBy
from engine.store.jobs import Job
from engine.store.queries import Conn, Queries, Source, WideQuery
from engine.store.row_sets import Column, RowSet

# Counting 2,000 events takes about 30 ms: a reader does that itself. More wait for the worker.
MANY_EVENTS = 2_000
BUSY_EVERY, QUIET_EVERY = timedelta(seconds=20), timedelta(minutes=10)
MAX_EVENTS = 20_000  # per transaction: the second for which the account's record is locked
PAGE = 500  # events, or groups, at once: each takes about 2 ms of the event loop, which other jobs share
BUDGET_S = 20.0
MAX_FORGOTTEN = 5_000  # groups per statement
_SKEW = timedelta(days=1)  # the largest difference between the clocks of hosts that write one log


class UncountedLog(Struct, frozen=True):
    """The distance between the counts of an account and the end of its log."""

    account_id: UUID
    after: int
    tip: int
    counted_at: datetime


class _AcceptedAt(Struct, frozen=True):
    message_id: UUID
    occurred_at: datetime


class _MessageAddresses(Struct, frozen=True):
    message_id: UUID
    addresses: list[str]


class _NamedTimes(Struct, frozen=True):
    """The stored histograms of a name, one behind another."""

    name: str
    times: bytes


_KEY = [Column(name) for name in ("tag", "day", "domain", "stream", "from_domain")]
_COUNTS = [Column(name, "integer") for name in ("deliveries", "delivered", "bounced", "failed", "complained")]
COUNTED = RowSet("counted", GroupCounts, *_KEY, *_COUNTS, Column("times"))
WANTED = RowSet("wanted", GroupCounts, *_KEY)

_SQL = Queries.beside(__file__, "delivery.sql")
_OPEN = _SQL.command("open_counts")
_OPEN_ONE = _SQL.command("open_one")
_DUE = _SQL.rows("take_due", UncountedLog)
_ONE = _SQL.rows("take_one", UncountedLog)
_BEHIND = _SQL.command("behind")
_EVENTS = _SQL.rows("events_after", CountedEvent)
_MESSAGES = _SQL.rows("messages_counted", CountedMessage)
_ACCEPTED = _SQL.rows("accepted_at", _AcceptedAt)
_RECIPIENTS = _SQL.rows("recipients_counted", _MessageAddresses)
_HISTORY = _SQL.rows("history_of", CountedEvent)
_DAYS = (_SQL.wide("times_of", WANTED), _SQL.wide("add_groups", COUNTED))
_WEEKS = (_SQL.wide("week_times_of", WANTED), _SQL.wide("add_weeks", COUNTED))
_PROVIDERS = (_SQL.wide("provider_times_of", WANTED), _SQL.wide("add_providers", COUNTED))
_ADVANCE = _SQL.command("advance")
_GROUPS = {
    GroupBy.DOMAIN: _SQL.rows("groups_by_domain", DeliverySums),
    GroupBy.TAG: _SQL.rows("groups_by_tag", DeliverySums),
}
_TIMES = {
    GroupBy.DOMAIN: _SQL.rows("times_by_domain", _NamedTimes),
    GroupBy.TAG: _SQL.rows("times_by_tag", _NamedTimes),
}
_FORGET = (_SQL.command("forget_groups"), _SQL.command("forget_weeks"), _SQL.command("forget_providers"), waits.FORGET)


async def count_ahead(pool: asyncpg.Pool, *, everything: bool = False, budget_s: float = BUDGET_S) -> bool:
    """Count what is due, in steps; several processes may run it. Return False if `budget_s` was used up.

    `everything` counts every account to the end of its log.
    """
    await _OPEN.execute(pool)
    ends = time.monotonic() + budget_s
    while time.monotonic() < ends:
        at = clock.now()
        quiet, busy = (at + timedelta(days=1),) * 2 if everything else (at - QUIET_EVERY, at - BUSY_EVERY)
        async with pool.acquire() as connection, connection.transaction():
            due = await _DUE.first(connection, quiet, MANY_EVENTS, busy)
            if due is None:
                return True
            await _count(connection, due, at)
    return False


JOB = Job("deliveries", every_s=10, run=lambda pool, _: count_ahead(pool), share=0.2)


async def count_rest(pool: asyncpg.Pool, account: UUID) -> None:
    """Count the last events of one account, unless there are over MANY_EVENTS; those are left to the worker."""
    rows = await _BEHIND.records(pool, account)
    if not rows or not 0 < rows[0]["events"] <= MANY_EVENTS:
        return
    async with pool.acquire() as connection, connection.transaction():
        await _OPEN_ONE.execute(connection, account)
        due = await _ONE.first(connection, account)
        if due is not None and 0 < due.tip - due.after <= MANY_EVENTS:
            await _count(connection, due, clock.now())


async def _count(connection: Conn, due: UncountedLog, at: datetime) -> None:
    """Count the next events of an account whose record is locked."""
    upto = min(due.tip, due.after + MAX_EVENTS)
    oldest = _floor(max(due.counted_at - _SKEW, at - timedelta(days=KEPT_DAYS)))
    counter = delivery_rules.DeliveryCounter(at.date() - timedelta(days=KEPT_DAYS))
    for after in range(due.after, upto, PAGE):
        events = await _EVENTS.fetch(connection, due.account_id, after, min(after + PAGE, upto), oldest)
        if events:
            counter.add(events, await _recorded(connection, events))
    await add(connection, due.account_id, counter.groups())
    await _add(connection, due.account_id, counter.by_provider(), _PROVIDERS)
    await waits.add(connection, due.account_id, counter.waits.counts())
    await _ADVANCE.execute(connection, due.account_id, upto, at if upto == due.tip else due.counted_at)


async def _recorded(connection: Conn, events: Sequence[CountedEvent]) -> RecordedMessages:
    """Read what is stored about the messages of the events."""
    wanted = sorted({event.message_id for event in events})
    bounds, since = (wanted[0], wanted[-1]), first_event_id(wanted)
    messages = {one.id: one for one in await _MESSAGES.fetch(connection, wanted, *bounds)}
    accepted = {one.message_id: one.occurred_at for one in events if one.type == EventType.ACCEPTED}
    if unknown := [one for one in wanted if one not in accepted]:
        found = await _ACCEPTED.fetch(connection, unknown, first_event_id(unknown))
        accepted |= {one.message_id: one.occurred_at for one in found}
    recipients = {one.message_id: one.addresses for one in await _RECIPIENTS.fetch(connection, wanted, *bounds)}
    revised = {one.message_id for one in events if delivery_rules.revises(one)}
    history: dict[UUID, list[CountedEvent]] = {}
    if revised:
        for event in await _HISTORY.fetch(connection, sorted(revised), since):
            history.setdefault(event.message_id, []).append(event)
    return RecordedMessages(messages, accepted, recipients, history)


async def add(connection: Conn, account: UUID, groups: Sequence[GroupCounts]) -> None:
    """Add to the counts by day and by week of an account whose record is locked."""
    for first in range(0, len(groups), PAGE):
        page = groups[first : first + PAGE]
        await _add(connection, account, page, _DAYS)
        await _add(connection, account, delivery_rules.by_week(page), _WEEKS)


async def _add(
    connection: Conn, account: UUID, groups: Sequence[GroupCounts], table: tuple[WideQuery, WideQuery]
) -> None:
    """Add to the counts and histograms of an account whose record is locked."""
    times_of, add = table
    timed = [one for one in groups if one.samples]
    found = await times_of.run(connection, WANTED.of(timed), account=account) if timed else []
    stored = {(tag, day, domain, stream, sender): times for tag, day, domain, stream, sender, times in found}
    for one in timed:
        one.times = histogram.added(stored.get(one.key, b""), one.samples)
    if groups:
        await add.run(connection, COUNTED.of(groups), account=account)


async def rows(
    source: Source, account: UUID, wanted: DeliveryWanted, *, limit: int, offset: int
) -> tuple[list[DeliveryFiguresRow], bool]:
    """Return a page of rows, those with the most deliveries first, and whether more follow."""
    period = wanted.period
    # Pairs of a domain with a tag have no sums over weeks.
    pairs = wanted.by is GroupBy.DOMAIN and wanted.tag is not None
    weeks = (period.until + timedelta(days=1),) * 2 if pairs else rules.whole_weeks(period)
    conditions = (
        account, period.since, *weeks, period.until, wanted.tag or "", wanted.streams, wanted.from_domains,
    )  # fmt: skip
    found = await _GROUPS[wanted.by].fetch(source, *conditions, limit + 1, offset)
    page = found[:limit]
    times = await _times(source, wanted.by, conditions, [one.name for one in page])
    return [_row(one, times.get(one.name, {})) for one in page], len(found) > limit


async def _times(
    source: Source, by: GroupBy, conditions: tuple[object, ...], names: Collection[str]
) -> dict[str, dict[int, int]]:
    """Return the merged histogram of each name."""
    if not names:
        return {}
    found = await _TIMES[by].fetch(source, *conditions, list(names))
    merged = await histogram.merged_times([one.times for one in found])
    return dict(zip([one.name for one in found], merged, strict=True))


def _row(sums: DeliverySums, samples: Mapping[int, int]) -> DeliveryFiguresRow:
    settled = sums.delivered + sums.complained + sums.bounced + sums.failed
    return DeliveryFiguresRow(
        sums=sums,
        settled=settled,
        delivery_rate=round((sums.delivered + sums.complained) / settled, 6) if settled else None,
        p50_ms=histogram.percentile(samples, 0.5),
        p95_ms=histogram.percentile(samples, 0.95),
        samples=sum(samples.values()),
    )


async def forget(source: Source, before: date) -> None:
    """Delete the counts of days before `before`; an agreement on more days than MAX_DAYS keeps as many more."""
    for forget_some in _FORGET:
        gone = MAX_FORGOTTEN
        while gone == MAX_FORGOTTEN:
            (row,) = await forget_some.records(source, before, MAX_FORGOTTEN, MAX_DAYS)
            gone = row["groups"]


def first_event_id(messages: Sequence[UUID]) -> UUID:
    """Return the smallest id that an event of these messages (ascending) may have."""
    return ids.floor_of(ids.milliseconds_of(messages[0]) - _SKEW // timedelta(milliseconds=1))


def _floor(at: datetime) -> UUID:
    return ids.floor_of(clock.milliseconds(at))
