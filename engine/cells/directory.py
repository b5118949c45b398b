"""The directory of an installation with several cells: which cell has an account, and names that one cell may have.

A cell is a whole installation with its own PostgreSQL and Redis. The directory is a small database beside them
(`WAYBILL_DIRECTORY_URL`). Fronts read it to route, cells claim names in it before they commit, and a move changes it in
one transaction. Without the setting nothing here is used.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, Literal
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base.version import COMMAND
from engine.store.database_errors import SchemaMismatch
from engine.store.migrate import MigrationError, migrate, require
from engine.store.postgres import close_pool, open_pool
from engine.store.queries import Conn, Queries

FOLDER: Final = Path(__file__).parent / "migrations"
POOL_SESSIONS: Final = 4

_SQL = Queries.beside(__file__, "directory.sql")


class Cell(Struct, frozen=True):
    """A cell as the directory knows it. `submission` and `mx` are host:port, None where it has no such server."""

    name: str
    api_url: str
    submission: str | None
    mx: str | None
    state: str  # open or closed: whether new accounts are placed here
    weight: int  # share of the new accounts


class Placement(Struct, frozen=True):
    """The cell of an account; `moving_to` is set while a move is in progress. `cell` is None for a removed account."""

    account_id: UUID
    cell: str | None
    moving_to: str | None
    version: int


class Claim(Struct, frozen=True):
    """A name that one cell has: of an account, or of a person for addresses and identities."""

    kind: str
    name: str
    cell: str
    holder: UUID


class Placed(Struct, frozen=True):
    """The number of accounts in a cell."""

    cell: str
    accounts: int


class _Version(Struct, frozen=True):
    version: int


class DirectoryConflict(Exception):  # noqa: N818 - named for the state
    """The directory's rows differ from what the caller expects; nothing was changed."""


