"""The rules that benches, drills and load tests check, and the check of an account log."""

from collections import defaultdict
from uuid import UUID

from msgspec import Struct

from engine.base.events import EventType
from engine.ledger import log
from engine.store.queries import Conn

_PAGE = 5_000


class Check(Struct, frozen=True):
    """A rule, whether it held, and what was found."""

    what: str
    ok: bool
    found: str

    @property
    def shown(self) -> str:
        """Return the check as a line of text."""
        return f"{'ok    ' if self.ok else 'BROKEN'} {self.what}: {self.found}"


class AccountLogSummary(Struct):
    """The result of reading an account log and recomputing its hashes."""

    events: int
    intact: bool  # hashes follow from one another, places without gap, the head is the last event
    accepted: int  # `accepted` events
    accepted_today: int  # of them on the UTC day that the account head counts
    accepted_twice: int  # messages with more than one
    sent_today: int
    broken_at: int = 0  # the place of the first event whose hash does not follow; 0: none

    @property
    def shown(self) -> str:
        """Return the number of events, and where the log is broken."""
        return f"{self.events} events" + (f", broken at {self.broken_at}" if self.broken_at else "")

    def checks(self, accepted: int) -> list[Check]:
        """Check that the log is intact, and that its events and the daily counter match `accepted` messages."""
        whole = self.intact and not self.accepted_twice
        counted = accepted == self.accepted and self.accepted_today == self.sent_today
        counts = f"{accepted} accepted, {self.accepted} events, {self.sent_today} counted today"
        return [
            Check("the account log is intact", whole, self.shown),
            Check("events and the daily counter match the accepted messages", counted, counts),
        ]


async def read_account_log(connection: Conn, account: UUID) -> AccountLogSummary:
    """Recompute the hash chain of an account's log from its first event; `connection` must be in no transaction."""
    # One snapshot: events are appended between two statements while mail is still under way.
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        return await _read(connection, account)


async def _read(connection: Conn, account: UUID) -> AccountLogSummary:
    last, events, broken_at, day = bytes(32), 0, 0, ""
    accepted: dict[UUID, int] = defaultdict(int)
    days: dict[str, int] = defaultdict(int)
    more = True
    while more:
        rows = await connection.fetch(
            "SELECT seq, type, message_id, occurred_at, payload, hash FROM events"
            " WHERE account_id = $1 AND seq > $2 ORDER BY seq LIMIT $3",
            account, events, _PAGE,
        )  # fmt: skip
        more = len(rows) == _PAGE
        for row in rows:
            last = log.chained(last, events + 1, row["occurred_at"], row["payload"])
            if not broken_at and (row["seq"] != events + 1 or row["hash"] != last):
                broken_at = events + 1
            events = row["seq"]
            if row["type"] == EventType.ACCEPTED:
                accepted[row["message_id"]] += 1
                day = max(day, str(row["occurred_at"])[:10])  # as the head counts: a day that is over stays over
                days[day] += 1
    head = await connection.fetchrow(
        "SELECT seq, hash, day, sent_today FROM account_heads WHERE account_id = $1", account
    )
    return AccountLogSummary(
        events=events,
        intact=not broken_at and head is not None and head["seq"] == events and head["hash"] == last,
        accepted=sum(accepted.values()),
        accepted_today=0 if head is None else days[str(head["day"])],
        accepted_twice=sum(count > 1 for count in accepted.values()),
        sent_today=0 if head is None else head["sent_today"],
        broken_at=broken_at,
    )
