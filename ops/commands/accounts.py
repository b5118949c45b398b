"""Commands about accounts, keys and sending domains."""

import click

from engine.base.plans import Plan
from engine.base.scopes import SCOPES
from ops import admin
from ops.commands.base import as_json, attached, fail, reported, show

_account = click.option("--account", "account_id", required=True, help="Id of the account (acc_…).")
_account_id = click.argument("account_id", metavar="ACCOUNT_ID", help="Id of the account (acc_…).")
_domain_name = click.option("--name", required=True, help="Name of the domain, such as example.com.")
_email = click.argument("email", help="Mail address that the person signs in with.")


@click.group()
def account() -> None:
    """Open, list, suspend and resume accounts."""


@account.command("create")
@click.option("--name", required=True, help="Name of the account.")
@click.option("--email", required=True, help="Mail address of the owner.")
@click.option(
    "--plan", type=click.Choice([plan.value for plan in Plan]), default=Plan.FREE.value, show_default=True,
    help="Plan of the account.",
)  # fmt: skip
@click.option(
    "--daily-cap",
    type=click.IntRange(min=0),
    help="Messages a day as agreed, in place of the growing cap of new accounts.",
)
@click.option(
    "--monthly-cap",
    type=click.IntRange(min=0),
    help="Messages a month as agreed, in place of the plan's; that of Enterprise is never lowered.",
)
@as_json
@reported
def account_create(
    *, name: str, email: str, plan: str, daily_cap: int | None, monthly_cap: int | None, as_json: bool
) -> None:
    """Open an account; its owner's password is printed once."""
    made = admin.with_pool(
        attached(),
        lambda pool: admin.create_account(
            pool, name=name, email=email, plan=Plan(plan), daily_cap=daily_cap, monthly_cap=monthly_cap
        ),
    )
    show(made, as_json=as_json)


@account.command("retention")
@_account
@click.option("--days", type=click.IntRange(1, 36_500), help="Days to keep records; default: what the plan says.")
@as_json
@reported
def account_retention(*, account_id: str, days: int | None, as_json: bool) -> None:
    """Keep an account's records longer than its plan does."""
    from ops import retention  # noqa: PLC0415

    agreed = admin.with_pool(attached(), lambda pool: retention.agree(pool, account=account_id, days=days))
    show(agreed, as_json=as_json)


@account.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Print at most this many.")
@as_json
@reported
def account_list(*, limit: int, as_json: bool) -> None:
    """List the newest accounts and their status."""
    from ops import accounts  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: accounts.listed(pool, limit=limit))
    show({"accounts": found}, as_json=as_json)


@account.command("show")
@_account_id
@as_json
@reported
def account_show(*, account_id: str, as_json: bool) -> None:
    """Show an account: suspensions, deletion, sub-accounts; or what is left of an erased one."""
    from ops import accounts  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: accounts.shown(pool, account=account_id)), as_json=as_json)


@account.command("suspend")
@_account_id
@click.option("--reason", required=True, help="Why, in a sentence; the account's people read it.")
@as_json
@reported
def account_suspend(*, account_id: str, reason: str, as_json: bool) -> None:
    """Stop an account and its sub-accounts: keys end, queued mail is held, people may only look."""
    from ops import accounts  # noqa: PLC0415

    done = admin.with_pool(attached(), lambda pool: accounts.suspend(pool, account=account_id, reason=reason))
    show(done, as_json=as_json)


@account.command("resume")
@_account_id
@as_json
@reported
def account_resume(*, account_id: str, as_json: bool) -> None:
    """Let a suspended account go on: held mail goes out, and what came of its mail until now is forgiven."""
    from ops import accounts  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: accounts.resume(pool, account=account_id)), as_json=as_json)


@click.group()
def person() -> None:
    """Help people who can't sign in."""


@person.command("show")
@_email
@as_json
@reported
def person_show(*, email: str, as_json: bool) -> None:
    """Show the person with a mail address, and their accounts."""
    from ops import people  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: people.shown(pool, email=email)), as_json=as_json)