class ClaimedElsewhere(Exception):  # noqa: N818 - named for the state
    """Another cell has this name."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(f"{claim.kind} {claim.name} is claimed in cell {claim.cell}")
        self.claim = claim


_CELLS = _SQL.rows("cells", Cell)
_PUT_CELL = _SQL.command("put_cell")
_SET_STATE = _SQL.command("set_state")
_NEXT_VERSION = _SQL.rows("next_version", _Version)
_VERSION = _SQL.rows("version", _Version)
_PLACE = _SQL.command("place")
_PLACEMENT = _SQL.rows("placement", Placement)
_PLACEMENTS = _SQL.rows("placements", Placement)
_CHANGES = _SQL.rows("changes", Placement)
_REMOVE = _SQL.command("remove")
_PLACED_IN = _SQL.rows("placed_in", Placement)
_COUNT_PLACED = _SQL.rows("count_placed", Placed)
_BEGIN_MOVE = _SQL.command("begin_move")
_FINISH_MOVE = _SQL.command("finish_move")
_MOVE_CLAIMS = _SQL.command("move_claims")
_CANCEL_MOVE = _SQL.command("cancel_move")
_CLAIM = _SQL.rows("claim", Claim)
_CLAIM_MANY = _SQL.command("claim_many")
_CLAIMED = _SQL.rows("claimed", Claim)
_CLAIMS_OF = _SQL.rows("claims_of", Claim)
_RELEASE = _SQL.command("release")


async def migrate_directory(url: str) -> list[str]:
    """Apply the missing migrations of the directory; return their file names."""
    return await migrate(url, FOLDER)


class Directory:
    """Connections of this process to the directory. All methods raise DatabaseUnavailable while it is down."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, url: str, *, name: str = "directory", largest: int = POOL_SESSIONS) -> "Directory":
        """Open the directory. Raises MigrationError if it lacks a migration of this version."""
        pool = await open_pool(url, name=name, largest=largest, alone=True)
        try:
            await require(pool, FOLDER)
            await _CELLS.fetch(pool)
        except (MigrationError, SchemaMismatch) as error:
            pool.terminate()
            raise MigrationError(
                "the directory of cells (WAYBILL_DIRECTORY_URL) lacks tables of this version of Waybill: run"
                f" `{COMMAND} cells migrate` first"
            ) from error
        except BaseException:
            pool.terminate()
            raise
        return cls(pool)

    async def close(self) -> None:
        """Close the connections."""
        await close_pool(self._pool)

    # -- cells ------------------------------------------------------------------------------------

    async def cells(self) -> list[Cell]:
        """Return all cells by name."""
        return await _CELLS.fetch(self._pool)

    async def put_cell(self, cell: Cell) -> None:
        """Add a cell, or change its addresses and weight; a new one is open."""
        await _PUT_CELL.execute(self._pool, cell.name, cell.api_url, cell.submission, cell.mx, cell.weight)

    async def set_state(self, name: str, state: Literal["open", "closed"]) -> bool:
        """Open or close a cell for new accounts; return False if there is none of this name."""
        return _rows(await _SET_STATE.execute(self._pool, name, state)) == 1

    async def count_placed(self) -> dict[str, int]:
        """Return the number of accounts of each cell that has any."""
        return {row.cell: row.accounts for row in await _COUNT_PLACED.fetch(self._pool)}

    # -- placements -------------------------------------------------------------------------------

    async def place(self, account: UUID, cell: str) -> None:
        """Place an account in a cell, before the cell commits it; again is fine.

        Raises DirectoryConflict if another cell has it.
        """
        await self.place_many([account], cell)
        placement = await self.cell_of(account)
        if placement is None or placement.cell != cell:
            raise DirectoryConflict(f"account {account} is in cell {placement and placement.cell}, not {cell}")

    async def place_many(self, accounts: Collection[UUID], cell: str) -> int:
        """Place those accounts that have no cell; return how many they were."""
        async with self._pool.acquire() as connection, connection.transaction():
            return _rows(await _PLACE.execute(connection, list(accounts), cell, await _next(connection)))

    async def remove(self, accounts: Collection[UUID], cell: str, *, older_s: float) -> int:
        """Remove accounts that this cell no longer has, unless they are moving; return how many they were.

        One that was placed within `older_s` may belong to a transaction that has not been committed yet.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            version = await _next(connection)
            return _rows(await _REMOVE.execute(connection, list(accounts), cell, version, older_s))

    async def cell_of(self, account: UUID) -> Placement | None:
        """Return the placement of an account; None if it was never placed or was removed."""
        placement = await _PLACEMENT.first(self._pool, account)
        return placement if placement is not None and placement.cell is not None else None

    async def placed_in(self, cell: str, after: UUID, limit: int) -> list[Placement]:
        """Return a page of a cell's accounts by id."""
        return await _PLACED_IN.fetch(self._pool, cell, after, limit)

    async def version(self) -> int:
        """Return the number of the last change of placements."""
        [row] = await _VERSION.fetch(self._pool)
        return row.version

    async def changes(self, after: int, limit: int) -> list[Placement]:
        """Return `limit` placements that changed after a version, in order, and further ones of the last version;
        removed ones have no cell.
        """
        return await _CHANGES.fetch(self._pool, after, limit)

    # -- moves ------------------------------------------------------------------------------------

    async def begin_move(self, accounts: Sequence[UUID], *, source: str, to: str) -> int:
        """Mark all accounts of a unit as moving, and return the version with which `finish_move` ends this move; again
        is fine. From now on fronts hold their requests, so that this call begins the pause: copy what can be copied
        before it.

        Raises DirectoryConflict, with nothing changed, unless all of them are in `source` and move nowhere else.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            version = await _next(connection)
            done = _rows(await _BEGIN_MOVE.execute(connection, list(accounts), source, to, version))
            if done != len(accounts):
                raise DirectoryConflict(f"{len(accounts) - done} accounts are not in {source}, or move elsewhere")
        return version

    async def finish_move(self, accounts: Sequence[UUID], people: Sequence[UUID], *, to: str, began: int) -> None:
        """Give the unit whose move began with version `began` its new cell, with the claims of its accounts and people,
        in one transaction; again is fine. From the commit on, the target's rows are the truth. Record the holders of
        its claims with `claim_many` before.

        Raises DirectoryConflict, with nothing changed, unless each account moves to `to` or is there: a mover that
        stood still while another one took over must not place what that one has not copied yet.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            version = await _next(connection)
            await _FINISH_MOVE.execute(connection, list(accounts), to, version, began)
            placed = await _PLACEMENTS.fetch(connection, list(accounts))
            if len(placed) != len(accounts) or any(one.cell != to or one.moving_to for one in placed):
                raise DirectoryConflict(f"not all accounts were moving to {to}")
            await _MOVE_CLAIMS.execute(connection, [*accounts, *people], to)

    async def cancel_move(self, accounts: Sequence[UUID]) -> None:
        """Let accounts stay in their cell, with all that `begin_move` marked together with them; again is fine."""
        async with self._pool.acquire() as connection, connection.transaction():
            await _CANCEL_MOVE.execute(connection, list(accounts), await _next(connection))

    # -- claims -----------------------------------------------------------------------------------

    async def claim(self, kind: str, name: str, *, cell: str, holder: UUID) -> None:
        """Claim a name for a cell before it commits the row that has it; again is fine.

        Raises ClaimedElsewhere if another cell has it. Between the accounts of a cell, its own database decides: the
        claim stands for whichever has the name, and `claim_many` records its holder.
        """
        standing = await _CLAIM.first(self._pool, kind, name, cell, holder)
        while standing is None:  # released between the two parts of the statement
            standing = await _CLAIM.first(self._pool, kind, name, cell, holder)
        if standing.cell != cell:
            raise ClaimedElsewhere(standing)

    async def claim_many(self, claims: Collection[Claim], cell: str) -> int:
        """Claim names for a cell; return how many were new or changed their holder. Names of other cells are left."""
        kinds, names, holders = (
            [one.kind for one in claims],
            [one.name for one in claims],
            [one.holder for one in claims],
        )
        return _rows(await _CLAIM_MANY.execute(self._pool, kinds, names, cell, holders))

    async def claimed(self, kind: str, name: str) -> Claim | None:
        """Return the claim of a name."""
        return await _CLAIMED.first(self._pool, kind, name)

    async def claims_of(self, cell: str, after: tuple[str, str], limit: int, *, older_s: float) -> list[Claim]:
        """Return a page of the claims of a cell, by kind and name, that are older than `older_s`."""
        return await _CLAIMS_OF.fetch(self._pool, cell, *after, older_s, limit)

    async def release(self, names: Collection[tuple[str, str]], cell: str, *, older_s: float) -> int:
        """Release claims (kind, name) of a cell that are older than `older_s`; return how many they were.

        A younger one may belong to a transaction that has not been committed yet.
        """
        kinds, texts = [kind for kind, _ in names], [name for _, name in names]
        return _rows(await _RELEASE.execute(self._pool, kinds, texts, cell, older_s))


async def _next(connection: Conn) -> int:
    """Take the number of a change; the lock orders all changes by their commits."""
    [row] = await _NEXT_VERSION.fetch(connection)
    return row.version


def _rows(tag: str) -> int:
    return int(tag.rpartition(" ")[2])
