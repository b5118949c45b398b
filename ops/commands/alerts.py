"""Commands about the alerts of accounts: their rules, why one is unknown, and what has fired."""

import click

from ops import admin
from ops.commands.base import as_json, attached, print_json, reported, table

_RULES = ["account", "kind", "threshold", "value", "state", "why", "measuredAt", "id"]
_FIRINGS = ["account", "kind", "value", "threshold", "channels", "firedAt", "endedAt", "id"]
_account = click.option("--account", help="Only this account (id acc_… or name); default: all accounts.")
_limit = click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Print at most this many."
)


@click.group()
def alerts() -> None:
    """Alert rules of the accounts, and what has fired."""


@alerts.command("rules")
@_account
@click.option("--state", type=click.Choice(["firing", "unknown", "ok"]), help="Only rules in this state.")
@_limit
@as_json
@reported
def alert_rules(*, account: str | None, state: str | None, limit: int, as_json: bool) -> None:
    """List alert rules with their last value, and why each is in its state."""
    from ops import alerts as listed  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: listed.rules(pool, account=account, state=state, limit=limit))
    _print(found, _RULES, as_json=as_json)


@alerts.command("firings")
@_account
@click.option("--open", "open_only", is_flag=True, help="Only alerts that have not ended.")
@_limit
@as_json
@reported
def alert_firings(*, account: str | None, open_only: bool, limit: int, as_json: bool) -> None:
    """List the alerts that have fired, newest first."""
    from ops import alerts as listed  # noqa: PLC0415

    found = admin.with_pool(
        attached(), lambda pool: listed.firings(pool, account=account, open_only=open_only, limit=limit)
    )
    _print(found, _FIRINGS, as_json=as_json)


def _print(found: list[dict[str, object]], columns: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    elif not found:
        click.echo("None.")
    else:
        table(found, columns)
