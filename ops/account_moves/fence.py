"""The marks of a move in the database of a cell: accounts that leave, accounts that arrive, closed logs.

Both cells keep moving accounts from working: at the source from the mark on, at the target until the directory has the
new placement. `engine/store/migrations/0097_account_moves.sql` has the conditions that no transaction gets past.
"""

import asyncio
import time
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import ids
from engine.cells.directory import Claim
from engine.store import caches
from engine.store.queries import Queries
from ops.account_moves.copy_rows import Unit
from ops.backup.tables import MIGRATIONS

MAX_ACCOUNTS: Final = 1_000
POLL_S: Final = 0.1

_SQL = Queries.beside(__file__, "fence.sql")


class AccountAround(Struct, frozen=True):
    """An account of a unit; `pools` are source addresses that an operator assigned to it alone."""

    id: UUID
    parent_id: UUID | None
    name: str
    status: str
    status_before_move: str | None
    is_erased: bool
    is_platform: bool
    people: list[UUID]
    pools: list[str]


class StandingMove(Struct, frozen=True):
    """A row of `account_moves`."""

    account_id: UUID
    unit: UUID
    direction: str
    other_cell: str
    people: list[UUID]


class Agreement(Struct, frozen=True):
    """The number of shards and the fingerprint of the pepper: both cells of a move must have the same."""

    shards: int
    pepper_print: bytes | None


class Mark(Struct, frozen=True):
    """When accounts were marked, by the database's clock, and by which transaction."""

    at: datetime
    xid: int


_AROUND = _SQL.rows("unit_around", AccountAround)
_STRANGERS = _SQL.command("strangers_of")
_INSTALLATION = _SQL.rows("installation", Agreement)
_MOVES = _SQL.rows("moves_of", StandingMove)
_MESSAGE_HOLDS = _SQL.command("message_holds")
_OWN_MESSAGES = _SQL.command("own_messages")
_ARRIVE = _SQL.command("arrive")
_LEAVE = _SQL.command("leave")
_LOCK_HEADS = _SQL.command("lock_heads")
_CLOSE = _SQL.command("close_logs")
_REOPEN = _SQL.command("reopen")
_FREE_QUEUE = _SQL.command("free_queue")
_KINDS = _SQL.command("cache_kinds")
_NOW = _SQL.rows("now_and_xid", Mark)
_UNDRAINED = _SQL.command("undrained")
_OLDEST = _SQL.command("oldest_running")
_CLAIMED = _SQL.rows("claimed_names", Claim)
_FORGET = _SQL.command("forget_move")
_DETACH = _SQL.command("detach_people")
_FORGET_LABEL = _SQL.command("forget_label")


class MoveRefused(RuntimeError):  # noqa: N818 - an answer, not a fault
    """The move can't be made; the text says why and what to do. Nothing has changed."""


class NotDrained(Exception):  # noqa: N818 - named for the state
    """Work of the accounts that was under way has not ended in time."""


async def unit_around(connection: asyncpg.Connection, account: UUID) -> list[AccountAround]:
    """Return the accounts that must be in one cell with this one; raises MoveRefused."""
    found: list[AccountAround] = []
    wanted = [account]
    while True:
        found = await _AROUND.fetch(connection, wanted)
        if len(found) > MAX_ACCOUNTS:
            raise MoveRefused(f"more than {MAX_ACCOUNTS} accounts share people with this one; a move takes all of them")
        if len(found) == len(wanted):
            break
        wanted = [one.id for one in found]
    if not found:
        raise MoveRefused("there is no such account in this cell")
    return found


async def unit_of(connection: asyncpg.Connection, account: UUID, around: list[AccountAround]) -> Unit:
    """Return what moves with an account: the accounts, their people, and targets of holds."""
    accounts = [one.id for one in around]
    strangers = [row["id"] for row in await _STRANGERS.records(connection, accounts)]
    people = sorted({person for one in around for person in one.people} | set(strangers))
    held = {
        ids.parse_id(ids.Kind.MESSAGE, row["target"]): row["target"] for row in await _MESSAGE_HOLDS.records(connection)
    }
    own = await _OWN_MESSAGES.records(connection, accounts, list(held)) if held else []
    targets = [ids.format_id(ids.Kind.ACCOUNT, one) for one in accounts] + [held[row["id"]] for row in own]
    return Unit([account, *(one for one in accounts if one != account)], people, targets)


async def standing_move(connection: asyncpg.Connection, account: UUID) -> list[StandingMove]:
    """Return the rows of the move that an account is part of; none if it is not moving here."""
    return await _MOVES.fetch(connection, account)


