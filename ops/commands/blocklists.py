"""The command about DNS blocklists that name source addresses or customers' domains."""

from typing import Any

import asyncpg
import click

from ops import admin
from ops.commands.base import as_json, attached, print_json, reported, table

_COLUMNS = {
    "lists": ["list", "family", "trusted", "detail", "testedAt"],
    "addresses": ["ip", "state", "listedOn", "checkedAt"],
    "listings": ["kind", "target", "list", "since", "lastSeen", "answer", "account"],
}


@click.command()
@click.option("--check", is_flag=True, help="Check all source addresses, and what else is due, before printing.")
@click.option("--domain", metavar="NAME", help="Check this verified domain too; implies --check.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Print this many listings."
)
@as_json
@reported
def blocklists(*, check: bool, domain: str | None, limit: int, as_json: bool) -> None:
    """Show the DNS blocklists, whether each can be trusted, and which addresses and domains they name."""
    from ops import blocklists as listed  # noqa: PLC0415

    settings = attached()

    async def work(pool: asyncpg.Pool) -> dict[str, Any]:
        if check or domain is not None:
            await listed.check_now(pool, settings, domain)
        return await listed.standing(pool, limit=limit)

    found = admin.with_pool(settings, work)
    if as_json:
        print_json(found)
        return
    for name, columns in _COLUMNS.items():
        click.echo(f"{name}:")
        if found[name]:
            table(found[name], columns)
        else:
            click.echo("None.")
