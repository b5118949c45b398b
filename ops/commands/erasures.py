"""Commands about erasures: the data of one recipient erased from an account."""

import click

from ops import admin
from ops.commands.base import as_json, attached, print_json, reported, table

_account = click.argument("account", help="Id (acc_…) or name of the account.")
_COLUMNS = ["id", "state", "requestedAt", "finishedAt", "erased"]


@click.group()
def erasure() -> None:
    """Erase the data of a recipient from an account, as its owner may do with POST /v1/erasures."""


@erasure.command("request")
@_account
@click.argument("address", help="Email address of the recipient.")
@as_json
@reported
def erasure_request(*, account: str, address: str, as_json: bool) -> None:
    """Queue the erasure of ADDRESS in ACCOUNT; a worker does it within minutes.

    Messages, received mail, contacts, codes and log entries lose the address and their content; a suppression stays
    as a digest, so that mail to the address is still refused. It can't be undone.
    """
    from ops import erasures  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: erasures.request(pool, account, address))
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found['id']}: {found['state']}. `ops erasure list {account}` shows when it is completed.")


@erasure.command("list")
@_account
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, help="Print at most this many.")
@as_json
@reported
def erasure_list(*, account: str, limit: int, as_json: bool) -> None:
    """List the erasures of ACCOUNT, newest first, with what each erased. Addresses are not kept."""
    from ops import erasures  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: erasures.listed(pool, account, limit=limit))
    if as_json:
        print_json(found)
    elif not found:
        click.echo("None.")
    else:
        table(found, _COLUMNS)
