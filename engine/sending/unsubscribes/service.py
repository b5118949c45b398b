"""Apply the use of unsubscribe links: suppressions, opt-outs of topics, and undoing both, with their events.

Works whatever the state of the account: suspended, over its limits or closing. A link whose account was erased has no
effect. Every use is idempotent: parallel uses of links to one person make one suppression.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg

from engine.base import clock, ids
from engine.base.events import AccountEvent
from engine.ledger import heads, log
from engine.ledger.events import append_locked
from engine.sending.suppressions.types import Reason
from engine.sending.unsubscribes import rules
from engine.sending.unsubscribes.types import LinkChange, LinkChoice, LinkSource, LinkState, LinkUse
from engine.store.group_commit import GroupCommit
from engine.store.queries import Conn, Queries, Source

MAX_GROUPED: Final = 128  # uses of links that share a transaction
MAX_WAITING: Final = 2_000  # requests per process beyond which the page answers 503

_SQL = Queries.beside(__file__, "service.sql")
_STATES = _SQL.rows("link_states", LinkState)
_CHANGES: Final = {
    LinkChoice.ALL: _SQL.rows("opt_out_of_all", LinkChange),
    LinkChoice.TOPIC: _SQL.rows("opt_out_of_topic", LinkChange),
    LinkChoice.UNDO: _SQL.rows("undo", LinkChange),
}


class Unsubscriber:
    """Applies the uses of links of one process; concurrent ones share transactions."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._group: GroupCommit[LinkUse, LinkState | None] = GroupCommit(
            self._flush, max_items=MAX_GROUPED, max_waiting=MAX_WAITING
        )

    async def read(self, link: UUID) -> LinkState | None:
        """Return the state of a link, None if it isn't stored."""
        return (await read_states(self._pool, [link])).get(link)

    async def use(self, use: LinkUse) -> LinkState | None:
        """Apply one use; return the state after its commit, None if the link isn't stored. Raises Overloaded."""
        return await self._group.submit(use)

    async def _flush(self, batch: Sequence[LinkUse]) -> list[LinkState | Exception | None]:
        async with self._pool.acquire() as connection, connection.transaction():
            states = await apply(connection, batch)
        return [None if (state := states.get(one.link)) is None else rules.after(state, one.choice) for one in batch]


async def read_states(source: Source, links: Sequence[UUID]) -> dict[UUID, LinkState]:
    """Return the stored ones of these links."""
    return {state.id: state for state in await _STATES.fetch(source, links)}


async def apply(connection: Conn, uses: Sequence[LinkUse]) -> dict[UUID, LinkState]:
    """Apply uses of links in the caller's transaction; return the states of the stored links before it.

    A use that changes nothing takes no lock.
    """
    states = await read_states(connection, list({use.link for use in uses}))
    effective = [use for use in uses if use.link in states and rules.changes(states[use.link], use.choice)]
    if effective:
        await _change(connection, effective, states)
    return states


async def _change(connection: Conn, uses: Sequence[LinkUse], states: Mapping[UUID, LinkState]) -> None:
    """Write the changes and their events under the locks of the accounts' heads, and only for accounts that exist."""
    locked = await heads.lock(connection, {states[use.link].account_id for use in uses})
    at = clock.now()
    entries: list[log.Entry] = []
    for choice, query in _CHANGES.items():
        sources = {
            use.link: use.source for use in uses if use.choice is choice and states[use.link].account_id in locked
        }
        if sources:
            for change in await query.fetch(connection, list(sources)):
                entries += _entries(states[change.link], choice, change, sources[change.link], at)
    if entries:
        await append_locked(connection, locked, entries)


def _entries(
    state: LinkState, choice: LinkChoice, change: LinkChange, source: LinkSource, at: datetime
) -> Iterator[log.Entry]:
    """Yield the events of one change: of the suppression, and of the person who left or came back."""
    broadcast = None if state.broadcast_id is None else ids.format_id(ids.Kind.BROADCAST, state.broadcast_id)
    topic = None if state.list_id is None else ids.format_id(ids.Kind.LIST, state.list_id)
    origin = {"source": source.value, "broadcast_id": broadcast}
    undone = choice is LinkChoice.UNDO
    if change.suppression:
        kind = AccountEvent.SUPPRESSION_REMOVED if undone else AccountEvent.SUPPRESSION_ADDED
        detail = {"address": state.address, "reason": Reason.UNSUBSCRIBE.value, **origin}
        yield log.Entry(state.account_id, kind, log.detail_text(detail), at)
    if change.is_turn:
        kind = AccountEvent.CONTACT_RESUBSCRIBED if undone else AccountEvent.CONTACT_UNSUBSCRIBED
        scope = LinkChoice.TOPIC if change.topic and not change.suppression else LinkChoice.ALL
        detail = {"address": state.address, "scope": scope.value, "list_id": topic, **origin}
        yield log.Entry(state.account_id, kind, log.detail_text(detail), at)
