"""Read the account log for the audit: list pages, export, verify the whole hash chain.

No read holds a transaction open: the end of the log is read first, and later events are ignored.
"""

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

from msgspec import Struct

from engine.accounts.audit import rules
from engine.accounts.audit.types import (
    LAST_ID,
    ChainBreak,
    ChainVerdict,
    CheckedPage,
    ExportRow,
    HashRow,
    ListRow,
    LogHead,
    NamedRow,
    Position,
    Range,
    ReachedRow,
)
from engine.base import clock
from engine.base.errors import existing
from engine.store.queries import Queries, Source

# Event numbers have no gaps, so a page is a range of them. A range costs the same with any plan; with an open end,
# a plan that sorts would read the rest of the log for each page.
CHECKED, EXPORTED = 1_000, 200
SPAN: Final = 20_000  # max. events that one page scans for rare types

_SQL = Queries.beside(__file__)
_HEAD = _SQL.rows("read_log_head", LogHead)
_CHECK = _SQL.rows("check_page", CheckedPage)
_EXPORT = _SQL.rows("export_page", ExportRow)
_LIST = _SQL.rows("list_page", ListRow)
_HASHES = _SQL.rows("hashes_at", HashRow)
_NAMED = _SQL.rows("named_erased", NamedRow)
_REACHED = _SQL.rows("reached", ReachedRow)


class AuditRows(Struct, frozen=True):
    """Events, newest first, the hashes before them, and the number to continue before (None: no more)."""

    rows: list[ListRow]
    previous: dict[int, bytes]
    before: int | None


async def head(source: Source, account: UUID) -> LogHead:
    """Return both ends of an account's log; raise the 404 if there is no such account."""
    return existing(await _HEAD.first(source, account), "account")


async def page(
    source: Source,
    account: UUID,
    *,
    limit: int,
    before: int | None,
    type_: str | None,
    times: Range,
    by: Literal["people", "keys"] | None = None,
) -> AuditRows:
    """Return at most `limit` events; possibly fewer, with more to come, if few of many match."""
    ends = await head(source, account)
    low, high = await _bounds(source, account, ends, times)
    if before is not None:
        high = min(high, before - 1)
    narrowed = type_ is not None or by is not None or times != Range()
    floor = max(low, high - (SPAN - 1 if narrowed else limit))
    if high < low:
        return AuditRows([], {}, None)
    rows = await _LIST.fetch(
        source, account, high, floor, limit + 1, type_, times.since, times.until, rules.actor_pattern(by)
    )
    shown = rows[:limit]
    next_before = shown[-1].seq if len(rows) > limit else (floor if floor > low else None)
    return AuditRows(shown, await _previous(source, account, ends, rows, shown), next_before)


async def verify(source: Source, account: UUID) -> ChainVerdict:
    """Verify the whole chain, from the first event that retention has kept to the current end."""
    as_of = clock.now()
    ends = await head(source, account)
    at = Position(ends.purged_through_seq, LAST_ID, ends.purged_hash)
    events, erased, known = 0, 0, ErasedEntries(source, account)
    while True:  # until a page is empty: the last number of a page may occur twice
        found = await _CHECK.first(source, account, at.seq, at.id, min(ends.seq, at.seq + CHECKED), at.hash)
        assert found is not None
        broken = rules.earliest(_broken(found, at, ends), rules.unnamed(await known.first_unnamed(found.erased)))
        if broken is not None:
            moved = await _moved_start(source, account, at)
            if moved is None:
                events += max(0, broken.at - 1 - at.seq)
                break
            at = moved
        elif found.last_seq is None or found.last_id is None:
            break
        else:
            events += found.events
            erased += len(found.erased)
            at = Position(found.last_seq, found.last_id, found.last_hash)
    broken = broken or rules.end_of(ends.seq, ends.hash, at.seq, at.hash)
    return ChainVerdict(rules.earliest(broken, rules.stray(ends.stray)), events, ends, as_of, erased)


class ErasedEntries:
    """The numbers of the events that erasures name, for one verification; read when first needed."""

    def __init__(self, source: Source, account: UUID) -> None:
        self._source = source
        self._account = account
        self._named: set[int] = set()

    async def first_unnamed(self, seqs: list[int]) -> int | None:
        """Return the first of these events without payload that no erasure names, reading again for new erasures."""
        if self._named.issuperset(seqs):
            return None
        self._named = rules.named(await _NAMED.fetch(self._source, self._account))
        return min((seq for seq in seqs if seq not in self._named), default=None)


