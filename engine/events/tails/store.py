"""Claim slots for tails, read pages of the account log, and pull events."""

import math
from collections.abc import Collection
from typing import Final
from uuid import UUID

from msgspec import Struct

from engine.base import ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.events.tails import rules
from engine.events.tails.types import EndsRow, Event, HolderRow, PullRow, SlotRow, StepRow, TailRow
from engine.store.queries import Queries, Source

MAX_TAILS: Final = 5  # open tails of an account, over all processes
SPAN: Final = 20_000  # max. events that one pull scans for rare types
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
_LOG = _SQL.rows("log_page", PullRow)


class TailSlot(Struct, frozen=True):
    """A slot for a live tail of an account, and the reader that holds it."""

    account: UUID
    slot: int
    holder: UUID


class LogPage(Struct, frozen=True):
    """Consecutive events with their seqs; None stands for an event of the account."""

    places: list[int]
    events: list[Event | None]
    last_id: UUID


class PullPage(Struct, frozen=True):
    """Pulled events, oldest first, and the seq to continue after.

    `purged_through` is the last seq that retention has deleted.
    """

    rows: list[PullRow]
    after: int
    has_more: bool
    purged_through: int


async def claim(source: Source, account: UUID, lease_s: float) -> TailSlot:
    """Claim a slot for one more tail; raise the 429 if all slots of the account are taken."""
    holder = ids.uuid7()
    for _ in range(2 * MAX_TAILS):
        found = await _CLAIM.first(source, account, holder, MAX_TAILS, lease_s)
        if found is None or found.tried is None:
            break
        if found.slot is not None:
            return TailSlot(account, found.slot, holder)
    raise Refusal(
        ErrorType.TOO_MANY_STREAMS,
        f"You have {MAX_TAILS} open live tails, the limit. Close one, or share one.",
        retry_after_s=math.ceil(lease_s) + 1,  # the slots of a crashed process are free by then
        limit=MAX_TAILS,
    )


async def renew(source: Source, places: Collection[TailSlot], lease_s: float) -> set[UUID]:
    """Renew the leases of these slots; return the holders that still have theirs."""
    rows = await _RENEW.fetch(
        source,
        [place.account for place in places],
        [place.slot for place in places],
        [place.holder for place in places],
        lease_s,
    )
    return {row.holder for row in rows}


async def release(source: Source, place: TailSlot) -> None:
    """Release a slot."""
    await _RELEASE.execute(source, place.account, place.slot, place.holder)


async def ends(source: Source, accounts: Collection[UUID]) -> list[EndsRow]:
    """Return the ends of these accounts' logs."""
    return await _ENDS.fetch(source, list(accounts))


async def end(source: Source, account: UUID) -> EndsRow:
    """Return the end of one account's log; raise the 404 if the account does not exist."""
    found = await ends(source, [account])
    if not found:
        raise not_found("account")
    return found[0]


async def page(source: Source, account: UUID, after: int, through: int, since: UUID = FIRST) -> LogPage | None:
    """Return up to PAGE events after seq `after`, up to seq `through`; None if there are none.

    `since` is a lower bound of their ids that prunes old partitions. If events are missing, reads again without it;
    what is missing then was purged. The page is a range of seqs, so its cost does not depend on the plan that
    PostgreSQL chooses.
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


async def log_page(source: Source, account: UUID, after: int, through: int, since: UUID = FIRST) -> list[PullRow]:
    """Return up to PAGE events of all types, without fields of messages; the arguments are those of `page`."""
    through = min(through, after + PAGE)
    rows = await _LOG.fetch(source, account, after, through, since)
    if since != FIRST and [row.seq for row in rows] != list(range(after + 1, through + 1)):
        rows = await _LOG.fetch(source, account, after, through, FIRST)
    return rows


async def pull(source: Source, account: UUID, *, after: int, limit: int, types: list[str] | None) -> PullPage:
    """Return at most `limit` events after seq `after`; possibly fewer, with more to come, if few of many match."""
    found = await end(source, account)
    start = min(max(after, found.purged_through_seq), found.seq)
    through = min(found.seq, start + (limit if types is None else SPAN))
    rows = await _PULL.fetch(source, account, start, through, limit + 1, types) if start < through else []
    shown = rows[:limit]
    reached = shown[-1].seq if len(rows) > limit else through
    return PullPage(shown, reached, reached < found.seq, found.purged_through_seq)
