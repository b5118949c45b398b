"""Sum up what a batch of messages adds to account heads; a database function checks the sums and adds them. Pure."""

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
    """The sums that a batch adds to an account's head, and the values of the head that its decisions depend on.

    `max_today` and `max_this_month`: the limits in messages, None where there is none.
    """

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
    counts = []
    for account, head in sorted(after.items()):
        today = head.sent_today - before[account].sent_today
        this_month = head.sent_this_month - before[account].sent_this_month
        has_monthly_cap = head.parent_id is None or head.monthly_cap is not None
        max_today = quota.without_reserve(quota.daily_cap(head), reserve) if today > 0 else None
        max_this_month = quota.without_reserve(quota.monthly_cap(head), reserve) if has_monthly_cap else None
        counts.append(
            BatchCount(
                account, head.account_version, head.rung, head.day, head.month, today, this_month, max_today,
                max_this_month, events[account],
            )
        )  # fmt: skip
    return counts