def check(around: list[AccountAround]) -> None:
    """Raise MoveRefused if an account of the unit can't move."""
    for one in around:
        name = f"{ids.format_id(ids.Kind.ACCOUNT, one.id)} ({one.name})"
        if one.is_platform:
            raise MoveRefused(f"{name} is the platform account of this cell; `ops platform set` chooses another one")
        if one.is_erased or "closing" in (one.status, one.status_before_move):
            raise MoveRefused(f"{name} is being erased")
        if one.pools:
            raise MoveRefused(
                f"{name} sends from the pool {one.pools[0]} of this cell's addresses. Take that back with "
                "`ops source`, and assign one in the other cell after the move."
            )


async def check_alike(source: asyncpg.Connection, target: asyncpg.Connection) -> None:
    """Raise MoveRefused unless both cells have one schema, number of shards and pepper."""
    if source_target_equal := await MIGRATIONS.fetch(source) == await MIGRATIONS.fetch(target):
        ours, theirs = await _INSTALLATION.first(source), await _INSTALLATION.first(target)
        if ours == theirs:
            return
    words = (
        "number of shards or key pepper (`ops adopt`)" if source_target_equal else "schema: bring both to one version"
    )
    raise MoveRefused(f"the two cells differ in their {words}")


async def arrive(target: asyncpg.Connection, unit: Unit, source_cell: str) -> None:
    """Note in the target's transaction that accounts arrive, after a place for them was made."""
    await _ARRIVE.execute(target, unit.accounts, unit.accounts[0], source_cell)
    await _FORGET_LABEL.execute(target, unit.accounts)
    await bump(target, unit)


async def leave(source: asyncpg.Connection, unit: Unit, target_cell: str) -> Mark:
    """Mark the accounts as leaving: from the commit on their mail, posts, jobs and requests wait."""
    async with source.transaction():
        await _LOCK_HEADS.records(source, unit.accounts)
        await _LEAVE.execute(source, unit.accounts, unit.accounts[0], target_cell, unit.people)
        await bump(source, unit)
        mark = await _NOW.first(source)
    assert mark is not None
    return mark


async def drained(source: asyncpg.Connection, unit: Unit, mark: Mark, *, known_s: float, most_s: float) -> None:
    """Wait until no work of the accounts is under way; raises NotDrained after `most_s`."""
    ends = time.monotonic() + most_s
    await asyncio.sleep(known_s)
    while True:
        [row] = await _UNDRAINED.records(source, unit.accounts, unit.people, mark.at, mark.xid, known_s)
        if row["reason"] is None:
            return
        if time.monotonic() > ends:
            raise NotDrained(f"{row['reason']} after {most_s:.0f} s")
        await asyncio.sleep(POLL_S)


async def close_logs(source: asyncpg.Connection, unit: Unit, *, most_s: float) -> None:
    """Close the logs, and wait until every transaction that began before has ended; raises NotDrained."""
    async with source.transaction():
        await _LOCK_HEADS.records(source, unit.accounts)
        await _CLOSE.execute(source, unit.accounts)
        await _DETACH.execute(source, unit.accounts, unit.people)
        mark = await _NOW.first(source)
    assert mark is not None
    ends = time.monotonic() + most_s
    while (await _OLDEST.records(source))[0]["xid"] <= mark.xid:
        if time.monotonic() > ends:
            raise NotDrained(f"a transaction from before the end of the logs is open after {most_s:.0f} s")
        await asyncio.sleep(POLL_S)


async def claimed(source: asyncpg.Connection, unit: Unit, cell: str) -> list[Claim]:
    """Return the names that the unit takes with it, with their holders."""
    return await _CLAIMED.fetch(source, unit.accounts, unit.people, cell)


async def reopen(connection: asyncpg.Connection, unit: Unit, *, arrived: bool) -> None:
    """Let the accounts work here: after a canceled move at the source, after a finished one at the target."""
    async with connection.transaction():
        await _LOCK_HEADS.records(connection, unit.accounts)
        await _REOPEN.execute(connection, unit.accounts)
        if arrived:
            await _FREE_QUEUE.execute(connection, unit.accounts)
        await bump(connection, unit)


async def forget(connection: asyncpg.Connection, unit: Unit) -> None:
    """Delete the marks of accounts whose rows are deleted, in the same transaction."""
    await _FORGET.execute(connection, unit.accounts)
    await bump(connection, unit)


async def bump(connection: asyncpg.Connection, unit: Unit) -> None:
    """Make every process of the cell read anew what its caches hold of these accounts."""
    for row in await _KINDS.records(connection):
        for account in unit.accounts:
            await caches.bump(connection, row["kind"], account)
