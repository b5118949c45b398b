"""Move an account with all that must stay together from one cell to another, with a pause of seconds and no loss.

ahead (most rows, while the accounts work on) → announced → marked → drained → closed → copied, compared, log verified →
placed (the directory's row decides from here on) → opened at the target → removed at the source.

Until `placed` the source's rows are the truth, and every failure lets the accounts go on there; afterwards the
target's. A move that was killed is continued by the same command: it reads the directory to know which.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.accounts.audit import store as audit
from engine.base import ids
from engine.cells.directory import Directory, DirectoryConflict
from engine.retention import erase
from engine.store.database_errors import DRIVER_ERRORS, DatabaseError
from engine.store.postgres import close_pool, open_pool
from ops.account_moves import copy_rows, fence
from ops.account_moves.copy_rows import MovedTable, Say, StillChanging, Unit
from ops.account_moves.fence import MoveRefused, NotDrained
from ops.backup.tables import connected

KNOWN_S: Final = 1.5  # until every process knows of a mark
FRONTS_KNOW_S: Final = 3.0  # until every front knows of a placement, and requests that it sent before are answered
DRAIN_S: Final = 60.0
MAX_PAUSE_S: Final = 300.0  # a move that would pause its accounts for longer lets them stay
UNDO_S: Final = 60.0  # to find out where the accounts are, and let them work there
OWN_NAME: Final = "waybill move"
LOCK: Final = 0x5761796D  # "Waym": one move at a time from or to a database
FIRST_TO_GO: Final = frozenset({"system_mail", "renewal_charges", "webhook_queue", "queue"})  # what jobs send
REMOVE_TRIES: Final = 10
STEPS: Final = (
    "checked", "arriving", "copied ahead", "announced", "marked", "drained", "closed", "copied", "verified", "placed",
    "opened", "removed",
)  # fmt: skip

Step = Callable[[str], None]


class MoveEnds(Struct, frozen=True):
    """The databases of a move, the names of their cells, and the time-outs."""

    source_url: str
    target_url: str
    source: str
    target: str
    known_s: float = KNOWN_S
    fronts_know_s: float = FRONTS_KNOW_S
    drain_s: float = DRAIN_S
    max_pause_s: float = MAX_PAUSE_S


class Moved(Struct, frozen=True):
    """The result of a move: the accounts and their rows, and for how many seconds they were paused."""

    accounts: list[UUID]
    people: int
    rows: int
    events: int
    pause_s: float


class MoveFailed(RuntimeError):  # noqa: N818 - named for the state
    """The move ended without effect, or its last steps are left; the text says which."""


_FAILURES: Final = (StillChanging, NotDrained, DirectoryConflict, DatabaseError, *DRIVER_ERRORS)


class _Databases(Struct, frozen=True):
    source: asyncpg.Connection
    target: asyncpg.Connection


@asynccontextmanager
async def _databases(ends: MoveEnds) -> AsyncIterator[_Databases]:
    """Connect to both cells, of which no other move may use one meanwhile; raises MoveRefused."""
    async with AsyncExitStack() as stack:
        found = [
            await stack.enter_async_context(connected(url, OWN_NAME)) for url in (ends.source_url, ends.target_url)
        ]
        for connection in found:
            if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK):
                raise MoveRefused("another move from or to one of these cells is under way; wait for its end")
        yield _Databases(*found)


async def planned(ends: MoveEnds, account: UUID) -> tuple[Unit, dict[str, int]]:
    """Return what would move, and its number of rows by table; raises MoveRefused as `move` does."""
    async with _databases(ends) as db:
        around = await fence.unit_around(db.source, account)
        fence.check(around)
        await fence.check_alike(db.source, db.target)
        unit = await fence.unit_of(db.source, account, around)
        counts = {
            one.table.name: (await copy_rows.sums(db.source, one, unit)).rows
            for one in await copy_rows.moved_tables(db.source)
        }
    return unit, {name: rows for name, rows in counts.items() if rows}


async def move(directory: Directory, ends: MoveEnds, account: UUID, *, step: Step, say: Say) -> Moved:
    """Move an account and its unit, or finish a move that was interrupted; raises MoveRefused or MoveFailed."""
    placement = await directory.cell_of(account)
    if placement is None or placement.cell not in (ends.source, ends.target):
        raise MoveRefused(f"the directory has this account in {placement and placement.cell}, not in {ends.source}")
    try:
        async with _databases(ends) as db:
            if placement.cell == ends.target:
                return await _finish(db, ends, account, step)
            await _undo(directory, db, ends, account)
            return await _move(directory, db, ends, account, step, say)
    except asyncio.CancelledError as error:  # Ctrl-C
        raise MoveFailed(await _where_it_is(directory, ends, account, "It was interrupted")) from error
    except _FAILURES as error:
        why = str(error).partition("\n")[0] or "It took too long"
        raise MoveFailed(await _where_it_is(directory, ends, account, why)) from error


async def _where_it_is(directory: Directory, ends: MoveEnds, account: UUID, why: str) -> str:
    """Undo a failed move if the directory has not placed the accounts yet; return what holds now."""
    try:
        async with asyncio.timeout(UNDO_S):
            placement = await directory.cell_of(account)
            if placement is not None and placement.cell == ends.target:
                return f"{why}. The account is in {ends.target} now; run the command again to finish."
            async with connected(ends.source_url, OWN_NAME) as source:
                await source.execute("SELECT pg_advisory_lock($1)", LOCK)  # else it might undo the next move
                await _let_stay(directory, ends, source, account)
    except _FAILURES as second:
        return f"{why}; then {second}. The account waits; run the command again when the databases answer."
    return f"{why}. The account stays in {ends.source}, where it works again."


async def _move(directory: Directory, db: _Databases, ends: MoveEnds, account: UUID, step: Step, say: Say) -> Moved:
    around = await fence.unit_around(db.source, account)
    fence.check(around)
    await fence.check_alike(db.source, db.target)
    unit = await fence.unit_of(db.source, account, around)
    moved = await copy_rows.moved_tables(db.source)
    step("checked")
    await copy_rows.make_partitions(db.source, db.target)
    await _make_place(db, ends, unit)
    step("arriving")
    since = await copy_rows.copy_ahead(db.source, db.target, moved, unit, say)
    step("copied ahead")
    version = await directory.begin_move(unit.accounts, source=ends.source, to=ends.target)
    step("announced")
    began = time.monotonic()
    rows: dict[str, int] = {}
    async with asyncio.timeout(ends.max_pause_s):
        mark = await fence.leave(db.source, unit, ends.target)
        step("marked")
        await fence.drained(db.source, unit, mark, known_s=ends.known_s, most_s=ends.drain_s)
        unit = await _same_unit(db.source, account, unit)
        step("drained")
        await fence.close_logs(db.source, unit, most_s=ends.drain_s)
        step("closed")
        async with db.target.transaction():
            await copy_rows.copy_rest(db.source, db.target, moved, unit, since, _both(say, rows))
            await fence.bump(db.target, unit)  # a process may know that it has no such account, or no key of its domain
        copied = time.monotonic()
        step("copied")
        events = await _verified(db.target, unit)
        step("verified")
    await directory.claim_many(await fence.claimed(db.source, unit, ends.source), ends.source)
    await directory.finish_move(unit.accounts, unit.people, to=ends.target, began=version)
    step("placed")
    await asyncio.sleep(max(0.0, copied + ends.known_s - time.monotonic()))
    await fence.reopen(db.target, unit, arrived=True)
    paused_s = time.monotonic() - began
    step("opened")
    await asyncio.sleep(ends.fronts_know_s)
    await _remove(ends.source_url, db.source, unit)
    step("removed")
    return Moved(unit.accounts, len(unit.people), sum(rows.values()), events, paused_s)


async def _make_place(db: _Databases, ends: MoveEnds, unit: Unit) -> None:
    """Store the accounts at the target, closed, so that rows can refer to them."""
    rows = await db.source.fetch("SELECT * FROM accounts WHERE id = ANY ($1::uuid[])", unit.accounts)
    async with db.target.transaction():
        for row in sorted(rows, key=lambda one: (one["parent_id"] is not None, one["id"])):
            await db.target.execute(
                "INSERT INTO accounts (id, name, plan, status, status_before_move, parent_id)"
                " VALUES ($1, $2, $3, 'moving', $4, $5)",
                row["id"], row["name"], row["plan"], row["status"], row["parent_id"],
            )  # fmt: skip
        await fence.arrive(db.target, unit, ends.source)


async def _same_unit(source: asyncpg.Connection, account: UUID, before: Unit) -> Unit:
    """Return the unit as it is now that nothing changes it; raises StillChanging if accounts or people came or left."""
    try:
        now = await fence.unit_of(source, account, await fence.unit_around(source, account))
    except MoveRefused as error:  # of a unit that has become too large: the mark has to be taken back
        raise StillChanging(str(error)) from error
    if (now.accounts, now.people) != (before.accounts, before.people):
        raise StillChanging("people or sub-accounts came or left while the rows were copied; run the command again")
    return now


async def _verified(target: asyncpg.Connection, unit: Unit) -> int:
    """Verify the logs of the accounts as `ops log` does; return the number of events. Raises StillChanging."""
    events = 0
    for account in unit.accounts:
        verdict = await audit.verify(target, account)
        if verdict.broken is not None:
            name = ids.format_id(ids.Kind.ACCOUNT, account)
            raise StillChanging(f"the copied log of {name} is broken at {verdict.broken.at}: {verdict.broken.problem}")
        events += verdict.events
    return events


async def _finish(db: _Databases, ends: MoveEnds, account: UUID, step: Step) -> Moved:
    """Do what is left of a move after the directory has placed the accounts; raises MoveRefused if nothing is."""
    left = await fence.standing_move(db.source, account)
    here = await fence.standing_move(db.target, account)
    if not left and not here:
        raise MoveRefused(f"the account is in {ends.target} already")
    accounts = [one.account_id for one in left or here]
    people = [person for one in left for person in one.people]
    held = [ids.format_id(ids.Kind.ACCOUNT, one) for one in accounts]
    unit = Unit([account, *(one for one in accounts if one != account)], people, held)
    if here:
        await asyncio.sleep(ends.known_s)
        await fence.reopen(db.target, unit, arrived=True)
    step("opened")
    await asyncio.sleep(ends.fronts_know_s)
    if left:
        await _remove(ends.source_url, db.source, unit)
    step("removed")
    return Moved(unit.accounts, len(unit.people), 0, 0, 0.0)


async def _undo(directory: Directory, db: _Databases, ends: MoveEnds, account: UUID) -> None:
    """Undo what an interrupted move has left, so that a new one begins from the start."""
    await _let_stay(directory, ends, db.source, account)
    arrived = await fence.standing_move(db.target, account)
    if not arrived:
        return
    accounts = {one.account_id for one in arrived}
    around = [one for one in await fence.unit_around(db.target, account) if one.id in accounts]
    unit = await fence.unit_of(db.target, account, around)
    async with db.target.transaction():
        await _delete(db.target, await copy_rows.moved_tables(db.target), unit)


async def _let_stay(directory: Directory, ends: MoveEnds, source: asyncpg.Connection, account: UUID) -> None:
    """Let the accounts work at the source again, unless the directory has placed them at the target by now.

    A placement whose answer was lost has either happened before this cancellation, or fails after it.
    """
    left = await fence.standing_move(source, account)
    accounts = [one.account_id for one in left] or [account]
    await directory.cancel_move(accounts)
    placement = await directory.cell_of(account)
    if placement is None or placement.cell != ends.source or placement.moving_to is not None:
        raise DirectoryConflict("the directory has placed the account in another cell meanwhile")
    if left:
        await fence.reopen(source, Unit(accounts, [], []), arrived=False)


async def _remove(source_url: str, source: asyncpg.Connection, unit: Unit) -> None:
    """Delete the rows of a unit that has left, in short transactions; the last one deletes the accounts."""
    moved = await copy_rows.moved_tables(source)
    for one in moved:
        if one.table.name in FIRST_TO_GO:
            await copy_rows.delete(source, one, unit)
    pool = await open_pool(source_url, name="move", largest=2)
    try:
        for account in unit.accounts:
            await erase.delete_rows(pool, account)
    finally:
        await close_pool(pool)
    for last in [False] * (REMOVE_TRIES - 1) + [True]:
        try:
            async with source.transaction():
                await _delete(source, moved, unit)
                return
        except asyncpg.ForeignKeyViolationError:  # a job that counts has written a row meanwhile
            if last:
                raise
            await asyncio.sleep(1.0)


async def _delete(connection: asyncpg.Connection, moved: list[MovedTable], unit: Unit) -> None:
    """Delete all rows of a unit in the caller's transaction."""
    for one in reversed(moved):
        await copy_rows.delete(connection, one, unit)
    await fence.forget(connection, unit)


def _both(say: Say, rows: dict[str, int]) -> Say:
    def told(table: str, count: int) -> None:
        rows[table] = count
        say(table, count)

    return told
