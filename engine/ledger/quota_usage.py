"""Advance account heads to the present day, count simulated mail, and lease from the platform's ceiling.

Used by acceptance and by the release of scheduled messages.
"""

from collections.abc import Iterable
from datetime import date, timedelta
from uuid import UUID

from msgspec import Struct

from engine.ledger import quota
from engine.ledger.heads import AccountHead
from engine.store.queries import Conn, Queries, columns

_SQL = Queries.beside(__file__, "quota_usage.sql")
_DAY_COUNTS = _SQL.command("day_counts")
_LEASE = _SQL.command("lease_ceiling")
_LEFT = _SQL.command("left_of_ceiling")
_ADD_LEASED = _SQL.command("add_leased")
_COUNT_SIMULATED = _SQL.command("count_simulated")

LEASE_CHUNK = 1_000


class Simulated(Struct, frozen=True):
    """Simulated mail of an account's day: messages to simulator recipients alone, and their recipients by outcome."""

    account_id: UUID
    day: date
    messages: int = 0
    settled: int = 0
    bounced: int = 0
    complained: int = 0


async def advance_all(connection: Conn, locked: dict[UUID, AccountHead], day: date) -> None:
    """Advance locked heads to the day; reads the figures of the day before only for heads due for review."""
    reviewed = [account for account, head in locked.items() if quota.due_for_review(head, day)]
    counts = {}
    if reviewed:
        rows = await _DAY_COUNTS.records(connection, reviewed, day - timedelta(days=1))
        counts = {row["account_id"]: row for row in rows}
    for account, head in locked.items():
        row = counts.get(account)
        if row is None:
            quota.advance_to(head, day)
            continue
        quota.advance_to(
            head,
            day,
            bounced=row["bounced"],
            complained=row["complained"],
            settled=row["settled"],
            simulated=row["simulated"],
        )


async def count_simulated(connection: Conn, counts: Iterable[Simulated]) -> None:
    """Add to the counts of simulated mail, in the transaction that counts it as mail; the heads must be locked."""
    rows = [(one.account_id, one.day, one.messages, one.settled, one.bounced, one.complained) for one in counts]
    if rows:
        await _COUNT_SIMULATED.execute(connection, *columns(rows, 6))


class Ceiling:
    """A process's lease of the platform's daily ceiling."""

    def __init__(self, ceiling: int) -> None:
        self._ceiling = ceiling
        self._day: date | None = None
        self._left = 0

    def room(self, day: date) -> int:
        """Return how many messages this process may accept on that day without another lease."""
        return self._left if self._day == day else 0

    async def possible(self, connection: Conn, day: date) -> int:
        """Return how many messages this process could accept on that day if it leased all that is left; lease none."""
        rows = await _LEFT.records(connection, day, self._ceiling)
        return self.room(day) + max(0, int(rows[0]["left_over"]))

    async def reserve(self, connection: Conn, day: date, need: int) -> None:
        """Lease more if the room is smaller than `need`, in a transaction of its own."""
        if self.room(day) >= need:
            return
        async with connection.transaction():
            rows = await _LEASE.records(connection, day, need - self.room(day), LEASE_CHUNK, self._ceiling)
            granted = int(rows[0]["granted"])
            await _ADD_LEASED.execute(connection, day, granted)
        self._left = self.room(day) + granted
        self._day = day

    def take(self, day: date, count: int) -> None:
        """Count accepted messages against the lease."""
        if self._day == day:
            self._left -= count

    async def give_back(self, connection: Conn) -> None:
        """Return the unused part of the lease."""
        if self._day is not None and self._left:
            await _ADD_LEASED.execute(connection, self._day, -self._left)
            self._left = 0