@person.command("reset-factor")
@_email
@as_json
@reported
def person_reset_factor(*, email: str, as_json: bool) -> None:
    """Turn off a person's second factor, when app and codes are lost: sessions end, and a mail tells them."""
    from ops import people  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: people.reset_factor(pool, email=email)), as_json=as_json)


@person.command("sign-out")
@_email
@as_json
@reported
def person_sign_out(*, email: str, as_json: bool) -> None:
    """End all of a person's sessions."""
    from ops import people  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: people.sign_out(pool, email=email)), as_json=as_json)


@click.group()
def key() -> None:
    """Create, list and revoke API keys."""


@key.command("create")
@_account
@click.option("--scopes", default="all", show_default=True, help=f"all, or of: {', '.join(sorted(SCOPES))}")
@click.option("--name", default="Operator's key", show_default=True, help="Name of the key.")
@as_json
@reported
def key_create(*, account_id: str, scopes: str, name: str, as_json: bool) -> None:
    """Create an API key; it is printed once."""
    settings = attached()
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    made = admin.with_pool(
        settings, lambda pool: admin.create_key(pool, settings, account=account_id, name=name, scopes=wanted)
    )
    show(made, as_json=as_json)


@key.command("list")
@_account
@as_json
@reported
def key_list(*, account_id: str, as_json: bool) -> None:
    """List an account's keys, without their secrets."""
    from ops import keys  # noqa: PLC0415

    show({"keys": admin.with_pool(attached(), lambda pool: keys.listed(pool, account=account_id))}, as_json=as_json)


@key.command("revoke")
@_account
@click.argument("key_id", metavar="KEY_ID", help="Id of the key (key_…), as `ops key list` shows it.")
@as_json
@reported
def key_revoke(*, account_id: str, key_id: str, as_json: bool) -> None:
    """Revoke a key, such as one that has leaked; that can't be undone."""
    from ops import keys  # noqa: PLC0415

    done = admin.with_pool(attached(), lambda pool: keys.revoked(pool, account=account_id, key=key_id))
    show(done, as_json=as_json)


@click.group()
def domain() -> None:
    """Add and verify sending domains."""


@domain.command("add")
@_account
@_domain_name
@click.option("--verified", is_flag=True, help="Count the domain as verified without asking DNS.")
@as_json
@reported
def domain_add(*, account_id: str, name: str, verified: bool, as_json: bool) -> None:
    """Add a domain; prints the DNS records to publish."""
    settings = attached()
    made = admin.with_pool(
        settings, lambda pool: admin.add_domain(pool, settings, account=account_id, name=name, verified=verified)
    )
    show(made, as_json=as_json)


@domain.command("verify")
@_account
@_domain_name
@as_json
@reported
def domain_verify(*, account_id: str, name: str, as_json: bool) -> None:
    """Check a domain's records in DNS; exit status 1 while it is not verified."""
    settings = attached()
    found = admin.with_pool(settings, lambda pool: admin.check_domain(pool, settings, account=account_id, name=name))
    if found is None:
        fail(f"{name} is not a domain of {account_id}.")
    show(found, as_json=as_json)
    if found["status"] != "verified":
        raise click.exceptions.Exit(1)


@click.group()
def platform() -> None:
    """Choose the account that the service's own mail is sent from."""


@platform.command("set")
@_account
@click.option("--from", "sender", help="Sender of that mail, of a verified domain of the account.")
@as_json
@reported
def platform_set(*, account_id: str, sender: str | None, as_json: bool) -> None:
    """Send confirmations, notices and links for passwords from this account."""
    settings = attached()
    show(
        admin.with_pool(settings, lambda pool: admin.set_platform(pool, settings, account=account_id, sender=sender)),
        as_json=as_json,
    )


@platform.command("show")
@as_json
@reported
def platform_show(*, as_json: bool) -> None:
    """Show that account, the sender of its mail, and how much of it waits."""
    settings = attached()
    show(admin.with_pool(settings, lambda pool: admin.show_platform(pool, settings)), as_json=as_json)
