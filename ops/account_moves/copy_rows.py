"""Copy the rows of a unit of accounts from the database of one cell to that of another, and compare them there.

Tables with many rows are copied twice: whole while the accounts work on, and in the pause those rows that transactions
have written since. Rows stay as they are: ids, sealed secrets and times are the same in both cells.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct, structs

from engine.store import partitions
from ops.account_moves.account_rows import ACCOUNTS, TABLES, UNCOMPARED, AccountTable
from ops.backup.tables import REFERENCES, Reference, every_table, in_order, quoted

PIECES: Final = 16  # of COPY in memory, 64 KB each at most
ROUNDS: Final = 5  # of copying a table again that was written to meanwhile
DELETED_AT_ONCE: Final = 5_000
LOCK_TRIES: Final = 20

Say = Callable[[str, int], None]  # table, rows


class Unit(Struct, frozen=True):
    """Name what moves together: accounts (the one that was named first), people, and targets of holds."""

    accounts: list[UUID]
    people: list[UUID]
    hold_targets: list[str]

    @property
    def arguments(self) -> tuple[list[UUID], list[UUID], list[str]]:
        """Return $1, $2 and $3 of the conditions in account_rows.py."""
        return self.accounts, self.people, self.hold_targets


class MovedTable(Struct, frozen=True):
    """A declared table with its columns in the order of the source."""

    table: AccountTable
    columns: list[str]

    @property
    def name(self) -> str:
        """Return the name in SQL."""
        return quoted(self.table.name)

    @property
    def listed(self) -> str:
        """Return all columns in SQL."""
        return ", ".join(quoted(one) for one in self.columns)

    @property
    def mine(self) -> str:
        """Return the condition in a form whose three parameters all have types."""
        return f"({self.table.mine}) AND ($1::uuid[], $2::uuid[], $3::text[]) IS NOT NULL"

    def matches(self, other: str) -> str:
        """Return the condition that `t` and `other` are the same row."""
        return " AND ".join(f"t.{quoted(one)} = {other}.{quoted(one)}" for one in self.table.key)


class RowSums(Struct, frozen=True):
    """Number and sum of digests of the rows of a unit in one table."""

    rows: int
    digest: str


class StillChanging(Exception):  # noqa: N818 - named for the state
    """Rows of a table kept changing at the source while they were compared."""


async def moved_tables(source: asyncpg.Connection) -> list[MovedTable]:
    """Return the declared tables so that each comes after those that it references."""
    wholes = {
        one.parent or one.name: structs.replace(one, name=one.parent or one.name, parent=None)
        for one in await every_table(source)
    }
    found = [one for one in wholes.values() if one.name in TABLES]
    read = [Reference(name, other) for name, table in TABLES.items() for other in table.through]
    ordered = in_order(found, [*await REFERENCES.fetch(source), *read])
    return [MovedTable(TABLES[one.name], one.columns) for one in ordered]


async def make_partitions(source: asyncpg.Connection, target: asyncpg.Connection) -> None:
    """Make all partitions in the target that the source has."""
    for one in await every_table(source):
        if one.parent is not None and (first := _first_day(one.name)) is not None:
            await _make_partition(target, one.parent, first)


async def _make_partition(target: asyncpg.Connection, parent: str, first: date) -> None:
    for last in [False] * (LOCK_TRIES - 1) + [True]:
        try:
            async with target.transaction():
                await target.execute("SET LOCAL lock_timeout = '1s'")  # mail of the target waits behind this lock
                await partitions.make(target, parent, first)
                return
        except (asyncpg.LockNotAvailableError, asyncpg.DuplicateTableError):
            if last:
                raise
            await asyncio.sleep(0.5)


def _first_day(name: str) -> date | None:
    with suppress(ValueError):
        return datetime.strptime(name.rpartition("_")[2], "%Y%m%d").date()  # noqa: DTZ007 - a day has no zone
    return None


async def copy_ahead(
    source: asyncpg.Connection, target: asyncpg.Connection, moved: Sequence[MovedTable], unit: Unit, say: Say
) -> int:
    """Copy the tables with many rows while the accounts work on; return the transaction id to copy changes from.

    All of one snapshot, so that no row comes without the one by which it is found again, such as a body without its
    message.
    """
    async with source.transaction(isolation="repeatable_read", readonly=True):
        since = await _oldest_running(source)
        for one in moved:
            if one.table.key:
                async with target.transaction():
                    say(one.table.name, await _bring(source, target, one, unit))
                    await _compare(source, target, one, unit)
    return since


async def _oldest_running(source: asyncpg.Connection) -> int:
    """Return the oldest transaction whose rows a snapshot of now may lack."""
    return int(await source.fetchval("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"))


async def copy_rest(
    source: asyncpg.Connection,
    target: asyncpg.Connection,
    moved: Sequence[MovedTable],
    unit: Unit,
    since: int,
    say: Say,
) -> None:
    """Copy in the target's transaction what `copy_ahead` left, until both cells have the same rows.

    The logs must be closed at the source, and all older transactions ended; only jobs that count may still write.
    Raises StillChanging.
    """
    large, small = [one for one in moved if one.table.key], [one for one in moved if not one.table.key]
    different: list[str] = []
    changed: list[str] = []
    for turn in range(ROUNDS):
        changed = []
        for one in large:
            rows = await _bring_changes(source, target, one, unit, since)
            if rows:
                changed.append(one.table.name)
                say(one.table.name, rows)
        if turn == 0 or different:
            await _bring_small(source, target, small, unit, say)
        for one in large:
            await _make_equal(source, target, one, unit)
        different = [one.table.name for one in small if not await _equal(source, target, one, unit)]
        if turn and not changed and not different:
            return
    raise StillChanging(f"rows of {', '.join(different + changed)} keep changing at the source")


async def _bring_small(
    source: asyncpg.Connection, target: asyncpg.Connection, small: Sequence[MovedTable], unit: Unit, say: Say
) -> None:
    for one in reversed(small):
        if one.table is not ACCOUNTS:
            await delete(target, one, unit)
    for one in small:
        say(one.table.name, await _bring(source, target, one, unit))


async def _bring(source: asyncpg.Connection, target: asyncpg.Connection, one: MovedTable, unit: Unit) -> int:
    """Copy all rows of a table; those of the accounts themselves replace what made a place for them."""
    if one.table is not ACCOUNTS and not one.table.shared_if:
        return await _transfer(source, target, one, unit, "", one.table.name)
    rows = await _staged(source, target, one, unit, "")
    if one.table.shared_if:
        conflict = "DO NOTHING"
    else:
        changed = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in one.columns if name != "id")
        conflict = f"(id) DO UPDATE SET {changed}"
    await target.execute(
        f"INSERT INTO {one.name} ({one.listed}) SELECT {one.listed} FROM arrived ON CONFLICT {conflict}"  # noqa: S608 - quoted
    )
    await target.execute("DROP TABLE arrived")
    return rows


async def _bring_changes(
    source: asyncpg.Connection, target: asyncpg.Connection, one: MovedTable, unit: Unit, since: int
) -> int:
    """Copy the rows of a table that transactions may have written since `since`; return how many were different."""
    different = 0
    if await _staged(source, target, one, unit, _written(since)):
        ours, theirs = (", ".join(f"{side}.{quoted(name)}" for name in one.columns) for side in ("t", "a"))
        same = f"{one.matches('a')} AND ROW({ours})::text = ROW({theirs})::text"
        await target.execute(f"DELETE FROM arrived a USING {one.name} t WHERE {same}")  # noqa: S608 - quoted
        await target.execute(f"DELETE FROM {one.name} t USING arrived a WHERE {one.matches('a')}")  # noqa: S608 - quoted
        tag = await target.execute(f"INSERT INTO {one.name} ({one.listed}) SELECT {one.listed} FROM arrived")  # noqa: S608 - quoted
        different = int(tag.rpartition(" ")[2])
    await target.execute("DROP TABLE arrived")
    return different


def _written(since: int) -> str:
    """Return the condition on rows of transactions from `since` on.

    The age of a row counts from its transaction, so that this holds although ids of transactions are reused.
    """
    return f" AND age(t.xmin) <= age('{since % (1 << 32)}'::xid)"


async def _make_equal(source: asyncpg.Connection, target: asyncpg.Connection, one: MovedTable, unit: Unit) -> None:
    """Remove what the source has deleted since the first copy; copy the table again if that was not all.

    Numbers suffice here: rows were compared when they were first copied, and changed ones have been copied again.
    """
    for repair in (_delete_surplus, _copy_anew):
        there, here = await asyncio.gather(_counted(source, one, unit), _counted(target, one, unit))
        if there == here:
            return
        await repair(source, target, one, unit)


async def _copy_anew(source: asyncpg.Connection, target: asyncpg.Connection, one: MovedTable, unit: Unit) -> None:
    await delete(target, one, unit)
    await _bring(source, target, one, unit)
    await _compare(source, target, one, unit)


async def _compare(source: asyncpg.Connection, target: asyncpg.Connection, one: MovedTable, unit: Unit) -> None:
    if not await _equal(source, target, one, unit):
        raise StillChanging(f"rows of {one.table.name} differ after they were copied")


async def _equal(source: asyncpg.Connection, target: asyncpg.Connection, one: MovedTable, unit: Unit) -> bool:
    there, here = await asyncio.gather(sums(source, one, unit), sums(target, one, unit))
    if one.table.shared_if:
        return here.rows >= there.rows  # other accounts of the target may have more of them
    return there == here


async def _delete_surplus(source: asyncpg.Connection, target: asyncpg.Connection, one: MovedTable, unit: Unit) -> None:
    """Delete the rows that the source has deleted since they were copied, such as those past their retention."""
    await _staged(source, target, one, unit, "", keys_only=True)
    await target.execute(
        f"DELETE FROM {one.name} t WHERE {one.mine} AND NOT EXISTS (SELECT FROM arrived a WHERE {one.matches('a')})",  # noqa: S608 - quoted
        *unit.arguments,
    )
    await target.execute("DROP TABLE arrived")


async def _staged(
    source: asyncpg.Connection,
    target: asyncpg.Connection,
    one: MovedTable,
    unit: Unit,
    condition: str,
    *,
    keys_only: bool = False,
) -> int:
    """Copy rows into the temporary table `arrived`; return their number."""
    columns = [quoted(name) for name in one.table.key] if keys_only else [one.listed]
    await target.execute(
        f"CREATE TEMP TABLE arrived ON COMMIT DROP AS SELECT {', '.join(columns)} FROM {one.name} WITH NO DATA"  # noqa: S608 - quoted
    )
    rows = await _transfer(source, target, one, unit, condition, "arrived", keys_only=keys_only)
    await target.execute("ANALYZE arrived")
    return rows


async def _transfer(
    source: asyncpg.Connection,
    target: asyncpg.Connection,
    one: MovedTable,
    unit: Unit,
    condition: str,
    into: str,
    *,
    keys_only: bool = False,
) -> int:
    """Copy rows of the source into a table of the target; return their number."""
    names = list(one.table.key) if keys_only else one.columns
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue(PIECES)

    async def read() -> None:
        listed = ", ".join(f"t.{quoted(name)}" for name in names)
        query = f"SELECT {listed} FROM {one.name} t WHERE {one.mine}{condition}"  # noqa: S608 - quoted
        await source.copy_from_query(query, *unit.arguments, output=pieces.put, format="text")
        await pieces.put(None)

    async def written() -> AsyncIterator[bytes]:
        while (piece := await pieces.get()) is not None:
            yield piece

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(read())
            copying = tasks.create_task(target.copy_to_table(into, columns=names, source=written(), format="text"))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    return int(copying.result().rpartition(" ")[2])


async def sums(connection: asyncpg.Connection, one: MovedTable, unit: Unit) -> RowSums:
    """Return the number of the unit's rows in a table, and a digest of them that does not depend on their order."""
    names = one.table.summed or [name for name in one.columns if name not in _uncompared(one.table)]
    row = ", ".join(f"t.{quoted(name)}" for name in names)
    digest = f"coalesce(sum(hashtextextended(ROW({row})::text, 0)::numeric), 0)::text"
    return await _counted(connection, one, unit, digest=digest)


async def _counted(connection: asyncpg.Connection, one: MovedTable, unit: Unit, *, digest: str = "''") -> RowSums:
    found = await connection.fetchrow(
        f"SELECT count(*) AS rows, {digest} AS digest FROM {one.name} t WHERE {one.mine}",  # noqa: S608 - quoted
        *unit.arguments,
    )
    assert found is not None
    return RowSums(found["rows"], found["digest"])


def _uncompared(table: AccountTable) -> frozenset[str]:
    return UNCOMPARED if table.name in ("accounts", "account_heads") else frozenset()


async def delete(connection: asyncpg.Connection, one: MovedTable, unit: Unit) -> int:
    """Delete the unit's rows of a table, except those that other accounts may share; return their number."""
    kept = f" AND NOT {one.table.shared_if}" if one.table.shared_if else ""
    tag = await connection.execute(f"DELETE FROM {one.name} t WHERE {one.mine}{kept}", *unit.arguments)  # noqa: S608 - quoted
    return int(tag.rpartition(" ")[2])
