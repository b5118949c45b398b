"""Places for tails, pages of the log for tails, and the pull of events."""

import math
from collections.abc import Collection
from typing import Final
from uuid import UUID

from msgspec import Struct

from engine.areas.tails import rules
from engine.areas.tails.types import EndsRow, Event, HolderRow, PullRow, SlotRow, StepRow, TailRow
from engine.base import ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.store.queries import Queries, Source

MAX_TAILS: Final = 5  # tails of an account at once, whichever workers serve them
SPAN: Final = 20_000  # places one pull looks through at the most: a rare type must not cost a walk through the log
PAGE: Final = 100  # events of `tail_page`
FIRST: Final = UUID(int=0)

_SQL = Queries.beside(__file__)
_CLAIM = _SQL.rows("claim_slot", SlotRow)
_RENEW = _SQL.rows("renew_slots", HolderRow)
_RELEASE = _SQL.command("release_slot")
_ENDS = _SQL.rows("read_ends", EndsRow)
_PAGE = _SQL.rows("tail_page", TailRow)
_STEPS = _SQL.rows("read_steps", StepRow)
_PULL = _SQL.rows("pull_page", PullRow)


class TailSlot(Struct, frozen=True):
    """One of an account's places for tails, and who holds it."""

    account: UUID
    slot: int
    holder: UUID


class LogPage(Struct, frozen=True):
    """Events one after another with their places; None for an event that is the account's own."""

    places: list[int]
    events: list[Event | None]
    last_id: UUID


class PullPage(Struct, frozen=True):
    """Events oldest first, the place to go on behind, whether more wait there, and what retention has taken."""

    rows: list[PullRow]
    after: int
    has_more: bool
    purged_through: int


async def claim(source: Source, account: UUID, lease_s: float) -> TailSlot:
    """A place for one more tail; raises 429 when the account has as many as it may."""
    holder = ids.uuid7()
    for _ in range(2 * MAX_TAILS):
        found = await _CLAIM.first(source, account, holder, MAX_TAILS, lease_s)
        if found is None or found.tried is None:
            break
        if found.slot is not None:
            return TailSlot(account, found.slot, holder)
    raise Refusal(
        ErrorType.TOO_MANY_STREAMS,
        f"This account has {MAX_TAILS} live tails open, as many as it may. Close one, or share one among readers.",
        retry_after_s=math.ceil(lease_s) + 1,  # by then the places of a worker that died are free
        limit=MAX_TAILS,
    )


async def renew(source: Source, places: Collection[TailSlot], lease_s: float) -> set[UUID]:
    """Hold these places for another lease; gives the holders that have kept theirs."""
    rows = await _RENEW.fetch(
        source,
        [place.account for place in places],
        [place.slot for place in places],
        [place.holder for place in places],
        lease_s,
    )
    return {row.holder for row in rows}


async def release(source: Source, place: TailSlot) -> None:
    """Give a place back."""
    await _RELEASE.execute(source, place.account, place.slot, place.holder)


async def ends(source: Source, accounts: Collection[UUID]) -> list[EndsRow]:
    """Where these accounts' logs end."""
    return await _ENDS.fetch(source, list(accounts))


async def end(source: Source, account: UUID) -> EndsRow:
    """Where one account's log ends."""
    found = await ends(source, [account])
    if not found:
        raise not_found("account")
    return found[0]


async def page(source: Source, account: UUID, after: int, through: int, since: UUID = FIRST) -> LogPage | None:
    """The events at the `PAGE` places behind `after`, up to `through`; None when there are none at all.

    `since` is a bound on their ids that spares old partitions; should it spare too much, places are missing, and
    everything is asked for. What is missing then is gone: taken by retention, or by somebody who broke the log.
    The page is a range of places, so that it costs the same whatever plan Postgres takes.
    """
    through = min(through, after + PAGE)
    rows = await _PAGE.fetch(source, account, after, through, since)
    if since != FIRST and [row.seq for row in rows] != list(range(after + 1, through + 1)):
        rows = await _PAGE.fetch(source, account, after, through, FIRST)
    if not rows:
        return None
    messages = rules.with_history(rows)
    steps: list[StepRow] = []
    if messages:
        oldest = min(ids.milliseconds_of(message) for message in messages)
        steps = await _STEPS.fetch(source, account, messages, rows[-1].seq, rules.bound(oldest))
    return LogPage([row.seq for row in rows], list(rules.events(rows, steps)), rows[-1].id)


async def pull(source: Source, account: UUID, *, after: int, limit: int, types: list[str] | None) -> PullPage:
    """At most `limit` events behind `after`; fewer, with more behind them, where few of many match."""
    found = await end(source, account)
    start = min(max(after, found.purged_through_seq), found.seq)
    through = min(found.seq, start + (limit if types is None else SPAN))
    rows = await _PULL.fetch(source, account, start, through, limit + 1, types) if start < through else []
    shown = rows[:limit]
    reached = shown[-1].seq if len(rows) > limit else through
    return PullPage(shown, reached, reached < found.seq, found.purged_through_seq)
