"""Make the directory agree with this cell: fill it from an existing installation, and release what is no longer used.

Flows only claim; this job alone releases, so that none of them needs to. It runs in the worker, and at once with
`ops cells sync`.
"""

from collections.abc import Collection
from typing import Final
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct, structs

from engine.base.settings import Settings
from engine.cells import claims
from engine.cells.directory import Claim, Directory
from engine.store.jobs import Job
from engine.store.queries import Queries, RowQuery

EVERY_S: Final = 300
SETTLED_S: Final = 120.0  # older claims and placements belong to no open transaction
PAGE: Final = 1_000
_FIRST: Final = UUID(int=0)

_SQL = Queries.beside(__file__, "reconcile.sql")
_log = structlog.get_logger("cells")


class _Account(Struct, frozen=True):
    id: UUID


class _Name(Struct, frozen=True):
    kind: str
    name: str


class Reconciled(Struct):
    """The numbers of rows that were changed in the directory, and of names that another cell has."""

    placed: int = 0
    removed: int = 0
    claimed: int = 0
    released: int = 0


_ACCOUNTS = _SQL.rows("accounts", _Account)
_EXISTING = _SQL.rows("existing_accounts", _Account)
_NAMES: Final[tuple[RowQuery[Claim], ...]] = tuple(_SQL.rows(one, Claim) for one in ("emails", "domains", "identities"))
_STANDING = _SQL.rows("standing", _Name)


async def reconcile(pool: asyncpg.Pool, directory: Directory, cell: str) -> Reconciled:
    """Place and claim what this cell has, and remove what it no longer has; what is right stays unchanged."""
    done = Reconciled()
    after = _FIRST
    while page := [one.id for one in await _ACCOUNTS.fetch(pool, after, PAGE)]:
        done.placed += await directory.place_many(page, cell)
        after = page[-1]
    for query in _NAMES:
        name = ""
        while held := await query.fetch(pool, name, PAGE, cell):
            done.claimed += await directory.claim_many(held, cell)
            name = held[-1].name
    done.removed = await _remove(pool, directory, cell)
    done.released = await _release(pool, directory, cell)
    return done


async def _remove(pool: asyncpg.Pool, directory: Directory, cell: str) -> int:
    after, removed = _FIRST, 0
    while page := [one.account_id for one in await directory.placed_in(cell, after, PAGE)]:
        here = {one.id for one in await _EXISTING.fetch(pool, page)}
        if gone := _without(page, here):
            removed += await directory.remove(gone, cell, older_s=SETTLED_S)
        after = page[-1]
    return removed


async def _release(pool: asyncpg.Pool, directory: Directory, cell: str) -> int:
    after, released = ("", ""), 0
    while page := await directory.claims_of(cell, after, PAGE, older_s=SETTLED_S):
        names = [(one.kind, one.name) for one in page]
        kinds, texts = [kind for kind, _ in names], [name for _, name in names]
        standing = {(one.kind, one.name) for one in await _STANDING.fetch(pool, kinds, texts)}
        if gone := _without(names, standing):
            released += await directory.release(gone, cell, older_s=SETTLED_S)
        after = names[-1]
    return released


def _without(all_of: list, some: Collection) -> list:  # type: ignore[type-arg]
    return [one for one in all_of if one not in some]


async def run(pool: asyncpg.Pool, _: Settings) -> None:
    """Reconcile the directory, in a cell."""
    joined = await claims.directory()
    if joined is not None:
        done = await reconcile(pool, *joined)
        if any((done.placed, done.removed, done.claimed, done.released)):
            _log.info("directory reconciled", cell=joined[1], **structs.asdict(done))


JOB = Job("cells", every_s=EVERY_S, run=run)
