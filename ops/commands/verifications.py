"""Commands about one-time codes: counts, and destinations that get no codes."""

from typing import Any

import click

from ops import admin
from ops.commands.base import as_json, attached, print_json, reported, table

_account = click.option("--account", help="Only this account (id acc_… or name); default: all accounts.")
_limit = click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Print at most this many."
)


@click.group()
def verifications() -> None:
    """Show one-time codes: how many there are, and which destinations are locked. Addresses are not stored."""


@verifications.command("counts")
@_account
@_limit
@as_json
@reported
def verification_counts(*, account: str | None, limit: int, as_json: bool) -> None:
    """Count the verifications of each account by status, with the codes and address checks of this month."""
    from ops import verifications as counted  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: counted.counts(pool, account=account, limit=limit))
    statuses = ["pending", "approved", "expired", "cancelled", "exhausted"]
    _print(found, ["account", *statuses, "codesThisMonth", "checksThisMonth", "locked"], as_json=as_json)


@verifications.command("locked")
@_account
@_limit
@as_json
@reported
def verification_locks(*, account: str | None, limit: int, as_json: bool) -> None:
    """List the destinations that get no codes now, and why; each is named by the beginning of its digest."""
    from ops import verifications as counted  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: counted.locked(pool, account=account, limit=limit))
    _print(found, ["account", "destination", "why", "until", "codesInHour"], as_json=as_json)


def _print(found: list[dict[str, Any]], columns: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    elif not found:
        click.echo("None.")
    else:
        table(found, columns)
