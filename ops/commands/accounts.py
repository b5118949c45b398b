"""Commands about accounts, keys and sending domains."""

import click

from engine.base.plans import Plan
from engine.base.scopes import SCOPES
from ops import operate
from ops.commands.base import as_json, attached, fail, reported, show


@click.group()
def account() -> None:
    """Accounts."""


@account.command("create")
@click.option("--name", required=True)
@click.option("--email", required=True, help="The owner's address.")
@click.option("--plan", type=click.Choice([plan.value for plan in Plan]), default=Plan.FREE.value, show_default=True)
@click.option("--daily-cap", type=click.IntRange(min=0), help="An agreed cap in place of the ladder's.")
@click.option("--monthly-cap", type=click.IntRange(min=0), help="An agreed allowance in place of the plan's.")
@as_json
@reported
def account_create(
    *, name: str, email: str, plan: str, daily_cap: int | None, monthly_cap: int | None, as_json: bool
) -> None:
    """A new account; its owner's password is printed once."""
    made = operate.with_pool(
        attached(),
        lambda pool: operate.create_account(
            pool, name=name, email=email, plan=Plan(plan), daily_cap=daily_cap, monthly_cap=monthly_cap
        ),
    )
    show(made, as_json=as_json)


@account.command("retention")
@click.option("--account", "account_id", required=True, help="acc_…")
@click.option("--days", type=click.IntRange(1, 36_500), help="Default: back to what the plan says.")
@as_json
@reported
def account_retention(*, account_id: str, days: int | None, as_json: bool) -> None:
    """Keep an account's records longer than its plan does."""
    from ops import retention  # noqa: PLC0415

    agreed = operate.with_pool(attached(), lambda pool: retention.agree(pool, account=account_id, days=days))
    show(agreed, as_json=as_json)


@click.group()
def key() -> None:
    """API keys."""


@key.command("create")
@click.option("--account", "account_id", required=True, help="acc_…")
@click.option("--scopes", default="all", show_default=True, help=f"all, or of: {', '.join(sorted(SCOPES))}")
@click.option("--name", default="Operator's key", show_default=True)
@as_json
@reported
def key_create(*, account_id: str, scopes: str, name: str, as_json: bool) -> None:
    """A new API key, printed once."""
    settings = attached()
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    made = operate.with_pool(
        settings, lambda pool: operate.create_key(pool, settings, account=account_id, name=name, scopes=wanted)
    )
    show(made, as_json=as_json)


@click.group()
def domain() -> None:
    """Sending domains."""


@domain.command("add")
@click.option("--account", "account_id", required=True, help="acc_…")
@click.option("--name", required=True)
@click.option("--verified", is_flag=True, help="Take the operator's word instead of DNS'.")
@as_json
@reported
def domain_add(*, account_id: str, name: str, verified: bool, as_json: bool) -> None:
    """Add a domain; prints the DNS records to publish."""
    settings = attached()
    made = operate.with_pool(
        settings, lambda pool: operate.add_domain(pool, settings, account=account_id, name=name, verified=verified)
    )
    show(made, as_json=as_json)


@domain.command("verify")
@click.option("--account", "account_id", required=True, help="acc_…")
@click.option("--name", required=True)
@as_json
@reported
def domain_verify(*, account_id: str, name: str, as_json: bool) -> None:
    """Look a domain's records up in DNS; ends with 1 while it is not verified."""
    settings = attached()
    found = operate.with_pool(
        settings, lambda pool: operate.check_domain(pool, settings, account=account_id, name=name)
    )
    if found is None:
        fail(f"{name} is not a domain of {account_id}.")
    show(found, as_json=as_json)
    if found["status"] != "verified":
        raise click.exceptions.Exit(1)
