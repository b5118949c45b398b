"""The state of all cells, for operators: what the directory says, and what each cell says about itself."""

import asyncio
from datetime import datetime
from typing import Final

import aiohttp
from msgspec import Struct

from engine.base import clock
from engine.base.secrets import Pepper
from engine.base.version import version
from engine.cells.ask import CellSilent, ask, credential
from engine.cells.directory import Cell, Directory
from engine.store.queries import Queries, Source

PATH: Final = "/internal/cell"

_SQL = Queries.beside(__file__, "overview.sql")


class _Counts(Struct, frozen=True):
    accounts: int
    queued: int
    oldest_due: datetime | None


class CellFigures(Struct, frozen=True, rename="camel"):
    """A cell's report on itself. `overdueSeconds`: time since the due time of its oldest pending delivery."""

    version: str
    accounts: int
    queued: int
    overdue_seconds: int


class CellState(Struct, frozen=True):
    """A cell of the directory; `figures` is None while it does not answer."""

    cell: Cell
    placed: int
    figures: CellFigures | None


_COUNTS = _SQL.rows("cell_figures", _Counts)


async def own_figures(source: Source) -> CellFigures:
    """Return the figures of this cell. Counting the queue takes a second for some million rows."""
    [found] = await _COUNTS.fetch(source)
    overdue = 0.0 if found.oldest_due is None else (clock.now() - found.oldest_due).total_seconds()
    return CellFigures(version(), found.accounts, found.queued, max(0, round(overdue)))


async def overview(directory: Directory, http: aiohttp.ClientSession, pepper: Pepper) -> list[CellState]:
    """Return all cells by name, asking all of them at once."""
    known, placed = await directory.cells(), await directory.count_placed()
    figures = await asyncio.gather(*(figures_of(http, one, pepper) for one in known))
    return [CellState(one, placed.get(one.name, 0), found) for one, found in zip(known, figures, strict=True)]


async def states(directory: Directory, pepper: Pepper) -> list[CellState]:
    """Return all cells over connections of their own, for callers that ask seldom."""
    async with aiohttp.ClientSession(trust_env=False) as http:
        return await overview(directory, http, pepper)


async def figures_of(http: aiohttp.ClientSession, cell: Cell, pepper: Pepper) -> CellFigures | None:
    """Return the figures of a cell; None if it does not answer."""
    try:
        return (await ask(http, cell, PATH, credential(pepper))).decoded(CellFigures)
    except CellSilent:
        return None
