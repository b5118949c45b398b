"""Add and remove suppressions at a customer's request, in one transaction with their events.

Locks the account head first, as all writers of suppressions do, so that decisions see the current rows.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock
from engine.base.errors import ErrorType, Refusal, existing, not_found
from engine.base.events import AccountEvent
from engine.ledger import heads, log
from engine.ledger.events import append_locked
from engine.ledger.heads import AccountHead
from engine.sending.suppressions import rules, store
from engine.sending.suppressions.types import Reason, SuppressionRow
from engine.store.database_clock import new_time
from engine.store.queries import Conn


class SuppressionChange(StrEnum):
    """State the effect of a request to suppress an address."""

    ADDED = "added"
    CHANGED = "changed"  # it had a weaker reason
    UNCHANGED = "unchanged"  # it had the same reason or a stronger one


class Suppressed(Struct, frozen=True):
    """The suppression of an address after a request, and what changed."""

    row: SuppressionRow
    change: SuppressionChange


async def suppress(
    pool: asyncpg.Pool, account: UUID, wanted: Sequence[tuple[str, Reason]], *, actor: str | None = None
) -> list[Suppressed]:
    """Suppress canonical addresses; return one result for each, in order.

    Writes one `suppression.added` for each address that is new or now has a stronger reason.
    """
    async with pool.acquire() as connection, connection.transaction():
        locked = await _locked(connection, account)
        at = await new_time(connection)
        current = await store.read(connection, account, [address for address, _ in wanted])
        outcomes = decide(current, wanted, at)
        changes = {
            one.row.address: Reason(one.row.reason) for one in outcomes if one.change is not SuppressionChange.UNCHANGED
        }
        if changes:
            await store.put(connection, account, list(changes.items()), at)
            kind = AccountEvent.SUPPRESSION_ADDED
            now = clock.now()
            entries = [_entry(account, kind, address, reason, now, actor) for address, reason in changes.items()]
            await append_locked(connection, locked, entries)
    return outcomes


async def lift(pool: asyncpg.Pool, account: UUID, address: str, *, actor: str | None = None) -> None:
    """Remove the suppression of a canonical address; raise the 404 if there is none, the 409 after a complaint."""
    async with pool.acquire() as connection, connection.transaction():
        locked = await _locked(connection, account)
        row = existing((await store.read(connection, account, [address])).get(address), "suppressed address")
        if row.reason == Reason.COMPLAINT:
            raise Refusal(
                ErrorType.INVALID_STATE,
                f"{address} reported your mail as spam, so this suppression can't be removed.",
                state=row.reason,
            )
        await store.DELETE.execute(connection, account, address)
        entry = _entry(account, AccountEvent.SUPPRESSION_REMOVED, address, row.reason, clock.now(), actor)
        await append_locked(connection, locked, [entry])


def decide(
    current: Mapping[str, SuppressionRow], wanted: Sequence[tuple[str, Reason]], at: datetime
) -> list[Suppressed]:
    """Return the result of each request in turn: the stronger reason wins and keeps the first one's time. Pure."""
    now = dict(current)
    outcomes = []
    for address, reason in wanted:
        row = now.get(address)
        if row is not None and not rules.is_stronger(reason, row.reason):
            outcomes.append(Suppressed(row, SuppressionChange.UNCHANGED))
            continue
        since = at if row is None else row.created_at
        now[address] = SuppressionRow(address, reason.value, None, None, since)
        outcomes.append(Suppressed(now[address], SuppressionChange.ADDED if row is None else SuppressionChange.CHANGED))
    return outcomes


async def _locked(connection: Conn, account: UUID) -> dict[UUID, AccountHead]:
    locked = await heads.lock(connection, [account])
    if account not in locked:  # erased after its key was checked
        raise not_found("account")
    return locked


def _entry(account: UUID, kind: AccountEvent, address: str, reason: str, at: datetime, actor: str | None) -> log.Entry:
    detail = {"address": address, "reason": reason, "source": "api"}
    return log.Entry(account, kind, log.detail_text(detail if actor is None else {**detail, "actor": actor}), at)
