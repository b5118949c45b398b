"""Commands about incoming mail: claimed addresses and their routes."""

from typing import Any

import click

from ops import admin
from ops.commands.base import as_json, attached, print_json, reported, table

_account = click.option("--account", help="Only this account (id acc_… or name); default: all accounts.")
_limit = click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Print at most this many."
)


@click.group()
def inbound() -> None:
    """Show what receives mail, and where it goes."""


@inbound.command("addresses")
@_account
@_limit
@as_json
@reported
def inbound_addresses(*, account: str | None, limit: int, as_json: bool) -> None:
    """List the newest claimed addresses. `receives` is no where the domain has moved to another account."""
    from ops import inbound as listed  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: listed.addresses(pool, account=account, limit=limit))
    _print(found, ["account", "address", "label", "enabled", "receives", "lastReceivedAt", "id"], as_json=as_json)


@inbound.command("routes")
@_account
@_limit
@as_json
@reported
def inbound_routes(*, account: str | None, limit: int, as_json: bool) -> None:
    """List the newest inbound routes: the address or domain, and where its mail goes."""
    from ops import inbound as listed  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: listed.routes(pool, account=account, limit=limit))
    _print(found, ["account", "target", "action", "webhookId", "forwardTo", "enabled", "id"], as_json=as_json)


def _print(found: list[dict[str, Any]], columns: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    elif not found:
        click.echo("None.")
    else:
        table(found, columns)
