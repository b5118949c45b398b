"""Read failed deliveries from the account log.

A page reads at most MAX_READ events of the index of bounces, so that a filter that few match costs no more: the page
may then be short, or empty, and its cursor leads on.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from engine.base import clock, ids
from engine.sending.bounces.types import BounceFilters, BounceRow, BounceRows, ClassCount, ClassCounts, ReadRange
from engine.store.queries import Queries, Source

# A server that refuses everybody for an hour must not cost good addresses: ops/decisions/0025.
REPEATS_AFTER: Final = timedelta(days=1)

MAX_READ: Final = 2_000
MAX_COUNTED: Final = 10_000
MAX_MESSAGES, MAX_EVENTS = 50, 200  # of the history of an address
_SKEW = timedelta(days=1)  # the largest difference between the clocks of hosts that write one log
_NEWEST = 2**63 - 1

_SQL = Queries.beside(__file__)
_RANGE = _SQL.rows("range_of_page", ReadRange)
_LIST = _SQL.rows("list_bounces", BounceRow)
_CLASSES = _SQL.rows("count_classes", ClassCount)
_MESSAGES = _SQL.command("messages_to")
_HISTORY = _SQL.rows("history_of", BounceRow)
_UNEXPLAINED = _SQL.command("unexplained_until")


async def page(source: Source, account: UUID, wanted: BounceFilters, *, before: int | None, limit: int) -> BounceRows:
    """Return at most `limit` bounces that match, older than the event with the number `before`."""
    arguments = _arguments(account, before, wanted)
    found = await _RANGE.first(source, *arguments, MAX_READ)
    assert found is not None
    rows = await _LIST.fetch(source, *arguments, MAX_READ, limit + 1)
    if len(rows) > limit:
        return BounceRows(rows[:limit], rows[limit - 1].seq)
    return BounceRows(rows, found.lowest if found.events == MAX_READ else None)


async def classes(source: Source, account: UUID, wanted: BounceFilters) -> ClassCounts:
    """Return the counts by class of the newest MAX_COUNTED bounces of the period that match."""
    arguments = _arguments(account, None, wanted)
    found = await _RANGE.first(source, *arguments, MAX_COUNTED)
    assert found is not None
    rows = await _CLASSES.fetch(source, *arguments, MAX_COUNTED)
    return ClassCounts(rows, sum(row.bounces for row in rows), found.events < MAX_COUNTED)


async def history(source: Source, account: UUID, address: str) -> list[BounceRow]:
    """Return what happened to the newest messages to an address (lower case), newest first."""
    messages = [row["message_id"] for row in await _MESSAGES.records(source, account, address, MAX_MESSAGES)]
    if not messages:
        return []
    made_at = clock.at_milliseconds(ids.milliseconds_of(messages[-1]))
    first_event = ids.floor_of(clock.milliseconds(made_at - _SKEW))
    return await _HISTORY.fetch(source, account, address, messages, first_event, MAX_EVENTS)


async def unexplained_before(
    source: Source, recipients: Collection[tuple[UUID, str]], at: datetime
) -> set[tuple[UUID, str]]:
    """Return those of (account, address in lower case) that bounced without a reason REPEATS_AFTER before `at`."""
    if not recipients:
        return set()
    accounts, addresses = [one[0] for one in recipients], [one[1] for one in recipients]
    rows = await _UNEXPLAINED.records(source, accounts, addresses, at - REPEATS_AFTER)
    return {(row["account_id"], row["address"]) for row in rows}


def _arguments(account: UUID, before: int | None, wanted: BounceFilters) -> tuple[object, ...]:
    return (
        account, _NEWEST if before is None else before, wanted.type, wanted.category, wanted.scope,
        wanted.recipient_domain, wanted.domains, wanted.streams, wanted.since, wanted.until,
    )  # fmt: skip