class Export:
    """A running export: its position, the number of events and the first break found."""

    def __init__(self, source: Source, account: UUID, ends: LogHead, times: Range) -> None:
        self._source = source
        self._account = account
        self._times = times
        self._whole = times.since is None and times.until is None
        self.head = ends
        self.events = 0
        self.broken: ChainBreak | None = None
        self._erased = ErasedEntries(source, account)

    async def pages(self) -> AsyncGenerator[list[ExportRow], None]:
        """Yield pages of events in the requested time range, oldest first; memory holds one page."""
        at, last = await self._start()
        while True:
            through = min(last, at.seq + EXPORTED)
            rows = await _EXPORT.fetch(
                self._source, self._account, at.seq, at.id, through, at.hash, self._times.since, self._times.until
            )
            if not (rows and rows[0].sound):
                moved = await _moved_start(self._source, self._account, at)
                if moved is not None:
                    at = moved
                    continue
            if not rows and at.seq >= last:
                break
            if not rows:
                self._note(rules.missing(at.seq + 1))
                at = Position(through, LAST_ID, None)
                continue
            for row in rows:
                self._judge(row)
            self._note(
                rules.unnamed(await self._erased.first_unnamed([row.seq for row in rows if row.payload is None]))
            )
            inside = [row for row in rows if row.inside]
            self.events += len(inside)
            yield inside
            at = Position(rows[-1].seq, rows[-1].id, rows[-1].hash)
        if self._whole:
            self._note(rules.end_of(self.head.seq, self.head.hash, at.seq, at.hash))
            self._note(rules.stray(self.head.stray))

    async def _start(self) -> tuple[Position, int]:
        low, high = await _bounds(self._source, self._account, self.head, self._times)
        if low == self.head.purged_through_seq + 1:
            return Position(low - 1, LAST_ID, self.head.purged_hash), high
        found = await _HASHES.first(self._source, self._account, [low - 1])
        return Position(low - 1, LAST_ID, None if found is None else found.hash), high

    def _judge(self, row: ExportRow) -> None:
        if not row.sound:
            self._note(rules.unsound(row.seq, row.before))
        elif rules.is_misnamed(row):
            self._note(rules.changed(row.seq))

    def _note(self, found: ChainBreak | None) -> None:
        self.broken = rules.earliest(self.broken, found)


async def open_export(source: Source, account: UUID, times: Range) -> Export:
    """Start an export of the log as it is now."""
    return Export(source, account, await head(source, account), times)


def _broken(found: CheckedPage, at: Position, ends: LogHead) -> ChainBreak | None:
    if found.last_seq is None:
        return rules.missing(at.seq + 1) if at.seq < ends.seq else None
    if found.broken_seq is None:
        return rules.misnamed(found)
    before = at.seq if found.broken_before is None else found.broken_before
    return rules.earliest(rules.unsound(found.broken_seq, before), rules.misnamed(found))


async def _moved_start(source: Source, account: UUID, at: Position) -> Position | None:
    """Return the new beginning of the log if retention has deleted events after `at` meanwhile, else None."""
    ends = await head(source, account)
    if ends.purged_through_seq <= at.seq:
        return None
    return Position(ends.purged_through_seq, LAST_ID, ends.purged_hash)


async def _bounds(source: Source, account: UUID, ends: LogHead, times: Range) -> tuple[int, int]:
    """Return the first and last number between which all events of the time range must be."""
    low, high = ends.purged_through_seq + 1, ends.seq
    if times.since is not None:
        low = await _first_at(source, account, rules.earlier(times.since), low, high)
    if times.until is not None:
        high = await _first_at(source, account, rules.later(times.until), low, high) - 1
    return low, high


async def _first_at(source: Source, account: UUID, moment: datetime, low: int, high: int) -> int:
    """Return the number at which the log reaches `moment`, `high` + 1 if none; a binary search with up to 40 reads."""
    high += 1
    while low < high:
        middle = (low + high) // 2
        row = await _REACHED.first(source, account, middle, moment)
        if row is None or row.seq >= high or row.reached:
            high = middle
        else:
            low = row.seq + 1
    return low


async def _previous(
    source: Source, account: UUID, ends: LogHead, rows: list[ListRow], shown: list[ListRow]
) -> dict[int, bytes]:
    known = {row.seq: row.hash for row in rows}
    previous = rules.previous_hashes(known, ends.purged_through_seq, ends.purged_hash)
    wanted = [row.seq - 1 for row in shown if row.seq not in previous]
    if wanted:
        found = {row.seq: row.hash for row in await _HASHES.fetch(source, account, wanted)}
        previous |= rules.previous_hashes(found, ends.purged_through_seq, ends.purged_hash)
    return previous
