"""`ops cells`: the cells of an installation, and which accounts they have."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

import asyncpg
import click
from msgspec import structs

from engine.base import ids
from engine.base.settings import Settings, variable
from engine.cells import claims
from engine.cells.directory import Cell, Directory, DirectoryConflict, migrate_directory
from engine.cells.overview import CellState, states
from engine.cells.reconcile import reconcile
from ops.admin import with_pool
from ops.commands.base import as_json, attached, fail, reported, show, show_rows
from ops.commands.cells_move import move

Answer = TypeVar("Answer")

_name = click.argument("name", metavar="NAME", help="Name of the cell in the directory.")
_HOST = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])"
_API_URL = re.compile(rf"https?://{_HOST}(?::[0-9]{{1,5}})?/?")
_HOST_PORT = re.compile(rf"{_HOST}:[0-9]{{1,5}}")
_COLUMNS = ["cell", "state", "weight", "placed", "accounts", "queued", "overdueSeconds", "version", "apiUrl"]


@click.group()
def cells() -> None:
    """Show and change the cells of this installation, in their directory (WAYBILL_DIRECTORY_URL)."""


cells.add_command(move)


@cells.command("list")
@as_json
@reported
def list_cells(*, as_json: bool) -> None:
    """List the cells: their accounts, pending deliveries and versions. Empty figures: the cell does not answer."""

    found = _in_directory(lambda settings, directory: states(directory, settings.pepper))
    show_rows([_row(one) for one in found], _COLUMNS, as_json=as_json, empty="There are no cells yet.")


@cells.command()
@as_json
@reported
def migrate(*, as_json: bool) -> None:
    """Create or update the tables of the directory."""
    show({"applied": asyncio.run(migrate_directory(_url(attached())))}, as_json=as_json)


@cells.command()
@_name
@click.argument("api_url", metavar="URL", help="Base URL at which fronts reach the API of the cell.")
@click.option("--submission", metavar="HOST:PORT", help="Where the cell accepts SMTP submission.")
@click.option("--mx", metavar="HOST:PORT", help="Where the cell accepts incoming mail.")
@click.option("--weight", default=100, show_default=True, type=click.IntRange(0, 10_000),
              help="Share of new accounts, compared with the other open cells.")  # fmt: skip
@as_json
@reported
def add(*, name: str, api_url: str, submission: str | None, mx: str | None, weight: int, as_json: bool) -> None:
    """Add cell NAME, or change its addresses and weight. A new cell accepts new accounts.

    Run `ops cells sync` on a host of a cell that has accounts already.
    """
    if _API_URL.fullmatch(api_url) is None:
        fail(f"{api_url} is no base URL: write http://HOST:PORT or https://HOST.")
    for given in (submission, mx):
        if given is not None and _HOST_PORT.fullmatch(given) is None:
            fail(f"{given} is not HOST:PORT.")
    cell = Cell(name, api_url, submission, mx, "open", weight)
    _in_directory(lambda _, directory: directory.put_cell(cell))
    show({"cell": name, "apiUrl": api_url, "weight": weight}, as_json=as_json)


@cells.command("open")
@_name
@as_json
@reported
def open_cell(*, name: str, as_json: bool) -> None:
    """Let cell NAME accept new accounts."""
    _set_state(name, "open", as_json=as_json)


@cells.command("close")
@_name
@as_json
@reported
def close_cell(*, name: str, as_json: bool) -> None:
    """Let cell NAME accept no new accounts; it keeps those that it has."""
    _set_state(name, "closed", as_json=as_json)


@cells.command()
@click.argument("account", metavar="ACCOUNT", help="Id of the account (acc_…).")
@_name
@as_json
@reported
def place(*, account: str, name: str, as_json: bool) -> None:
    """Record that cell NAME has ACCOUNT, if the directory knows no cell of it."""
    placed = ids.parse_id(ids.Kind.ACCOUNT, account)
    try:
        _in_directory(lambda _, directory: directory.place(placed, name))
    except DirectoryConflict as error:
        fail(str(error))
    show({"account": account, "cell": name}, as_json=as_json)


@cells.command()
@as_json
@reported
def sync(*, as_json: bool) -> None:
    """Make the directory agree with this host's cell now; the worker does this every five minutes."""
    settings = attached()
    _url(settings)

    async def run(pool: asyncpg.Pool) -> dict[str, int]:
        joined = await claims.directory()
        assert joined is not None  # the settings name a directory and a cell
        return structs.asdict(await reconcile(pool, *joined))

    show(with_pool(settings, run), as_json=as_json)


def _set_state(name: str, state: Literal["open", "closed"], *, as_json: bool) -> None:
    if not _in_directory(lambda _, directory: directory.set_state(name, state)):
        fail(f"There is no cell {name}. `ops cells list` shows all.")
    show({"cell": name, "state": state}, as_json=as_json)


def _in_directory(work: Callable[[Settings, Directory], Awaitable[Answer]]) -> Answer:
    """Run `work` with the settings and the directory."""
    settings = attached()
    url = _url(settings)

    async def run() -> Answer:
        directory = await Directory.open(url, name="ops", largest=1)
        try:
            return await work(settings, directory)
        finally:
            await directory.close()

    return asyncio.run(run())


def _url(settings: Settings) -> str:
    if settings.directory_url is None:
        fail(f"This installation has no directory of cells: {variable('directory_url')} is not set.")
    return settings.directory_url


def _row(one: CellState) -> dict[str, Any]:
    figures = {} if one.figures is None else {
        "accounts": one.figures.accounts, "queued": one.figures.queued,
        "overdueSeconds": one.figures.overdue_seconds, "version": one.figures.version,
    }  # fmt: skip
    known = structs.asdict(one.cell)
    named = {"cell": known["name"], "placed": one.placed, "apiUrl": known["api_url"]}
    nothing = dict.fromkeys(("accounts", "queued", "overdueSeconds", "version"))
    return named | {name: known[name] for name in ("state", "weight")} | nothing | figures
