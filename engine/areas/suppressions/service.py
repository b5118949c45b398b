"""Suppressing addresses by hand and lifting suppressions: one transaction each, with its events.

The account's head is locked first, as everything does that suppresses: what stands is known before it is decided.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.areas.suppressions import rules, store
from engine.areas.suppressions.types import Reason, SuppressionRow
from engine.base import clock
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.ledger import heads, log
from engine.ledger.events import append_locked
from engine.ledger.heads import AccountHead
from engine.store.database_clock import new_time
from engine.store.queries import Conn


class SuppressionChange(StrEnum):
    """What asking for a suppression brought."""

    ADDED = "added"
    CHANGED = "changed"  # it stood for a weaker reason
    UNCHANGED = "unchanged"  # it stood for the same reason or a stronger one


class Suppressed(Struct, frozen=True):
    """An address as it stands now."""

    row: SuppressionRow
    change: SuppressionChange


async def suppress(
    pool: asyncpg.Pool, account: UUID, wanted: Sequence[tuple[str, Reason]], *, actor: str | None = None
) -> list[Suppressed]:
    """Suppress canonical addresses; one outcome for each, in their order.

    Each address that is new, or that now stands for a stronger reason, writes one `suppression.added`.
    """
    async with pool.acquire() as connection, connection.transaction():
        locked = await _locked(connection, account)
        at = await new_time(connection)
        standing = await store.read(connection, account, [address for address, _ in wanted])
        outcomes = decide(standing, wanted, at)
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
    """Let the account send to a canonical address again; 404 when nothing forbids it, 409 after a complaint."""
    async with pool.acquire() as connection, connection.transaction():
        locked = await _locked(connection, account)
        row = (await store.read(connection, account, [address])).get(address)
        if row is None:
            raise not_found("suppressed address")
        if row.reason == Reason.COMPLAINT:
            raise Refusal(
                ErrorType.INVALID_STATE,
                f"{address} complained about mail of this account; that can't be lifted.",
                status=row.reason,
            )
        await store.DELETE.execute(connection, account, address)
        entry = _entry(account, AccountEvent.SUPPRESSION_REMOVED, address, row.reason, clock.now(), actor)
        await append_locked(connection, locked, [entry])


def decide(
    standing: Mapping[str, SuppressionRow], wanted: Sequence[tuple[str, Reason]], at: datetime
) -> list[Suppressed]:
    """What each wish brings after the ones before it: the stronger reason stands, and keeps the first one's time."""
    now = dict(standing)
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
    if account not in locked:  # erased since its key was checked
        raise not_found("account")
    return locked


def _entry(account: UUID, kind: AccountEvent, address: str, reason: str, at: datetime, actor: str | None) -> log.Entry:
    detail = {"address": address, "reason": reason, "source": "api"}
    return log.Entry(account, kind, log.detail_text(detail if actor is None else {**detail, "actor": actor}), at)
