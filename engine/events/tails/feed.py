"""Read one account's log for all tails of one view in this process, so that each page is read and encoded once.

The window holds consecutive events that some tail has not read yet. A tail at its end loads the next page, and other
tails at the same position wait for that page. A tail that has fallen behind the window reads its own pages. No tail has
a queue, so none can grow.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, Protocol
from uuid import UUID

import asyncpg

from engine.base import ids
from engine.events.tails import rules, store
from engine.events.tails.types import Event, PullRow, ShownEvent
from engine.store.queries import Source

WINDOW_EVENTS, WINDOW_BYTES = 400, 256 * 1024
READ_S: Final = 10.0

Encode = Callable[[Event], bytes]
EncodeRow = Callable[[PullRow], bytes]


class LogView(Protocol):
    """Read a page of a log and encode its events as one kind of tail shows them."""

    async def read(
        self, source: Source, account: UUID, after: int, through: int, since: UUID
    ) -> tuple[list[ShownEvent], UUID] | None:
        """Return up to a page of consecutive events and the id of the last; None if there are none."""


class MessageView:
    """Show message events with fields of their messages; events of the account have an empty chunk."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode

    async def read(
        self, source: Source, account: UUID, after: int, through: int, since: UUID
    ) -> tuple[list[ShownEvent], UUID] | None:
        """Return up to a page of consecutive events and the id of the last; None if there are none."""
        page = await store.page(source, account, after, through, since)
        return None if page is None else (list(self._shown(page.places, page.events)), page.last_id)

    def _shown(self, places: Iterable[int], events: Iterable[Event | None]) -> Iterable[ShownEvent]:
        for place, event in zip(places, events, strict=True):
            if event is None:
                yield ShownEvent(place, "", b"")
            else:
                tags = frozenset(event.tags)
                chunk = self._encode(event)
                yield ShownEvent(place, event.type, chunk, event.status, event.from_domain, event.stream, tags)


class EventView:
    """Show every event of the log as `GET /v1/events` does."""

    def __init__(self, encode: EncodeRow) -> None:
        self._encode = encode

    async def read(
        self, source: Source, account: UUID, after: int, through: int, since: UUID
    ) -> tuple[list[ShownEvent], UUID] | None:
        """Return up to a page of consecutive events and the id of the last; None if there are none."""
        rows = await store.log_page(source, account, after, through, since)
        return ([ShownEvent(row.seq, row.type, self._encode(row)) for row in rows], rows[-1].id) if rows else None


class Feed:
    """The window of one account's log in one view while any such tail of it is open."""

    def __init__(self, pool: asyncpg.Pool, account: UUID, view: LogView, gate: asyncio.Semaphore) -> None:
        self.account = account
        self.view = view
        self.head = 0  # the last known seq
        self._pool = pool
        self._gate = gate
        self._window: deque[ShownEvent] = deque()
        self._bytes = 0
        self._since = store.FIRST
        self._loading: asyncio.Task[list[ShownEvent]] | None = None

    async def after(self, place: int, *, slowest: int) -> list[ShownEvent]:
        """Return up to a page of events after seq `place`; [] if the log no longer has them.

        `slowest` is the seq that the slowest tail has reached; the window drops events up to there.
        """
        self._forget(slowest)
        while True:
            if self._window and self._window[0].seq <= place + 1 <= self._window[-1].seq:
                return self._from(place)
            if self._window and place + 1 < self._window[0].seq:
                page = await self._read(place, store.FIRST)
                return [] if page is None else page[0]
            if self._loading is None or self._loading.done():
                self._loading = asyncio.create_task(self._load(place))
                return await asyncio.shield(self._loading)
            await asyncio.shield(self._loading)  # another tail's page: check the window again

    async def last(self, through: int) -> list[ShownEvent]:
        """Return one page of events up to seq `through`, for a tail that starts with past events."""
        page = await self._read(max(0, through - store.PAGE), store.FIRST, through=through)
        return [] if page is None else page[0]

    async def _load(self, place: int) -> list[ShownEvent]:
        """Read the page after `place` into the window; clear the window first if `place` is not its end."""
        if not self._window or self._window[-1].seq != place:
            self._clear()
        page = await self._read(place, self._since)
        if page is None:
            return []
        found, last_id = page
        for one in found:
            if self._window and one.seq != self._window[-1].seq + 1:
                self._clear()  # events were purged: continue after the gap
            self._window.append(one)
            self._bytes += len(one.chunk)
        self._since = rules.bound(ids.milliseconds_of(last_id))
        while len(self._window) > WINDOW_EVENTS or self._bytes > WINDOW_BYTES:
            self._bytes -= len(self._window.popleft().chunk)
        return found

    async def _read(
        self, place: int, since: UUID, *, through: int | None = None
    ) -> tuple[list[ShownEvent], UUID] | None:
        async with self._gate, asyncio.timeout(READ_S):
            last = self.head if through is None else through
            return await self.view.read(self._pool, self.account, place, last, since)

    def _from(self, place: int) -> list[ShownEvent]:
        """Return up to a page of the window after seq `place`."""
        skipped = place + 1 - self._window[0].seq
        return list(islice(self._window, skipped, skipped + store.PAGE))

    def _forget(self, slowest: int) -> None:
        while len(self._window) > 1 and self._window[0].seq <= slowest:
            self._bytes -= len(self._window.popleft().chunk)

    def _clear(self) -> None:
        self._window.clear()
        self._bytes = 0
        self._since = store.FIRST
