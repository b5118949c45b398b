"""`ops cells move`: move an account, with all that must stay together, to another cell."""

import asyncio
from typing import Any

import click

from engine.base import ids
from engine.base.settings import Settings
from engine.cells.directory import Directory
from ops.account_moves import move as moves
from ops.account_moves.fence import MoveRefused
from ops.account_moves.move import MoveEnds
from ops.commands.base import as_json, attached, print_json, reported


@click.command()
@click.argument("account", metavar="ACCOUNT")
@click.argument("cell", metavar="CELL")
@click.option(
    "--directory", envvar="WAYBILL_DIRECTORY_URL", required=True, help="URL of the directory.", show_envvar=True
)
@click.option(
    "--database", envvar="TARGET_DATABASE_URL", required=True, show_envvar=True,
    help="Database URL of the other cell. Set the variable: others on this host can read arguments.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only check, and list what would move.")
@as_json
@reported
def move(*, account: str, cell: str, directory: str, database: str, dry_run: bool, as_json: bool) -> None:
    """Move ACCOUNT (acc_…) to CELL, with a pause of some seconds. Run it on a host of the cell that has the account.

    Sub-accounts move with their parent, and so do all accounts that share people with it. Run it again after an
    interruption: it finishes the move, or begins it anew.
    """
    moved = ids.parse_id(ids.Kind.ACCOUNT, account)
    settings = attached()
    found = asyncio.run((_plan if dry_run else _move)(settings, directory, database, cell, moved))
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


async def _plan(settings: Settings, directory_url: str, database: str, cell: str, account: Any) -> dict[str, Any]:
    directory = await Directory.open(directory_url, name="move")
    try:
        unit, _, rows = await moves.planned(await _ends(settings, directory, database, cell, account), account)
    finally:
        await directory.close()
    return {"accounts": [ids.format_id(ids.Kind.ACCOUNT, one) for one in unit.accounts], "people": len(unit.people),
            "rows": rows}  # fmt: skip


async def _move(settings: Settings, directory_url: str, database: str, cell: str, account: Any) -> dict[str, Any]:
    directory = await Directory.open(directory_url, name="move")
    try:
        ends = await _ends(settings, directory, database, cell, account)
        done = await moves.move(directory, ends, account, step=_tell, say=_count)
    finally:
        await directory.close()
    return {
        "accounts": [ids.format_id(ids.Kind.ACCOUNT, one) for one in done.accounts], "people": done.people,
        "events": done.events, "pauseSeconds": round(done.pause_s, 2),
    }  # fmt: skip


async def _ends(settings: Settings, directory: Directory, database: str, cell: str, account: Any) -> MoveEnds:
    """Return both databases; this host's cell is the one that has the account, or had it before an interruption."""
    if settings.database_url is None:
        raise MoveRefused("no database is configured")
    if cell not in {one.name for one in await directory.cells()}:
        raise MoveRefused(f"the directory has no cell {cell}")
    source = await moves.source_cell(directory, settings.database_url, account, cell)
    return MoveEnds(settings.database_url, database, source, cell)


def _tell(step: str) -> None:
    click.echo(f"{step}.", err=True)


def _count(table: str, rows: int) -> None:
    if rows:
        click.echo(f"  {rows:,} rows of {table}", err=True)
