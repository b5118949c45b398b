"""`ops platform`: the account that Waybill sends its own mail from."""

import click

from ops import admin
from ops.commands.base import as_json, in_service, reported, show

_account = click.option("--account", "account_id", required=True, help="Id of the account (acc_…).")


@click.group()
def platform() -> None:
    """Choose the account that Waybill sends its own mail from."""


@platform.command("set")
@_account
@click.option("--from", "sender", help=("Sender address of these emails; the account must have verified its domain."))
@as_json
@reported
def platform_set(*, account_id: str, sender: str | None, as_json: bool) -> None:
    """Send confirmations, notices and password links from this account."""
    show(in_service(admin.set_platform, account=account_id, sender=sender), as_json=as_json)


@platform.command("show")
@as_json
@reported
def platform_show(*, as_json: bool) -> None:
    """Show the platform account, the sender address, and how many of its emails wait."""
    show(in_service(admin.show_platform), as_json=as_json)
