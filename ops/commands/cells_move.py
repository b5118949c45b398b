"""`ops cells move`: move an account, with all that must stay together, to another cell."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import click
from msgspec import structs

from engine.base import ids
from engine.base.settings import variable
from engine.cells.directory import Directory
from ops.account_moves import move as moves
from ops.account_moves.fence import MoveRefused
from ops.account_moves.move import MoveEnds
from ops.commands.base import as_json, attached, fail, print_json, reported


@click.command()
@click.argument("account", help="Id (acc_…) of the account.")
@click.argument("cell", help="Name of the cell to move it to.")
@click.option(
    "--database", envvar="TARGET_DATABASE_URL", show_envvar=True,
    help="Database URL of the other cell. Set the variable: others on this host can read arguments.",
)  # fmt: skip
@click.option("--longest-pause", type=click.IntRange(10, 86_400), default=round(moves.MAX_PAUSE_S), show_default=True,
              help="Let the account stay if its pause would take longer than so many seconds.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only check, and list what would move.")
@as_json
@reported
def move(*, account: str, cell: str, database: str | None, longest_pause: int, dry_run: bool, as_json: bool) -> None:
    """Move ACCOUNT (acc_…) to CELL, with a pause of some seconds. Run it on a host of the cell that has the account.

    Sub-accounts move with their parent, and so do all accounts that share people with it. Run it again after an
    interruption: it finishes the move, or begins it anew.
    """
    if database is None:
        fail("Set TARGET_DATABASE_URL to the database of the other cell.")
    wanted = ids.parse_id(ids.Kind.ACCOUNT, account)
    found = asyncio.run(
        _plan(wanted, cell, database) if dry_run else _move(wanted, cell, database, float(longest_pause))
    )
    if as_json:
        print_json(found)
        return
    names = ", ".join(found["accounts"])
    if dry_run:
        for table, rows in found["rows"].items():
            click.echo(f"{rows:>12,}  {table}")
        click.echo(f"{names} and {found['people']} people can move to {cell}.")
    else:
        click.echo(f"{names} and {found['people']} people are in {cell}. The pause was {found['pauseSeconds']} s.")


async def _plan(account: UUID, cell: str, database: str) -> dict[str, Any]:
    async with _ends(cell, database) as (_, ends):
        unit, rows = await moves.planned(ends, account)
    return {"accounts": _public(unit.accounts), "people": len(unit.people), "rows": rows}


async def _move(account: UUID, cell: str, database: str, max_pause_s: float) -> dict[str, Any]:
    async with _ends(cell, database) as (directory, ends):
        bounded = structs.replace(ends, max_pause_s=max_pause_s)
        done = await moves.move(directory, bounded, account, step=_tell, say=_count)
    return {
        "accounts": _public(done.accounts),
        "people": done.people,
        "events": done.events,
        "pauseSeconds": round(done.pause_s, 2),
    }


@asynccontextmanager
async def _ends(cell: str, database: str) -> AsyncIterator[tuple[Directory, MoveEnds]]:
    """Open the directory; find the cells and databases of a move. Raises MoveRefused."""
    settings = attached()
    if settings.directory_url is None or settings.database_url is None or settings.cell is None:
        raise MoveRefused(f"this installation is the only one: set {variable('directory_url')} and {variable('cell')}")
    directory = await Directory.open(settings.directory_url, name="move")
    try:
        if cell not in {one.name for one in await directory.cells()}:
            raise MoveRefused(f"the directory has no cell {cell}")
        if settings.cell == cell:
            raise MoveRefused(f"this is a host of {cell}: run the command on one of the cell that has the account")
        yield directory, MoveEnds(settings.database_url, database, settings.cell, cell)
    finally:
        await directory.close()


def _public(accounts: list[UUID]) -> list[str]:
    return [ids.format_id(ids.Kind.ACCOUNT, one) for one in accounts]


def _tell(step: str) -> None:
    click.echo(f"{step}.", err=True)


def _count(table: str, rows: int) -> None:
    if rows:
        click.echo(f"  {rows:,} rows of {table}", err=True)
