"""Count the outcomes of broadcasts from the account logs, also those that come days later, and stop bad broadcasts.

The counts follow the log of each account with a broadcast that runs or ended within some weeks, so that delivery does
no work for them. A message counts by its last outcome. Counts, the place in the log and a stop are one transaction.
"""

from collections import Counter
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
import orjson
import structlog
from msgspec import Struct

from engine.accounts.billing.change_plan import tell_managers
from engine.audience.broadcasts import rules, service, store
from engine.audience.broadcasts.start import WATCHED
from engine.audience.broadcasts.types import BroadcastCounts, StopReason
from engine.base import clock, ids
from engine.base.events import AccountEvent
from engine.people.system_mail.types import SystemMailKind
from engine.store.jobs import Job
from engine.store.queries import Conn, Queries

MAX_EVENTS: Final = 20_000  # of the log in one transaction
RECIPIENTS_KEPT: Final = timedelta(days=760)  # after the end: longer than any plan keeps messages; the counts stay
FILES_KEPT: Final = timedelta(days=30)  # after the end, for previews; each message has its own copy
MAX_FORGOTTEN: Final = 5_000  # recipients per statement
SKEW: Final = timedelta(days=1)  # the largest difference between the clocks of hosts that write one log

_WHY: Final = {
    StopReason.BOUNCE_RATE: f"more than {rules.MAX_BOUNCED:.0%} of its messages bounced",
    StopReason.COMPLAINT_RATE: f"more than {rules.MAX_COMPLAINED:.1%} of its recipients complained about it",
}

_log = structlog.get_logger("broadcasts")


class LogWatch(Struct, frozen=True):
    """The counted part of an account's log, and its end."""

    account_id: UUID
    after: int
    tip: int
    counted_at: datetime


_SQL = Queries.beside(__file__, "outcomes.sql")
_TAKE = _SQL.rows("take_watch", LogWatch)
_COUNT = _SQL.command("count_outcomes")
_OPT_OUTS = _SQL.command("opt_outs")
_ADD_OPT_OUTS = _SQL.command("add_opt_outs")
_ADVANCE = _SQL.command("advance_watch")
_END = _SQL.command("end_watches")


async def count_new(pool: asyncpg.Pool) -> int:
    """Count the new outcomes of all accounts with recent broadcasts; return how many steps that took.

    Several processes may run it.
    """
    steps = 0
    done: list[UUID] = []
    while True:
        async with pool.acquire() as connection, connection.transaction():
            watch = await _TAKE.first(connection, done)
            if watch is None:
                return steps
            upto = min(watch.tip, watch.after + MAX_EVENTS)
            await _count(connection, watch, upto)
        steps += 1
        if upto == watch.tip:
            done.append(watch.account_id)


async def forget_old(pool: asyncpg.Pool, at: datetime) -> None:
    """End the watch of accounts whose last broadcast ended weeks ago, and delete files and recipients of old ones."""
    await _END.execute(pool, WATCHED)
    while await store.remove_files(pool, at - FILES_KEPT):
        pass
    gone = MAX_FORGOTTEN
    while gone == MAX_FORGOTTEN:
        gone = await store.forget_recipients(pool, at - RECIPIENTS_KEPT, MAX_FORGOTTEN)


JOBS = (
    Job("broadcast outcomes", every_s=2, run=lambda pool, _: count_new(pool), share=0.2),
    Job("old broadcasts", every_s=3600, run=lambda pool, _: forget_old(pool, clock.now())),
)


async def _count(connection: Conn, watch: LogWatch, upto: int) -> None:
    """Count the events up to `upto` of an account whose watch is locked, and stop broadcasts that got bad."""
    oldest = ids.floor_of(clock.milliseconds(watch.counted_at - SKEW))
    changed = await _COUNT.records(connection, watch.account_id, watch.after, upto, oldest)
    await _count_opt_outs(connection, watch, upto, oldest)
    for broadcast in sorted(row["broadcast_id"] for row in changed):
        counts = await store.counts(connection, broadcast)
        why = rules.stop_reason(counts)
        if why is not None and await service.stop(connection, watch.account_id, broadcast, why, counts):
            await _tell(connection, watch.account_id, broadcast, why, counts)
            name = ids.format_id(ids.Kind.BROADCAST, broadcast)
            _log.warning("broadcast stopped", broadcast=name, because=why.value)
    await _ADVANCE.execute(connection, watch.account_id, upto)


async def _tell(connection: Conn, account: UUID, broadcast: UUID, why: StopReason, counts: BroadcastCounts) -> None:
    """Queue the mail to owners and admins about a broadcast that this transaction stops."""
    row = await store.FIND.first(connection, broadcast)
    assert row is not None
    await tell_managers(
        connection,
        account,
        SystemMailKind.BROADCAST_STOPPED,
        clock.now(),
        name=row.name,
        why=_WHY[why],
        settled=f"{counts.settled:,}",
        bounced=f"{counts.bounced:,}",
        complained=f"{counts.complained:,}",
        id=row.public_id,
    )


async def _count_opt_outs(connection: Conn, watch: LogWatch, upto: int, oldest: UUID) -> None:
    """Count the people who left through a broadcast's link, less those who came back."""
    people: Counter[UUID] = Counter()
    for event in await _OPT_OUTS.records(connection, watch.account_id, watch.after, upto, oldest):
        named = orjson.loads(event["payload"])["detail"].get("broadcast_id")
        if named is not None:
            step = 1 if event["type"] == AccountEvent.CONTACT_UNSUBSCRIBED else -1
            people[ids.parse_id(ids.Kind.BROADCAST, named)] += step
    if people:
        await _ADD_OPT_OUTS.execute(connection, watch.account_id, list(people), list(people.values()))
