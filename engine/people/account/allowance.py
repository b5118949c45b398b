"""Compute what an account may still send, by the counts and limits that its next send will meet."""

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from engine.ledger import heads, quota
from engine.ledger.heads import AccountHead
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "allowance.sql")


class _DayCounts(Struct):
    bounced: int
    complained: int
    settled: int
    simulated: int


_SETTLED_ON = _SQL.rows("settled_on", _DayCounts)


class Allowance(Struct, frozen=True, kw_only=True):
    """Counts of accepted messages by UTC day and calendar month, with their limits."""

    daily_limit: int
    sent_today: int
    rung: int
    monthly_limit: int
    sent_this_month: int
    left_of_parent: int | None = None  # remaining messages of the parent account's month, if it has a parent

    @property
    def remaining_today(self) -> int:
        """Return the messages left today; 0 if the limit was lowered below the count."""
        return max(0, self.daily_limit - self.sent_today)

    @property
    def remaining_this_month(self) -> int:
        """Return the messages left this month, at least 0."""
        own = max(0, self.monthly_limit - self.sent_this_month)
        return own if self.left_of_parent is None else min(own, self.left_of_parent)


async def read(connection: Conn, account: UUID, at: datetime) -> Allowance:
    """Return the allowance at `at` as the next send would see it, without writing.

    A sub-account has at most what its parent has left of the month. The stored head is as of the last send; this
    advances a copy to today by the same rules as acceptance, including the warm-up review of the day before.
    """
    head = await heads.read(connection, account)
    if head is None:
        raise LookupError(f"account {account} has no head")
    counts = None
    if quota.due_for_review(head, at.date()):
        counts = await _SETTLED_ON.first(connection, account, at.date() - timedelta(days=1))
    counts = counts or _DayCounts(0, 0, 0, 0)
    quota.advance_to(
        head,
        at.date(),
        bounced=counts.bounced,
        complained=counts.complained,
        settled=counts.settled,
        simulated=counts.simulated,
    )
    own = Allowance(
        daily_limit=quota.daily_cap(head),
        sent_today=head.sent_today,
        rung=head.rung,
        monthly_limit=quota.monthly_cap(head),
        sent_this_month=head.sent_this_month,
    )
    return own if head.parent_id is None else await _below(connection, own, head, head.parent_id, at)


async def _below(connection: Conn, own: Allowance, head: AccountHead, parent_id: UUID, at: datetime) -> Allowance:
    """Limit a sub-account's allowance to what its parent has left of the month."""
    parent = await heads.read(connection, parent_id)
    if parent is None:
        return own
    quota.advance_to(parent, at.date())
    left = max(0, quota.monthly_cap(parent) - parent.sent_this_month)
    return replace(own, monthly_limit=quota.monthly_cap(head, parent), left_of_parent=left)
