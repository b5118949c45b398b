"""Append events to account logs.

The insert statement also queues each event for the webhook endpoints that subscribe to its type (`log.sql`). Statements
that write events together with other rows (`accept.sql`, `settle.sql`) share that SQL.
"""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from engine.base import clock
from engine.base.errors import not_found
from engine.base.events import AccountEvent
from engine.ledger import heads, log
from engine.ledger.heads import AccountHead
from engine.ledger.log import Entry, LogRow
from engine.store.queries import Conn


async def append_events(connection: Conn, entries: Sequence[Entry]) -> list[LogRow]:
    """Lock the accounts' heads and append the entries in order, within the caller's transaction.

    Returns the stored events. Entries of accounts that were erased meanwhile are left out.
    """
    if not entries:
        return []
    return await append_locked(connection, await heads.lock(connection, {one.account_id for one in entries}), entries)


async def append_locked(connection: Conn, locked: dict[UUID, AccountHead], entries: Iterable[Entry]) -> list[LogRow]:
    """Append the entries of the accounts whose heads are in `locked`, and save the heads."""
    events = log.seal_all(locked, [one for one in entries if one.account_id in locked])
    if events:
        await log.append(connection, events)
    if locked:
        await heads.save(connection, locked.values())
    return events


async def record_event(
    connection: Conn, account: UUID, kind: AccountEvent, detail: Mapping[str, object], *, actor: str | None = None
) -> None:
    """Append one account event of the type `kind` within the caller's transaction.

    `actor` is who caused it: the id of a person (`usr_…`) or an API key (`key_…`), `operator` or `service`. Raises a
    404 if the account was erased meanwhile.
    """
    full = detail if actor is None else {**detail, "actor": actor}
    if not await append_events(connection, [Entry(account, kind, log.detail_text(full), clock.now())]):
        raise not_found("account")
