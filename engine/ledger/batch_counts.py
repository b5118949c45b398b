"""What a batch of messages adds to account heads, for a database function that checks and adds it. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Final
from uuid import UUID

from msgspec import Struct

from engine.ledger import log, quota
from engine.ledger.heads import AccountHead
from engine.store.row_sets import Column, RowSet


class BatchCount(Struct, frozen=True):
    """What a batch adds to one head, and what its decisions depend on. Limits are None where there is none."""

    account_id: UUID
    account_version: int
    rung: int
    day: date
    month: date
    today: int  # messages, as `this_month`
    this_month: int
    max_today: int | None
    max_this_month: int | None
    events: int


COUNTED: Final = RowSet(
    "counted", BatchCount,
    Column("account_id"), Column("account_version", "xid"), Column("rung", "smallint"), Column("day"), Column("month"),
    Column("today", "integer"), Column("this_month", "integer"), Column("max_today", "integer"),
    Column("max_this_month", "integer"), Column("events", "integer"),
)  # fmt: skip


def counted(
    before: Mapping[UUID, AccountHead],
    after: Mapping[UUID, AccountHead],
    entries: Iterable[log.Entry],
    *,
    reserve: float = 0.0,
) -> list[BatchCount]:
    """Return what the decisions on a batch changed on heads, and the limits that they must fit in, by account.

    `entries`: the events of the batch. `reserve`: the share of each limit that is kept for other mail.
    """
    events = Counter(entry.account_id for entry in entries)

    def left(cap: int) -> int:
        return quota.less(reserve, cap)

    return [
        BatchCount(
            account, head.account_version, head.rung, head.day, head.month,
            head.sent_today - before[account].sent_today, head.sent_this_month - before[account].sent_this_month,
            left(quota.daily_cap(head)) if head.sent_today > before[account].sent_today else None,
            left(quota.monthly_cap(head)) if head.parent_id is None or head.monthly_cap is not None else None,
            events[account],
        )
        for account, head in sorted(after.items())
    ]  # fmt: skip
